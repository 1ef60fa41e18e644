"""``apply`` and ``revert``: a series put in or taken out, all of it or nothing.

The blob ids say of every file how far it is, so that there is no other state:
the same verb again finishes what was interrupted, the other one takes it back.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from ..errors import Conflict, Precondition, Usage
from ..model import lock, releases
from ..model.releases import Fork
from ..model.series import Series
from . import record
from .commits import Commits
from .confined import Confined
from .locate import PACKAGE, Kind, Target
from .replace import Change, replace, told
from .repository import Repository
from .states import Verb
from .status import Status

COPIES = "install SGLang with copies, such as uv's --link-mode=copy"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What ``apply`` or ``revert`` did."""

    verb: Verb
    target: str
    kind: Kind
    release: str
    changed: bool
    files: tuple[str, ...] = ()  # what was replaced, added or removed
    left_out: tuple[str, ...] = ()  # what of the series the target does not carry
    commits: tuple[str, ...] = ()
    head: str = ""  # where the branch stands now; empty unless commits are kept
    branch: str = ""  # empty when HEAD is detached
    aside: bool = False  # whether that is a new branch, and nothing else was touched


def change(
    target: Target, verb: Verb, named: str = "", branch: str = "", commit: bool = True
) -> Outcome:
    """Put the whole series of a target's release in, or take it out.

    The release is found out unless it is ``named``. A checkout gets commits, if told
    on a new branch and nothing else, unless ``commit`` is false.

    Raises:
        Usage: there is no such release, or no branch can be made here.
        Precondition: the target is not ready; nothing has changed.
        Conflict: a file is in no known state; nothing has changed.
        BadInput: the series or its lock is broken.
    """
    commit = commit and target.kind == "checkout"
    if branch and not commit:
        why = "only a git checkout that gets commits has branches"
        what = f"{target.root} gets no branch"
        raise Usage(what, cause=why, next_step="leave --branch out")
    with _alone(target.package), Confined(target.root) as root:
        repository = Repository(target.root) if commit else None
        status = Status(target, named, repository.states if repository else None)
        series = _check(status)
        more: dict[str, Any] = {}
        if repository:
            job = Commits(repository, series, status, verb)
            more = {"commits": job.made, "head": job.head, "aside": bool(branch)}
            files = () if branch else job.move(root)
            moved = job.head != repository.head
            changed = repository.create_branch(branch, job.head) if branch else moved
            more["branch"] = branch or repository.branch
        else:
            files, changed = _change_files(root, status, verb), False
    return Outcome(
        verb=verb,
        target=str(target.root),
        kind=target.kind,
        release=status.release,
        changed=changed or bool(files),
        files=files,
        left_out=status.left_out,
        **more,
    )


def _check(status: Status) -> Series:
    """The series, for a target whose every file is in a known state."""
    root, hint = status.target.root, status.remedy
    if not status.series:
        what = f"{root} is no release that we know"
        raise Precondition(what, cause=status.how, next_step=hint)
    others = len(status.strange) - 1
    for path, why in status.strange.items():
        more = f" (and {others} more files)" if others else ""
        what = f"the series of {status.release} does not fit {path}{more}"
        raise Conflict(what, cause=why, next_step=hint)
    for path, why in status.blocked.items():
        what = f"{root / status.files[path].place} cannot be replaced"
        why += "; what it leads to belongs to somebody else"
        raise Precondition(what, cause=why, next_step=COPIES)
    release = releases.named(status.release)
    if not isinstance(release, Fork):
        lock.agreed(release, status.series)
    return status.series


def _change_files(root: Confined, status: Status, verb: Verb) -> tuple[str, ...]:
    listed = status.target.record
    with told(root.root):
        files = status.files.values()
        changes = [f.change(verb, lambda f: root.read(f.place)) for f in files]
        if listed:
            old = root.read(listed)
            rows = {one.place: one.known for one in changes}
            new = record.updated(old, rows, patched=verb == "apply")
            # What an uninstall leaves beside it would pass for another installation.
            row = Change(place=listed, old=old, new=new, aside=PACKAGE)
            # Its rows come first and go last, so that an uninstall finds every
            # file in it at any moment.
            changes.insert(0 if verb == "apply" else len(changes), row)
    return replace(root, status.target, changes)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Be the only one to change what lies in ``folder``.

    The folder itself is locked, so that no lock file is left behind.
    """
    with ExitStack() as stack:
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            what = f"another apply or revert is changing {folder}"
            raise Precondition(what, next_step="run again when it has ended") from error
        except OSError as error:
            raise Precondition(
                f"{folder} cannot be locked", cause=str(error)
            ) from error
        yield
