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

import msgspec

from ..errors import Conflict, Precondition, Usage
from ..model import lock, releases
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
    """What ``apply`` or ``revert`` did.

    Attributes:
        changed: whether anything changed.
        files: what was replaced, added or removed.
        left_out: files of the series that the target does not carry.
        commits: the commits that were made.
        head: where the branch stands now; empty unless commits are kept.
        branch: the branch; empty when HEAD is detached.
        aside: whether that is a new branch, and nothing else was touched.
    """

    verb: Verb
    target: str
    kind: Kind
    release: str
    changed: bool
    files: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()
    head: str = ""
    branch: str = ""
    aside: bool = False


def change(
    target: Target, verb: Verb, named: str = "", branch: str = "", commit: bool = True
) -> Outcome:
    """Put the whole series of a target's release in, or take it out.

    Args:
        target: the target.
        verb: what to do.
        named: the release to take it for; found out unless told.
        branch: for a checkout, a new branch to make instead.
        commit: for a checkout, whether to make commits.

    Raises:
        Usage: there is no such release, or no branch can be made here.
        Precondition: the target is not ready; nothing has changed.
        Conflict: a file is in no known state; nothing has changed.
        BadInput: the series or its lock is broken.
    """
    commit = commit and target.kind == "checkout"
    if branch and not commit:
        raise Usage(
            f"{target.root} gets no branch",
            cause="only a git checkout that gets commits has branches",
            next_step="leave --branch out",
        )
    with _alone(target.package), Confined(target.root) as root:
        repository = Repository(target.root) if commit else None
        status = Status(target, named, repository.states if repository else None)
        _check(status)
        if repository:
            return _commit(root, Commits(repository, status, verb), branch)
        return _change_files(root, status, verb)


def _check(status: Status) -> None:
    """Let a target pass whose every file is in a known state."""
    root, found = status.target.root, status.release
    if not status.loaded:
        near = status.near or "RELEASE"
        raise Precondition(
            f"{root} is no release that we know",
            cause=status.how,
            next_step=f"see what fits with `dspark-patches port {near} {root}`",
        )
    release, strange = releases.find(found), status.strange
    for path, why in strange.items():
        more = f" (and {len(strange) - 1} more files)" if len(strange) > 1 else ""
        hint = f"`dspark-patches port {found} {root}` says what would fit"
        if status.target.kind == "package":
            again = f"reinstall sglang=={release.version}"
            hint = f"if it was edited, {again}; else {hint}"
        what = f"the series of {found} does not fit {path}{more}"
        raise Conflict(what, cause=why, next_step=hint)
    for path, why in status.blocked.items():
        raise Precondition(
            f"{root / status.files[path].place} cannot be replaced",
            cause=f"{why}; what it leads to belongs to somebody else",
            next_step=COPIES,
        )
    lock.agreed(release, status.loaded)


def _change_files(root: Confined, status: Status, verb: Verb) -> Outcome:
    target = status.target
    with told(target.root):
        files = status.files.values()
        changes = [f.change(verb, lambda f: root.read(f.place)) for f in files]
        if target.record:
            old = root.read(target.record)
            rows = {one.place: one.known for one in changes}
            new = record.updated(old, rows, patched=verb == "apply")
            # What an uninstall leaves beside it would pass for another installation.
            row = Change(place=target.record, old=old, new=new, aside=PACKAGE)
            # Its rows come first and go last, so that an uninstall finds every
            # file in it at any moment.
            changes.insert(0 if verb == "apply" else len(changes), row)
    done = replace(root, target, changes)
    return Outcome(
        verb=verb,
        target=str(target.root),
        kind=target.kind,
        release=status.release,
        changed=bool(done),
        files=done,
        left_out=status.left_out,
    )


def _commit(root: Confined, job: Commits, branch: str) -> Outcome:
    repository = job.repository
    files = () if branch else job.move(root)
    if branch:
        changed = repository.create_branch(branch, job.head)
    else:
        changed = bool(files) or job.head != repository.head
    return Outcome(
        verb=job.verb,
        target=str(root.root),
        kind=job.status.target.kind,
        release=job.status.release,
        changed=changed,
        files=files,
        commits=job.made,
        head=job.head,
        branch=branch or repository.branch,
        aside=bool(branch),
    )


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Be the only one to change what lies in ``folder``.

    The folder itself is locked, so that no lock file is left behind.

    Raises:
        Precondition: another process is changing it, or it cannot be locked.
    """
    with ExitStack() as stack:
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Precondition(
                f"another apply or revert is changing {folder}",
                next_step="run again when it has ended",
            ) from error
        except OSError as error:
            raise Precondition(
                f"{folder} cannot be locked", cause=str(error)
            ) from error
        yield
