"""Which release a tree is nearest to, by the places where patches go."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from ..errors import Failure
from . import releases, series
from .diff import Section, hunks
from .hunks import sides

# With fewer of the places, a tree is too far from a release to be called near.
_FEWEST = 0.5


class Nearness(msgspec.Struct, frozen=True, kw_only=True):
    """How many places that a release's patches edit a tree has."""

    release: str
    found: int
    total: int

    @property
    def near(self) -> bool:
        """Whether that is enough to go by."""
        return self.found >= _FEWEST * self.total > 0


def by_nearness(read: Callable[[str], bytes | None]) -> tuple[Nearness, ...]:
    """Every release with a sound series, the nearest first, the newer of two alike.

    Args:
        read: the tree's file at a path; None for no file.
    """
    found = []
    for release in releases.with_series():
        try:
            loaded = series.load(release)
        except Failure:
            continue
        edits = [s for p in loaded.patches for s in p.file.sections if s.kind == "edit"]
        seen = [there for section in edits for there in _there(section, read)]
        one = Nearness(release=release.tag, found=sum(seen), total=len(seen))
        found.append(one)
    return tuple(
        sorted(reversed(found), key=lambda one: -one.found / max(1, one.total))
    )


def _there(section: Section, read: Callable[[str], bytes | None]) -> Iterable[bool]:
    """Of each hunk, whether its lines stand in the tree, with or without the patch."""
    content = read(section.path) or b""
    for hunk in hunks(section):
        yield any(b"".join(lines) in content for lines in sides(hunk))
