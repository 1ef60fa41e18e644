"""What a series does to a target, file by file, checked against the lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from .. import bases, lock, series
from ..diff import ZEROS
from ..errors import BadInput, Conflict, Precondition
from ..lock import Lock
from ..series import Series
from ..target.status import View
from .patching import backward, forward

Goal = Literal["patched", "released"]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What ``apply`` or ``revert`` did.

    Attributes:
        changed: whether anything changed.
        files: what was replaced, added or removed.
        left_out: files of the series that the target does not carry.
        commits: the commits that were made.
        head: where the branch stands now; empty unless it is a checkout.
        branch: the new branch, or the current one; empty when detached.
        resumed: what became of a change that had been stopped midway.
    """

    verb: Literal["apply", "revert"]
    target: str
    kind: Literal["package", "checkout", "tree"]
    base: str
    changed: bool
    files: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()
    head: str = ""
    branch: str = ""
    resumed: str = ""


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """One file of SGLang before and after; None stands for no file."""

    path: str
    old: bytes | None
    new: bytes | None
    executable: bool


def fitting(view: View) -> tuple[Series, Lock]:
    """The series for a target whose every file is in a known state.

    Raises:
        Precondition: the target is no known base, or has links in the way.
        Conflict: a file is in no known state.
        BadInput: the series and its lock do not agree.
    """
    target = view.target
    if not view.identity.base:
        near = view.identity.near or "BASE"
        raise Precondition(
            f"{target.root} is no release that we know",
            cause=view.identity.how,
            next_step=f"see what fits with `dspark-patches port {near} {target.root}`",
        )
    base = view.identity.base
    strange = view.chain.strange()
    for path, why in strange.items():
        patch = next(p for p in view.outlines for s in p.steps if s.path == path)
        others = f" (and {len(strange) - 1} more files)" if len(strange) > 1 else ""
        raise Conflict(
            f"{base}/{patch.name}.patch does not fit {path}{others}",
            cause=why,
            next_step=f"`dspark-patches port {base} {target.root}` says what would fit",
        )
    for path, why in view.chain.blocked().items():
        raise Precondition(
            f"{target.root / target.place(path)} cannot be replaced",
            cause=f"{why}; what it leads to belongs to somebody else",
            next_step="install SGLang with copies, such as uv's --link-mode=copy",
        )
    loaded = series.load(bases.find(base))
    return loaded, lock.agreed(bases.find(base), loaded)


def edits(
    view: View, loaded: Series, read: Callable[[str], bytes], goal: Goal, locked: Lock
) -> tuple[Edit, ...]:
    """What has to change so that a target is patched, or as released again.

    Args:
        view: the target.
        loaded: the series that :func:`fitting` found for it.
        read: the content of a file that the target has.
        goal: what to reach.
        locked: the series' lock.

    Raises:
        Conflict: a file is not what it was a moment ago.
        BadInput: the result is not the locked one.
    """
    found = []
    every = [section for patch in loaded.patches for section in patch.mail.sections]
    for path in view.chain.paths:
        chain = [section for section in every if section.path == path]
        at = view.chain.position(path, last=goal == "patched")
        steps = chain[at:] if goal == "patched" else chain[:at][::-1]
        if not steps:
            continue
        first = steps[0].old if goal == "patched" else steps[0].new
        content = old = None if first == ZEROS else read(path)
        for section in steps:
            step = forward if goal == "patched" else backward
            content = step(content, section)
        last = steps[-1].new if goal == "patched" else steps[-1].old
        if last != promised(locked, path, goal):
            raise BadInput(
                f"{path} would not be as {view.identity.base}/lock.toml says",
                next_step="run `dspark-patches check`",
            )
        run = steps[0].mode == "100755"
        found.append(Edit(path=path, old=old, new=content, executable=run))
    return tuple(found)


def promised(locked: Lock, path: str, goal: Goal) -> str:
    """The blob that the lock promises for a path; zeros for no file."""
    if goal == "patched":
        return locked.result_blobs().get(path, ZEROS)
    return locked.base_blobs().get(path, ZEROS)
