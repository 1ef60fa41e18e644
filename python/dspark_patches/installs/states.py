"""Which patches are in, told from blob ids along a series' chain.

Every patch takes a file from one known blob to the next. The blob that a
target has says how far along that chain the file is; one that is not in the
chain says nothing, and nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import msgspec

from ..model.diff import ZEROS, Section
from ..model.series import Patch
from .confined import Look

State = Literal["applied", "missing", "not needed", "partly applied", "unclear"]


class PatchState(msgspec.Struct, frozen=True, kw_only=True):
    """One patch on one target.

    Attributes:
        needed: whether the fault that it fixes is there without it.
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
        leftovers: by path, blobs that another release's series may have left
            where this release has no file; they count as none.
    """

    def __init__(
        self,
        patches: Sequence[Patch],
        looks: Mapping[str, Look],
        leftovers: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        self._looks = looks
        self._left = leftovers or {}
        self._steps: list[tuple[Patch, dict[str, int]]] = []
        self.sections: dict[str, list[Section]] = {}
        for patch in patches:
            steps = {}
            for section in patch.file.sections:
                if section.path in looks:
                    known = self.sections.setdefault(section.path, [])
                    known.append(section)
                    steps[section.path] = len(known)
            self._steps.append((patch, steps))

    def strange(self) -> dict[str, str]:
        """Files in no known state, and why."""
        found = {}
        for path in self.sections:
            look = self._looks[path]
            if not self.places(path):
                first = self._blobs(path)[0]
                found[path] = look.why or _strange(look.blob, first)
        return found

    def blocked(self) -> dict[str, str]:
        """Files that must not be replaced, and why."""
        return {p: self._looks[p].why for p in self.sections if self._looks[p].why}

    def places(self, path: str) -> list[int]:
        """How many of the patches that touch a file may be in it; none if strange."""
        blob, blobs = self._looks[path].blob, self._blobs(path)
        if blobs[0] == ZEROS and blob in self._left.get(path, ()):
            blob = blobs[0] if blob not in blobs else blob
        return [n for n, known in enumerate(blobs) if known == blob]

    def blob(self, path: str) -> str:
        """What the target has of a file."""
        return self._looks[path].blob

    def states(self) -> tuple[PatchState, ...]:
        """The state of each patch, in order."""
        strange = self.strange()
        return tuple(self._state(patch, steps, strange) for patch, steps in self._steps)

    def _blobs(self, path: str) -> list[str]:
        sections = self.sections[path]
        return [sections[0].old, *(section.new for section in sections)]

    def _state(
        self, patch: Patch, steps: Mapping[str, int], strange: Mapping[str, str]
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
            return "not needed", ("changes no file that this install has",)
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
        places = self.places(path)
        if not places or places[0] < at <= places[-1]:
            return None
        return places[0] >= at


def _strange(blob: str, first: str) -> str:
    if blob == ZEROS:
        return "it is not there"
    if first == ZEROS:
        return f"another file stands there (blob {blob[:12]})"
    return f"neither as released nor as patched (blob {blob[:12]})"
