"""Expected failures, as data.

Every failure that a user can cause or meet is a :class:`Failure`: it says what
happened, why, and what to run next, and it carries its own exit code. Anything
else that escapes is a bug of ours and ends in :attr:`Exit.BUG`.
"""

from __future__ import annotations

import errno
from enum import IntEnum


class Exit(IntEnum):
    """Process exit codes, one per way to end."""

    OK = 0
    FINDINGS = 1
    USAGE = 2
    PRECONDITION = 3
    CONFLICT = 4
    BUG = 70
    INTERRUPTED = 130


class Failure(Exception):
    """Something the user can understand and mend, by taking the next step."""

    exit_code = Exit.PRECONDITION

    def __init__(self, message: str, *, cause: str = "", next_step: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.cause = cause
        self.next_step = next_step


class Precondition(Failure):
    """The world is not as the verb needs it: dirty tree, no network, old git."""


class Conflict(Failure):
    """A patch does not fit the tree that it was asked to change."""

    exit_code = Exit.CONFLICT


class Usage(Failure):
    """The request itself makes no sense, such as an unknown release."""

    exit_code = Exit.USAGE


class BadInput(Failure):
    """A patch, lock or control that is broken or hostile."""


class Malformed(BadInput):
    """A file that is not in its canonical form; ``line`` 0 is the whole file."""

    def __init__(self, file: str, line: int, what: str, *, cause: str = "") -> None:
        place = f"{file}:{line}" if line else file
        super().__init__(f"{place}: {what}", cause=cause)
        self.file = file
        self.line = line
        self.what = what


def is_disk_full(error: OSError) -> bool:
    """Whether an operation failed for want of space."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)
