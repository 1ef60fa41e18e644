"""``apply`` and ``revert``, on whatever the target is."""

from __future__ import annotations

from ..errors import Usage
from ..target.locate import Target
from . import commits, files
from .journal import Verb
from .place import alone
from .plan import Outcome


def change(target: Target, verb: Verb, named: str = "", branch: str = "") -> Outcome:
    """Put the whole series of a target's base in, or take it out.

    Args:
        target: the target.
        verb: what to do.
        named: the base to take it for; found out unless told.
        branch: for a checkout, a new branch to make instead.

    Raises:
        Usage: there is no such base, or no branch can be made here.
        Precondition: the target is not ready; nothing has changed.
        Conflict: a file is in no known state; nothing has changed.
        BadInput: the series, its lock or a journal is broken.
    """
    with alone(target.package):
        if target.kind == "checkout":
            return commits.change(target, verb, named, branch)
        if branch:
            raise Usage(
                f"{target.root} is no checkout",
                cause="only a git checkout has branches",
                next_step="leave --branch out",
            )
        return files.change(target, verb, named)
