"""Work copies of a released tree, with parts of a series applied.

Every file is compared with the blob id that the diff was written against
before git sees it, and with the promised one afterwards: nothing is left for
fuzz, for offsets or for a second application.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from . import lock, wheels
from .bases import Base
from .diff import ZEROS, Section, blob_id
from .errors import Conflict, Precondition
from .git import Git, GitError
from .wheels import Released

# What a wheel carries of SGLang's repository; the rest is only in a checkout.
_CARRIED = "python/"


def released(
    base: Base, notify: Callable[[str], None] = lambda message: None
) -> Released:
    """The base's released tree, its touched files verified against the lock.

    A base that has no lock yet is taken as its wheel is.

    Raises:
        Precondition: the wheel cannot be had, or the files are not the locked
            ones.
        BadInput: the wheel or the lock is broken.
    """
    if not lock.path_of(base).exists():
        return wheels.obtain(base, notify=notify)
    locked = lock.load(base)
    found = wheels.obtain(base, locked.wheel.sha256, notify)
    wheels.verify_files(found, locked.base_blobs(in_wheel=True))
    return found


def copy(released: Released, root: Path) -> None:
    """Copy a released tree's package to ``root``.

    A real copy: with hard links a test that writes to a file in place would
    change the cache as well, and copying takes well below a second.

    Raises:
        Precondition: the copy cannot be written.
    """
    try:
        shutil.copytree(released.root / "python", root / "python")
    except (OSError, shutil.Error) as error:
        raise Precondition(
            f"{released.root} cannot be copied to {root}",
            cause=str(error),
            next_step="free some space, or set TMPDIR to another folder",
        ) from error


def apply(root: Path, sections: Iterable[Section], source: str) -> tuple[str, ...]:
    """Apply one diff to the tree at ``root``, all of it or nothing.

    Args:
        root: a tree of ours, as :func:`copy` makes it.
        sections: the diff.
        source: the patch or control that it comes from, for errors.

    Returns:
        The files that the diff edits and that no wheel carries; their
        sections were left out.

    Raises:
        Conflict: a file is not the one that the diff was written for.
    """
    taken, left_out = [], []
    for section in sections:
        found = _blob(root / section.path)
        if found == section.old:
            taken.append(section)
        elif found == ZEROS and not section.path.startswith(_CARRIED):
            left_out.append(section.path)
        else:
            raise Conflict(
                f"{source} does not fit {section.path}",
                cause=_difference(found, section.old),
                next_step="run `dspark-patches check`",
            )
    if taken:
        _git_apply(root, taken, source)
    return tuple(left_out)


def _git_apply(root: Path, sections: list[Section], source: str) -> None:
    # Below a repository git would resolve paths against that repository's
    # root and skip, without a word, whatever lies outside of this folder.
    git = Git(root, {"GIT_CEILING_DIRECTORIES": str(root.resolve().parent)})
    text = b"".join(section.text for section in sections)
    try:
        git.run("apply", "--whitespace=nowarn", "-", stdin=text)
    except GitError as error:
        if os.strerror(errno.ENOSPC) in error.stderr:
            raise OSError(errno.ENOSPC, error.stderr) from error
        raise Conflict(f"{source} does not apply", cause=error.stderr) from error
    for section in sections:
        found = _blob(root / section.path)
        if found != section.new:
            raise Conflict(
                f"{source} left {section.path} other than it promises",
                cause=_difference(found, section.new),
            )


def _blob(path: Path) -> str:
    """The blob id of a file; zeros, as in a diff, where there is none."""
    try:
        return blob_id(path.read_bytes())
    except FileNotFoundError:
        return ZEROS


def _difference(found: str, expected: str) -> str:
    names = {ZEROS: "no file"}
    was = names.get(found, f"blob {found}")
    return f"there is {was}; expected {names.get(expected, f'blob {expected}')}"
