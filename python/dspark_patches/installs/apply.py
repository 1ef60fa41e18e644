"""``apply`` and ``revert``: a series put in or taken out, all of it or nothing.

The blob ids say of every file how far it is, so that there is no other state:
the same verb again finishes what was interrupted, the other one takes it back.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..errors import Precondition, Usage
from . import commits, plan, record
from .confined import Confined
from .find import PACKAGE
from .locate import Target
from .plan import Outcome, Verb
from .replace import Change, replace, told
from .status import View

_BUSY = (errno.EWOULDBLOCK, errno.EACCES)


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
    with _alone(target.package):
        if commit:
            return commits.change(target, verb, named, branch)
        return _change_files(target, verb, named)


def _change_files(target: Target, verb: Verb, named: str) -> Outcome:
    view = View(target, named)
    loaded = plan.fitting(view)
    with Confined(target.root) as root:
        files = plan.files(view, view.chain, lambda p: root.read(target.place(p)))
        changes = [file.change(verb) for file in files]
        # Its rows come first and go last, so that an uninstall finds every
        # file in it at any moment.
        listed = _listed(target, root, verb, files)
        changes = [*listed, *changes] if verb == "apply" else [*changes, *listed]
        done = replace(root, target, changes)
    return Outcome(
        verb=verb,
        target=str(target.root),
        kind=target.kind,
        release=loaded.release,
        changed=bool(done),
        files=done,
        left_out=view.left_out,
    )


def _listed(
    target: Target, root: Confined, verb: Verb, files: Sequence[plan.File]
) -> list[Change]:
    """The change of the installer's list that goes with the files."""
    if not target.record:
        return []
    with told(target.root):
        old = root.read(target.record)
    rows = {file.place: file.contents for file in files}
    new = record.updated(old, rows, patched=verb == "apply")
    # What an uninstall leaves beside it would pass for another installation.
    return [Change(place=target.record, old=old, new=new, aside=PACKAGE)]


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Be the only one to change what lies in ``folder``.

    The folder itself is locked, so that no lock file is left behind.

    Raises:
        Precondition: another process is changing it, or it cannot be locked.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise Precondition(f"{folder} cannot be opened", cause=str(error)) from error
    try:
        _lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _BUSY:
            raise Precondition(
                f"another apply or revert is changing {folder}",
                next_step="run again when it has ended",
            ) from error
        raise Precondition(f"{folder} cannot be locked", cause=str(error)) from error
