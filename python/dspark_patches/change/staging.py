"""The contents of a change, laid down before anything is replaced.

In our own folder on the target stand ``new/`` and ``old/``, every content
under its number, and two journals: one that says how to go on, and one, held
ready because a full disk may not take another, that says how to go back.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..confined import Traits
from ..diff import ZEROS, blob_id
from ..errors import BadInput, Conflict, Precondition
from . import journal as journals
from .journal import Commits, File, Journal
from .place import Place

_SIDES = ("new", "old")


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One file's content before and after; None stands for no file."""

    place: str
    old: bytes | None
    new: bytes | None
    executable: bool = False


def stage(
    place: Place,
    changes: Sequence[Change],
    *,
    verb: journals.Verb,
    base: str,
    commits: Commits | None,
) -> Journal:
    """Lay everything down; when this returns the change is under way.

    Raises:
        OSError: something cannot be written; nothing is under way.
        Conflict: a file is not what the change begins with; likewise.
    """
    files, state = place.files, place.state
    clear(place)
    folder, file = files.traits(place.folder), files.traits(place.file)
    journal = Journal(
        verb=verb,
        base=base,
        goal="new",
        files=tuple(
            File(place=c.place, old=_blob(c.old), new=_blob(c.new)) for c in changes
        ),
        commits=commits,
    )
    try:
        for side in _SIDES:
            files.make_folder(f"{state}/{side}", folder)
        for index, change in enumerate(changes):
            traits = _traits(place, change, file)
            for side, content in (("new", change.new), ("old", change.old)):
                if content is not None:
                    files.write(f"{state}/{side}/{index:04}", content, traits)
        for side in _SIDES:
            files.settle(f"{state}/{side}")
        check(place, journal)
        journals.save(files, state, journal, file)
    except BaseException:
        clear(place)
        raise
    return journal


def check(place: Place, journal: Journal) -> None:
    """Be sure that every file is known, and that what it becomes is at hand.

    Raises:
        Conflict: a file is neither the old nor the new one.
        BadInput: a staged file is damaged.
    """
    files = place.files
    for index, file in enumerate(journal.files):
        look = files.look(file.place)
        if look.why or look.blob not in (file.old, file.new):
            raise Conflict(
                f"{files.root / file.place} is neither the old nor the new file",
                cause=look.why or f"its blob is {look.blob}",
                next_step="put the file back as it was, and run again",
            )
        blob = journal.blob(file)
        staged = journal.staged(place.state, index)
        if blob not in (look.blob, ZEROS) and files.look(staged).blob != blob:
            raise BadInput(
                f"{files.root / staged} is damaged",
                cause=f"it should have the blob {blob}",
                next_step="run `dspark-patches revert`",
            )


def clear(place: Place) -> None:
    """Remove our own folder; its journal first, which ends the change.

    Raises:
        OSError: it cannot be removed.
        Precondition: it holds something that is not ours.
    """
    files, state = place.files, place.state
    if files.names(state):
        for name in (journals.NAME, journals.BACK, journals.DRAFT):
            files.remove(f"{state}/{name}")
            files.settle(state)
        for side in _SIDES:
            for name in files.names(f"{state}/{side}"):
                files.remove(f"{state}/{side}/{name}")
            files.drop_folder(f"{state}/{side}")
    if not files.drop_folder(state):
        raise Precondition(
            f"{files.root / state} holds something that is not ours",
            next_step="look at it and move it away",
        )


def _traits(place: Place, change: Change, file: Traits) -> Traits:
    if change.old is not None:
        return place.files.traits(change.place)
    # Whoever may read a script may run it.
    run = (file.mode & 0o444) >> 2 if change.executable else 0
    return msgspec.structs.replace(file, mode=file.mode | run)


def _blob(content: bytes | None) -> str:
    return ZEROS if content is None else blob_id(content)
