"""Which patches are in, told from blob ids along a series' chain.

Every patch takes a file from one known blob to the next. The blob that a
target has says how far along that chain the file is; one that is not in the
chain says nothing, and nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from ..confined import Look
from ..diff import ZEROS
from .outline import Outline

State = Literal["applied", "missing", "not needed", "partly applied", "unclear"]


class PatchState(msgspec.Struct, frozen=True, kw_only=True):
    """One patch on one target.

    Attributes:
        needed: whether the fault that it mends is there without it.
        notes: what the state rests on, where that is not plain.
    """

    name: str
    kind: Literal["fix", "test"]
    needed: bool
    state: State
    notes: tuple[str, ...] = ()


class Chain:
    """A series as each file sees it: the blobs that it goes through.

    Args:
        patches: the series.
        looks: what the target has, by path; paths that it does not carry are
            absent and left out.
    """

    def __init__(self, patches: Sequence[Outline], looks: Mapping[str, Look]) -> None:
        self._looks = looks
        self._blobs: dict[str, list[str]] = {}
        self._steps: list[tuple[Outline, dict[str, int]]] = []
        for patch in patches:
            steps = {}
            for step in patch.steps:
                if step.path in looks:
                    blobs = self._blobs.setdefault(step.path, [step.old])
                    blobs.append(step.new)
                    steps[step.path] = len(blobs) - 1
            self._steps.append((patch, steps))

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that the series touches and the target carries."""
        return tuple(self._blobs)

    def strange(self) -> dict[str, str]:
        """Files in no known state, and why."""
        found = {}
        for path, blobs in self._blobs.items():
            look = self._looks[path]
            if look.blob not in blobs:
                found[path] = look.why or _strange(look.blob, blobs[0])
        return found

    def blocked(self) -> dict[str, str]:
        """Files that must not be replaced, and why."""
        looks = ((path, self._looks[path]) for path in self._blobs)
        return {path: look.why for path, look in looks if look.why}

    def position(self, path: str, *, last: bool) -> int:
        """How many of the patches that touch a file are in it.

        Args:
            path: a file in a known state.
            last: which to take, where a blob stands in the chain twice.
        """
        places = self._places(path)
        return places[-1] if last else places[0]

    def states(self) -> tuple[PatchState, ...]:
        """The state of each patch, in order."""
        strange = self.strange()
        return tuple(self._state(patch, steps, strange) for patch, steps in self._steps)

    def _state(
        self, patch: Outline, steps: Mapping[str, int], strange: Mapping[str, str]
    ) -> PatchState:
        state, notes = self._judged(steps, strange)
        return PatchState(
            name=patch.name,
            kind=patch.kind,
            needed=patch.kind == "fix" and bool(steps),
            state=state,
            notes=notes,
        )

    def _judged(
        self, steps: Mapping[str, int], strange: Mapping[str, str]
    ) -> tuple[State, tuple[str, ...]]:
        if not steps:
            return "not needed", ("nothing of it belongs into this target",)
        done = {path: self._done(path, at) for path, at in steps.items()}
        unknown = [path for path, is_in in done.items() if is_in is None]
        if unknown:
            also = "in more than one state"
            return "unclear", tuple(f"{p}: {strange.get(p, also)}" for p in unknown)
        if all(done.values()):
            return "applied", ()
        if not any(done.values()):
            return "missing", ()
        lacking = (path for path, is_in in done.items() if not is_in)
        return "partly applied", tuple(f"{path}: without it" for path in lacking)

    def _done(self, path: str, at: int) -> bool | None:
        """Whether a file has come to step ``at``; None where it is not known."""
        places = self._places(path)
        if not places or places[0] < at <= places[-1]:
            return None
        return places[0] >= at

    def _places(self, path: str) -> list[int]:
        blob = self._looks[path].blob
        return [n for n, known in enumerate(self._blobs[path]) if known == blob]


def _strange(blob: str, first: str) -> str:
    if blob == ZEROS:
        return "it is not there"
    if first == ZEROS:
        return f"another file stands there (blob {blob[:12]})"
    return f"neither as released nor as patched (blob {blob[:12]})"
