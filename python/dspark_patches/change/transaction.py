"""Several files replaced as one: staged, moved, verified.

Until the journal stands nothing has changed. From then on every file is
either the old or the new one, both lie beside it in full, and the journal
says which of the two everything is going to be. Files are replaced under
their names and never written to: a hard link elsewhere keeps its content.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec

from ..confined import Confined
from ..diff import ZEROS
from ..errors import BadInput, Conflict, Failure, Precondition
from . import journal as journals
from .journal import Commits, Journal
from .place import Place, told
from .staging import Change, check, clear, stage

Follow = Callable[[Journal], None]

_UNCHANGED = "nothing was changed"
_MIDWAY = "it was stopped midway"


def perform(
    place: Place,
    changes: Sequence[Change],
    *,
    verb: journals.Verb,
    base: str,
    commits: Commits | None = None,
    follow: Follow = lambda journal: None,
) -> None:
    """Make the changes: all of them, or none.

    Args:
        place: where.
        changes: the files; each must have its old content now.
        verb: ``apply`` or ``revert``, for whoever finds the journal.
        base: the base, likewise.
        commits: where ``HEAD`` moves, on a checkout.
        follow: called with the journal when all files have reached its goal;
            brings there what else belongs to it.

    Raises:
        Precondition: the target cannot be written; nothing has changed.
        Conflict: a file changed meanwhile; nothing has changed.
    """
    root = place.files.root
    with told(root, _UNCHANGED):
        journal = stage(place, changes, verb=verb, base=base, commits=commits)
        try:
            settle(place, journal, follow)
        except BaseException as failure:
            _take_back(place, journal, follow, failure)
            raise
    with told(root, f"{verb} is done, but {place.state} is left"):
        clear(place)


def finish(place: Place, journal: Journal, back: bool, follow: Follow) -> None:
    """End a change that was stopped midway.

    Args:
        place: where.
        journal: its journal.
        back: whether to take it back rather than to go on.
        follow: as for :func:`perform`.

    Raises:
        Precondition: the target cannot be written.
        Conflict: a file is neither the old nor the new one.
        BadInput: a staged file or the journal is damaged.
    """
    with told(place.files.root, _MIDWAY):
        if back and journal.goal == "new":
            journal = _turn(place, journal)
        settle(place, journal, follow)
        clear(place)


def settle(place: Place, journal: Journal, follow: Follow) -> None:
    """Bring every file to the journal's goal, and verify it.

    Raises:
        Conflict: a file is neither the old nor the new one.
        BadInput: a staged file is damaged.
        OSError: a file cannot be replaced.
    """
    files = place.files
    check(place, journal)
    for index, file in enumerate(journal.files):
        blob = journal.blob(file)
        if files.look(file.place).blob == blob:
            continue
        if blob == ZEROS:
            files.remove(file.place)
        else:
            _make_room(place, file.place)
            files.move(journal.staged(place.state, index), file.place)
    for file in journal.files:
        _drop_bytecode(files, file.place)
        if journal.blob(file) == ZEROS:
            _drop_empty(files, file.place)
    for folder in {file.place.rpartition("/")[0] for file in journal.files}:
        _reach_disk(files, folder)
    for file in journal.files:
        if files.look(file.place).blob != journal.blob(file):
            raise Conflict(f"{files.root / file.place} changed meanwhile")
    follow(journal)


def _take_back(
    place: Place, journal: Journal, follow: Follow, failure: BaseException
) -> None:
    try:
        settle(place, _turn(place, journal), follow)
        clear(place)
    except (OSError, Failure) as second:
        raise Precondition(
            f"{place.files.root}: {_MIDWAY} and could not be taken back",
            cause=f"{failure}; then: {second}",
            next_step="mend that, then run `dspark-patches revert`",
        ) from failure


def _turn(place: Place, journal: Journal) -> Journal:
    """From here on the change is being taken back."""
    back = msgspec.structs.replace(journal, goal="old")
    journals.turn(place.files, place.state)
    if journals.load(place.files, place.state, place.owns) != back:
        raise BadInput(
            f"{place.files.root / place.state} holds journals that differ",
            next_step="look at it and move it away",
        )
    return back


def _make_room(place: Place, path: str) -> None:
    above = path.rpartition("/")[0]
    if above:
        place.files.make_folder(above, place.files.traits(place.folder))


def _drop_bytecode(files: Confined, path: str) -> None:
    """Remove what Python compiled from a file that has changed.

    Before Python trusts what it compiled it compares the file's size and its
    time in seconds, or nothing at all.
    """
    above, _, name = path.rpartition("/")
    stem, _, ending = name.rpartition(".")
    if ending != "py":
        return
    cache = f"{above}/__pycache__" if above else "__pycache__"
    form = re.compile(rf"{re.escape(stem)}\.[\w.-]*pyc(\.[0-9]+)?", re.ASCII)
    for compiled in filter(form.fullmatch, files.names(cache)):
        files.remove(f"{cache}/{compiled}")


def _drop_empty(files: Confined, path: str) -> None:
    """Remove the folders that only held ``path``; no release has empty ones."""
    above = path.rpartition("/")[0]
    while above:
        files.drop_folder(f"{above}/__pycache__")
        if not files.drop_folder(above):
            return
        above = above.rpartition("/")[0]


def _reach_disk(files: Confined, folder: str) -> None:
    """Let a folder's names reach the disk; if it went, those of the one above."""
    while folder:
        try:
            return files.settle(folder)
        except FileNotFoundError:
            folder = folder.rpartition("/")[0]
    files.settle("")
