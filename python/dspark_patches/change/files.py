"""``apply`` and ``revert`` on files that no repository keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..confined import Confined
from ..diff import ZEROS
from ..lock import Lock
from ..target.locate import Target
from ..target.status import View
from . import journal as journals
from . import record
from .place import Place, told
from .plan import Edit, Outcome, edits, fitting
from .staging import Change, clear
from .transaction import Follow, finish, perform


@contextmanager
def opened(target: Target) -> Iterator[Place]:
    """The target as a place to change."""
    package = target.package.relative_to(target.root).as_posix()
    with Confined(target.root) as files:
        yield Place(
            files=files,
            state=target.state,
            folder=package,
            file=f"{package}/__init__.py",
            owns=target.owns,
        )


def resume(place: Place, verb: journals.Verb, follow: Follow) -> str:
    """End a change that was stopped midway; what was done, or an empty string.

    The same verb goes on with it, the other one takes it back.

    Raises:
        Failure: it cannot be ended; it is as it was.
    """
    with told(place.files.root, "nothing was changed"):
        if not journals.exists(place.files, place.state):
            clear(place)
            return ""
    journal = journals.load(place.files, place.state, place.owns)
    finish(place, journal, journal.verb != verb, follow)
    forward = journal.verb == verb and journal.goal == "new"
    ending = "completed" if forward else "taken back"
    return f"{journal.verb} of {journal.base} had been stopped midway; {ending}"


def change(target: Target, verb: journals.Verb, named: str) -> Outcome:
    """Put a series into files, or take it out.

    Args:
        target: a package or a plain tree; nobody else may be changing it.
        verb: what to do.
        named: the base to take it for; found out unless told.

    Raises:
        Failure: it cannot be done; nothing has changed.
    """
    with opened(target) as place:
        resumed = resume(place, verb, lambda journal: None)
        view = View(target, named)
        loaded, locked = fitting(view)
        goal = "patched" if verb == "apply" else "released"
        read = place.files.read
        found = edits(view, loaded, lambda p: read(target.place(p)), goal, locked)
        changes = to_changes(target, found)
        listed = _listed(target, place, found, locked)
        if found:
            perform(place, (*changes, *listed), verb=verb, base=loaded.base)
    return Outcome(
        verb=verb,
        target=str(target.root),
        kind=target.kind,
        base=loaded.base,
        changed=bool(found or resumed),
        files=tuple(one.place for one in (*changes, *listed)),
        left_out=view.left_out,
        resumed=resumed,
    )


def to_changes(target: Target, found: Sequence[Edit]) -> tuple[Change, ...]:
    """The edits as changes of a target's places."""
    return tuple(
        Change(
            place=target.place(edit.path),
            old=edit.old,
            new=edit.new,
            executable=edit.executable,
        )
        for edit in found
    )


def _listed(
    target: Target, place: Place, found: Sequence[Edit], locked: Lock
) -> tuple[Change, ...]:
    """The change of the installer's list that goes with the edits."""
    if not target.record:
        return ()
    with told(target.root, "nothing was changed"):
        old = place.files.read(target.record)
    # The row of a file that the release has stays, even while a series deletes
    # the file: its place in the list would be lost.
    rows = {
        target.place(edit.path): (edit.old, edit.new)
        for edit in found
        if locked.base_blobs().get(edit.path, ZEROS) == ZEROS
        or None not in (edit.old, edit.new)
    }
    new = record.updated(old, rows)
    return (Change(place=target.record, old=old, new=new),) if new != old else ()
