"""What ``port`` says of each patch, and of a whole series."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from ..model import patch_file as patch_files
from ..model.diff import Section
from ..model.series import Patch
from ..model.states import Content
from .section import Verdict

GOOD = (Verdict.CLEAN, Verdict.MOVED)
HELPED = (*GOOD, Verdict.UPSTREAMED, Verdict.DONE_ELSEWHERE)


class PatchVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What one patch would do.

    Attributes:
        release: the release that the patch is taken from.
        sections: the patch against the fork's files; right when it fits.
        tests: what its tests said on the merged tree; empty when they did not run.
    """

    patch: Patch
    release: str
    verdict: Verdict
    evidence: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()
    tests: str = ""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Which patches to judge, by number.

    Attributes:
        only: these alone; empty for all.
        skip: not these.
        taken: the release to take a patch from, where it is not the first that fits.
    """

    only: frozenset[int] = frozenset()
    skip: frozenset[int] = frozenset()
    taken: Mapping[int, str] = {}

    def has(self, number: int) -> bool:
        """Whether a patch is to be judged."""
        return number not in self.skip and (not self.only or number in self.only)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What the series would do on a target.

    Attributes:
        release: the nearest release.
        how: why that one.
        left_out: files of the patches that the target does not carry.
        uncommitted: files that were judged without changes that no commit holds.
        merged: the target's files with the patches that fit; None for no file.
        tests: the same, of the tests that the target does not carry.
    """

    release: str
    how: str
    target: str
    patches: tuple[PatchVerdict, ...]
    left_out: tuple[str, ...]
    uncommitted: tuple[str, ...]
    merged: dict[str, Content]
    tests: dict[str, Content]
    tested: bool = False

    @property
    def fitting(self) -> tuple[PatchVerdict, ...]:
        """The patches that can be written."""
        return tuple(one for one in self.patches if one.verdict in GOOD)

    @property
    def good(self) -> bool:
        """Whether every patch fits, is in already or is not needed."""
        return all(one.verdict in HELPED for one in self.patches)

    def patch_files(self) -> dict[str, bytes]:
        """The patches that fit, by file stem."""
        return {
            one.patch.name: patch_files.render(
                msgspec.structs.replace(one.patch.file, sections=one.sections)
            )
            for one in self.fitting
        }


def chosen(numbers: Collection[str]) -> frozenset[int]:
    """Patch numbers as a user writes them: ``3``, ``0003`` or ``0003-a-slug``."""
    return frozenset(int(text.partition("-")[0]) for text in numbers)
