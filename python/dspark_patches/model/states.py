"""What a series makes of each file, patch by patch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from .diff import ZEROS, Section, forward
from .series import Series

Content = bytes | None
# Finds a release's file by its path and blob id; None where it is not at hand.
Find = Callable[[str, str], Content]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What one section does to the release's file; None stands for no file.

    ``known`` is false where the release's file is not at hand: wheels do not
    carry all of the repository, and a shallow clone not all of its past.
    """

    section: Section
    known: bool
    before: Content = None
    after: Content = None


Steps = dict[str, tuple[Step, ...]]


def step(section: Section, files: dict[str, Content], find: Find, source: str) -> Step:
    """What a section of ``source`` does; ``files``, as they are by now, follow.

    Raises:
        Conflict: the file is not the one that the section was written for.
    """
    path = section.path
    before = files[path] if path in files else find(path, section.old)
    if before is None and section.old != ZEROS and path not in files:
        return Step(section=section, known=False)
    files[path] = forward(before, section, source)
    return Step(section=section, known=True, before=before, after=files[path])


def steps(series: Series, find: Find) -> Steps:
    """Every patch's steps on the release, by the patch's name.

    Raises:
        Conflict: a file is not what the series was written for.
    """
    files: dict[str, Content] = {}
    return {
        patch.name: tuple(
            step(section, files, find, f"{series.release}/{patch.name}")
            for section in patch.file.sections
        )
        for patch in series.patches
    }


def in_folder(root: Path) -> Find:
    """Find a release's files below ``root``, which holds ``python/sglang``."""

    def find(path: str, blob: str) -> Content:
        file = root / path
        return file.read_bytes() if file.is_file() else None

    return find
