"""How far each file of a target is, and so which patches are in, by blob ids.

Every patch takes a file from one known blob to the next. The blob that a
target has says how far along that chain the file is; one that is not in the
chain says nothing, and nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from ..model.diff import ZEROS, Section, backward, forward
from ..model.series import Patch, Series
from .confined import FileState
from .replace import Change

Verb = Literal["apply", "revert"]


class PatchState(msgspec.Struct, frozen=True):
    """One patch on one target."""

    name: str
    kind: Literal["fix", "test"]
    needed: bool  # whether the fault that it fixes is there without it
    state: Literal["applied", "missing", "not needed", "partly applied", "unclear"]
    notes: tuple[str, ...] = ()  # what that rests on, where it is not plain


class File(msgspec.Struct, frozen=True):
    """A file that a series touches, on one target."""

    path: str
    place: str  # below the target's root
    sections: tuple[Section, ...]  # what the patches do to it, in order
    state: FileState  # what the target has
    left: bool = False  # whether another release's series left it: it counts as none

    @property
    def steps(self) -> list[int]:
        """How many of the sections may be in; none where its state is unknown."""
        blobs = [self.sections[0].old, *(section.new for section in self.sections)]
        blob = ZEROS if self.left else self.state.blob
        return [count for count, known in enumerate(blobs) if known == blob]

    @property
    def strange(self) -> str:
        """Why its state is unknown; empty when it is known."""
        if self.steps or self.state.why:
            return "" if self.steps else self.state.why
        if self.state.blob == ZEROS:
            return "it is not there"
        what = "neither as released nor as patched"
        if self.sections[0].old == ZEROS:
            what = "another file stands there"
        return f"{what} (blob {self.state.blob[:12]})"

    def has(self, section: Section) -> bool | None:
        """Whether a section is in; None where it is not known."""
        at, steps = self.sections.index(section), self.steps
        known = steps and not steps[0] <= at < steps[-1]
        return steps[0] > at if known else None

    def goal(self, verb: Verb) -> str:
        """The blob id that a verb leaves."""
        return self.sections[-1].new if verb == "apply" else self.sections[0].old

    def change(self, verb: Verb, read: Callable[[File], bytes]) -> Change:
        """What brings it to the verb's goal; Conflict where it changed meanwhile."""
        now = None if self.state.blob == ZEROS else read(self)
        at = self.steps[0]
        before = after = [None if self.left else now]
        for section in reversed(self.sections[:at]):
            before = [backward(before[0], section), *before]
        for section in self.sections[at:]:
            after = [*after, forward(after[-1], section)]
        return Change(
            place=self.place,
            old=now,
            new=after[-1] if verb == "apply" else before[0],
            known=(*before, *after[1:]),
            executable=self.sections[0].mode == "100755",
        )


def touched(series: Series | None) -> dict[str, list[Section]]:
    """What a series does to each file, in order."""
    touched: dict[str, list[Section]] = {}
    for patch in series.patches if series else ():
        for section in patch.file.sections:
            touched.setdefault(section.path, []).append(section)
    return touched


def patch_state(patch: Patch, files: Mapping[str, File]) -> PatchState:
    """How much of a patch is in the target's files."""
    sections = [s for s in patch.file.sections if s.path in files]
    has = {section.path: files[section.path].has(section) for section in sections}
    state, notes = "partly applied", [f"{p}: without it" for p in has if not has[p]]
    if not has:
        state, notes = "not needed", ["changes no file that this install has"]
    elif None in has.values():
        unknown = [files[path] for path, is_in in has.items() if is_in is None]
        also = "in more than one state"
        state, notes = "unclear", [f"{f.path}: {f.strange or also}" for f in unknown]
    elif len(set(has.values())) == 1:
        state, notes = "applied" if all(has.values()) else "missing", []
    needed = patch.kind == "fix" and bool(has)
    return PatchState(patch.name, patch.kind, needed, state, tuple(notes))
