"""What a change was about to do, so that whoever comes next can finish it.

It stands in our own folder on the target, beside the staged new files and the
saved old ones, from before the first file is replaced until after the last
was verified. It is read as if a stranger had written it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Literal

import msgspec

from ..confined import Confined, Traits
from ..diff import ZEROS, check_path
from ..errors import BadInput
from ..lock import Blob

NAME = "journal.json"
BACK = "back.json"
DRAFT = "draft.json"

Side = Literal["new", "old"]
Verb = Literal["apply", "revert"]

_MOST_FILES = 10_000
_UNREADABLE = (OSError, ValueError, RecursionError, msgspec.MsgspecError, BadInput)


class File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file of a change: its place and its blob before and after."""

    place: str
    old: Blob
    new: Blob


class Commits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where ``HEAD`` of a checkout stands before and after."""

    old: Blob
    new: Blob


class Journal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One change.

    Attributes:
        goal: the side to finish on; ``old`` once it is being taken back. It
            never becomes ``new`` again: the staged files are used up by then.
    """

    form: Literal[1] = 1
    verb: Verb
    base: str
    goal: Side
    files: tuple[File, ...]
    commits: Commits | None = None

    def blob(self, file: File) -> str:
        """The blob that a file has when the goal is reached."""
        return file.new if self.goal == "new" else file.old

    def staged(self, state: str, index: int) -> str:
        """The place of the content that a file gets to reach the goal."""
        return f"{state}/{self.goal}/{index:04}"


def render(journal: Journal) -> bytes:
    """A journal as it is written: sealed, since what it says is done."""
    body = msgspec.json.encode(journal)
    return body + b"\n" + _seal(body)


def exists(files: Confined, state: str) -> bool:
    """Whether a change is under way."""
    return NAME in files.names(state)


def load(files: Confined, state: str, owns: Callable[[str], bool]) -> Journal:
    """Read a target's journal.

    Args:
        files: the target.
        state: the place of our folder.
        owns: whether a place is one that a change may write to.

    Raises:
        BadInput: it is none, or names a place that is none of ours.
    """
    try:
        body, _, seal = files.read(f"{state}/{NAME}").rpartition(b"\n")
        if seal != _seal(body):
            raise ValueError("it is damaged")
        journal = msgspec.json.decode(body, type=Journal)
    except _UNREADABLE as error:
        raise _bad(files, state, str(error)[:200]) from error
    places = [file.place for file in journal.files]
    if len(places) > _MOST_FILES or len(set(places)) != len(places):
        raise _bad(files, state, "too many files, or one twice")
    for file in journal.files:
        if check_path(file.place) or not owns(file.place):
            raise _bad(files, state, f"{file.place!r} is not a file of the target")
        if file.old == file.new:
            raise _bad(files, state, f"{file.place} does not change")
    if journal.commits and ZEROS in (journal.commits.old, journal.commits.new):
        raise _bad(files, state, "it names no commits")
    return journal


def save(files: Confined, state: str, journal: Journal, traits: Traits) -> None:
    """Write a target's journal, and the one that takes the change back.

    Raises:
        OSError: they cannot be written; then there is no journal.
    """
    back = msgspec.structs.replace(journal, goal="old")
    files.write(f"{state}/{BACK}", render(back), traits)
    files.write(f"{state}/{DRAFT}", render(journal), traits)
    files.settle(state)
    files.move(f"{state}/{DRAFT}", f"{state}/{NAME}")
    files.settle(state)


def turn(files: Confined, state: str) -> None:
    """Let the change be taken back from here on.

    Raises:
        OSError: it cannot be.
    """
    files.move(f"{state}/{BACK}", f"{state}/{NAME}")
    files.settle(state)


def _seal(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()


def _bad(files: Confined, state: str, cause: str) -> BadInput:
    folder = files.root / state
    return BadInput(
        f"{folder / NAME} is no journal of ours",
        cause=cause,
        next_step=f"keep {folder} aside under another name, then see what "
        "`dspark-patches status` says",
    )
