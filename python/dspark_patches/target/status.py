"""``status``: which base a target is, and which patches it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Literal

import msgspec

from .. import bases, lock
from ..change import journal as journals
from ..confined import Confined, Look
from ..errors import BadInput, Exit
from .identify import identify
from .locate import Target
from .others import not_needed, tag
from .outline import Outline, outlines
from .states import Chain, PatchState

Looker = Callable[[Iterable[str]], Mapping[str, Look]]

_PLAIN = ("applied", "missing", "not needed")


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What was found out about a target.

    Attributes:
        target: its root.
        base: the base's tag; empty when the target is no known base.
        how: what that rests on.
        near: the base to port from when there is none.
        left_out: files of the series that this target does not carry.
        strange: files in no known state, and why.
        interrupted: a change that was stopped midway, if any.
    """

    target: str
    kind: Literal["package", "checkout", "tree"]
    version: str
    base: str
    how: str
    near: str
    patches: tuple[PatchState, ...] = ()
    left_out: tuple[str, ...] = ()
    strange: dict[str, str] = {}
    interrupted: str = ""

    @property
    def lacking(self) -> tuple[PatchState, ...]:
        """The needed patches that are not in, as far as can be told."""
        return tuple(p for p in self.patches if p.needed and p.state != "applied")

    def exit_code(self, require: bool) -> Exit:
        """How to end; ``require`` asks for every needed patch to be in."""
        if not self.base:
            return Exit.PRECONDITION
        told = not self.interrupted and all(p.state in _PLAIN for p in self.patches)
        return Exit.OK if told and not (require and self.lacking) else Exit.FINDINGS


class View:
    """A target seen through the series of the base that it is taken for.

    Args:
        target: the target.
        named: the base to take it for; found out unless told.
        looker: says what stands at paths; looks at the files unless told.

    Raises:
        Usage: there is no base of that name, or it has no series.
        Precondition: the base that was named has no lock.
        BadInput: the series is broken.
    """

    def __init__(
        self, target: Target, named: str = "", looker: Looker | None = None
    ) -> None:
        self.target = target
        self._looker = looker or self._look_at_files
        self._looks: dict[str, Look] = {}
        locks = cache(lock.load)
        self.identity = identify(target.version, self._blobs, locks, self._tag, named)
        self.outlines: tuple[Outline, ...] = ()
        if self.identity.base:
            base = bases.find(self.identity.base)
            self.locked = locks(base)
            self.outlines = outlines(base)
        self.chain = Chain(self.outlines, self.look(self.paths))

    @property
    def paths(self) -> tuple[str, ...]:
        """Every file that the series touches."""
        steps = (step for patch in self.outlines for step in patch.steps)
        return tuple(dict.fromkeys(step.path for step in steps))

    @property
    def left_out(self) -> tuple[str, ...]:
        """Those of them that the target does not carry."""
        return tuple(path for path in self.paths if not self.target.place(path))

    def look(self, paths: Iterable[str]) -> dict[str, Look]:
        """What stands at those of ``paths`` that the target carries."""
        carried = [path for path in paths if self.target.place(path)]
        self._looks |= self._looker([p for p in carried if p not in self._looks])
        return {path: self._looks[path] for path in carried}

    def _look_at_files(self, paths: Iterable[str]) -> dict[str, Look]:
        with Confined(self.target.root) as files:
            return {path: files.look(self.target.place(path)) for path in paths}

    def _blobs(self, paths: Iterable[str]) -> dict[str, str]:
        return {path: look.blob for path, look in self.look(paths).items()}

    def _tag(self) -> str:
        return tag(self.target.root) if self.target.kind == "checkout" else ""


def status(target: Target, named: str = "") -> Status:
    """Find out which patches a target has.

    Args:
        target: the target; it is only read.
        named: the base to take it for; found out unless told.

    Raises:
        Usage: there is no base of that name, or it has no series.
        Precondition: the base that was named has no lock.
        BadInput: the series is broken.
    """
    view = View(target, named)
    base = view.identity.base
    return Status(
        target=str(target.root),
        kind=target.kind,
        version=target.version,
        base=base,
        how=view.identity.how,
        near=view.identity.near,
        patches=(
            (*view.chain.states(), *not_needed(base, view.outlines)) if base else ()
        ),
        left_out=view.left_out,
        strange=view.chain.strange(),
        interrupted=interrupted(target),
    )


def interrupted(target: Target) -> str:
    """What a change that was stopped midway has done; empty when there is none."""
    with Confined(target.root) as files:
        try:
            if not journals.exists(files, target.state):
                return ""
            journal = journals.load(files, target.state, target.owns)
        except (BadInput, OSError) as error:
            return f"a change was stopped midway, and {error}"
        blobs = [(files.look(file.place).blob, file) for file in journal.files]
        done = sum(blob == journal.blob(file) for blob, file in blobs)
    back = ", and was being taken back" if journal.goal == "old" else ""
    return (
        f"{journal.verb} of {journal.base} was stopped midway{back}: "
        f"{done} of {len(journal.files)} files are done"
    )
