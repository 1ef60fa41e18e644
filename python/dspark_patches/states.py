"""What a series makes of each file, patch by patch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from .change.patching import forward
from .diff import ZEROS, Section
from .series import Series

# Finds a base's file by its path and blob id; None where it is not at hand.
Find = Callable[[str, str], bytes | None]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What one section does to the base's file; None stands for no file.

    ``known`` is false where the base's file is not at hand: wheels do not
    carry all of the repository, and a shallow clone not all of its past.
    """

    section: Section
    known: bool
    before: bytes | None = None
    after: bytes | None = None


Steps = dict[str, tuple[Step, ...]]


def steps(series: Series, find: Find) -> Steps:
    """Every patch's steps on the base, by the patch's name.

    Args:
        series: the series.
        find: finds the base's files.

    Raises:
        Conflict: a file is not what the series was written for.
    """
    now: dict[str, bytes | None] = {}
    lost: set[str] = set()
    found: Steps = {}
    for patch in series.patches:
        made = []
        for section in patch.mail.sections:
            path = section.path
            if path not in now:
                new = section.old == ZEROS
                now[path] = None if new else find(path, section.old)
                if now[path] is None and not new:
                    lost.add(path)
            if path in lost:
                made.append(Step(section=section, known=False))
                continue
            before, now[path] = now[path], forward(now[path], section)
            made.append(
                Step(section=section, known=True, before=before, after=now[path])
            )
        found[patch.name] = tuple(made)
    return found


def in_folder(root: Path) -> Find:
    """Find a base's files below ``root``, which holds ``python/sglang``."""

    def find(path: str, blob: str) -> bytes | None:
        file = root / path
        return file.read_bytes() if file.is_file() else None

    return find
