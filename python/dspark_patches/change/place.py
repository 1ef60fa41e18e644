"""Where files are changed: alone, and with failures that say what helps."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ..confined import Confined
from ..errors import Precondition

_MEANING = {
    errno.ENOSPC: ("the disk is full", "free some space and run again"),
    errno.EDQUOT: ("the disk quota is used up", "free some space and run again"),
    errno.EBUSY: ("a file is mounted over", "change it where it is mounted from"),
    errno.EXDEV: (
        "a part of it lies on another file system",
        "install SGLang onto one file system",
    ),
}
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)
_BUSY = (errno.EWOULDBLOCK, errno.EACCES)


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a change happens.

    Attributes:
        files: the target.
        state: the place of our own folder.
        folder: the folder whose traits new folders get.
        file: the file whose traits new files get.
        owns: whether a change may write to a place.
    """

    files: Confined
    state: str
    folder: str
    file: str
    owns: Callable[[str], bool]


@contextmanager
def alone(folder: Path) -> Iterator[None]:
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
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno in _BUSY:
            raise Precondition(
                f"another apply or revert is changing {folder}",
                next_step="run again when it has ended",
            ) from error
        raise Precondition(f"{folder} cannot be locked", cause=str(error)) from error
    try:
        yield
    finally:
        os.close(descriptor)


@contextmanager
def told(root: Path, outcome: str) -> Iterator[None]:
    """Say what a failing system call means, and how things stand then.

    Raises:
        Precondition: in place of an ``OSError``.
    """
    try:
        yield
    except OSError as error:
        number = error.errno or 0
        what, mend = _MEANING.get(number, ("it cannot be written", ""))
        if number in _READ_ONLY:
            what, mend = "you may not write to it", "run as its owner"
        raise Precondition(
            f"{root}: {what}; {outcome}",
            cause=error.strerror or str(error),
            next_step=mend,
        ) from error
