"""A series as far as states need it: which blob each patch makes of which.

Mails that are byte for byte the locked ones were read strictly before they
were locked. So the few lines that matter are picked from them, in a tenth of
the time that reading them takes; any other mail is read as ever.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from .. import series
from ..bases import Base, series_dir
from ..diff import Section
from ..errors import Failure
from ..lines import read
from ..lock import Lock
from ..series import is_test

# Within a hunk every line begins with another character. A pattern that begins
# with a newline and plain text is searched for many times faster than one
# that begins with "^".
_SECTION = re.compile(
    rb"\ndiff --git a/(\S+) b/\S+\n(?:(?:new|deleted) file mode \d+\n)?"
    rb"index ([0-9a-f]{40})\.\.([0-9a-f]{40})"
)


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


def outlines(base: Base, locked: Lock) -> tuple[Outline, ...]:
    """The patches of a base's series, in order.

    Raises:
        Usage: the base has no series.
        BadInput: a mail is not the locked one, and broken.
    """
    found = []
    files = sorted(series_dir(base).glob("*.patch"))
    names = [patch.name for patch in locked.patches]
    if names and [path.stem for path in files] == names:
        for path, patch in zip(files, locked.patches):
            data = _read(path)
            if hashlib.sha256(data).hexdigest() != patch.sha256:
                break
            steps = (match.groups() for match in _SECTION.finditer(data))
            found.append(_outline(patch.name, (Step(*map(_text, s)) for s in steps)))
        else:
            return tuple(found)
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


def _text(field: bytes) -> str:
    return field.decode("ascii", "replace")


def _read(path: Path) -> bytes:
    try:
        return read(path, path.name)
    except Failure:
        return b""
