"""A series as far as states need it: which blob each patch makes of which."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from .. import series
from ..bases import Base
from ..diff import Section
from ..series import is_test


class Step(msgspec.Struct, frozen=True):
    """What a patch does to one file: its blob before and after."""

    path: str
    old: str
    new: str


class Outline(msgspec.Struct, frozen=True, kw_only=True):
    """One patch."""

    name: str
    kind: Literal["fix", "test"]
    steps: tuple[Step, ...]


def outlines(base: Base) -> tuple[Outline, ...]:
    """The patches of a base's series, in order.

    Raises:
        Usage: the base has no series.
        BadInput: a mail is broken.
    """
    return tuple(
        _outline(patch.name, map(_step, patch.mail.sections))
        for patch in series.load(base).patches
    )


def _outline(name: str, steps: Iterable[Step]) -> Outline:
    steps = tuple(steps)
    kind = "test" if all(is_test(step.path) for step in steps) else "fix"
    return Outline(name=name, kind=kind, steps=steps)


def _step(section: Section) -> Step:
    return Step(section.path, section.old, section.new)
