"""A clone whose one series is sound, and ways to spoil it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from factories import (
    REFERENCES,
    make_edit,
    make_patch_file,
    make_release,
    write_files,
    write_series,
)

from dspark_patches.findings import Finding
from dspark_patches.maintain import check
from dspark_patches.model import diff, lock, patch_file, series

RELEASE = make_release()
CLOCK = "python/sglang/srt/clock.py"
KIT = "python/sglang/test/kits/clock_kit.py"
TEST = "test/registered/unit/spec/test_clock.py"
FIRST = "patches/v0.5.16/0001-patch.patch"
FIX = "patches/v0.5.16/0002-patch.patch"
LOCK = "patches/v0.5.16/lock.toml"
TABLE = "patches/references.toml"
TEST_SOURCE = b'''\
"""The clock."""

import unittest

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.kits.clock_kit import Shared
from sglang.test.test_utils import CustomTestCase

register_cpu_ci(est_time=4, suite="base-a-test-cpu")


class Ticks:
    def test_ticks(self):
        self.assertTrue(True)


class TestClock(Ticks, CustomTestCase):
    def test_evicts(self):
        self.assertTrue(True)


class TestShared(Shared, CustomTestCase):
    pass


if __name__ == "__main__":
    unittest.main()
'''
STATUS = ("Upstream-Status", "Pending [not sent]")
FIXES = ("Fixes", "sgl-project/sglang#1")
REFS = ("Refs", "sgl-project/sglang#2")
RUNS = ("Regression-Test", f"{TEST}::TestClock")
CONTROL = b"Ticks twice.\n\n" + make_edit(CLOCK, b"tick\n", b"tick tick\n").text


class Sound:
    """A clone with a sound series: a patch of tests with its control, a fix."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "patches" / RELEASE.tag
        self.first = make_patch_file(
            diff.render_add(KIT, b"kit = 1\n"),
            diff.render_add(TEST, TEST_SOURCE),
            trailers=(STATUS, RUNS),
        )
        self.fix = make_patch_file(
            make_edit(CLOCK, b"tick\n", b"tick once\n"), trailers=(STATUS, FIXES, RUNS)
        )
        write_files(root, {KIT: b"kit = 1\n", TEST: TEST_SOURCE, TABLE: REFERENCES})
        self.write(self.first, self.fix)
        write_files(self.folder, {"controls/0001-twice.diff": CONTROL})
        self.lock()

    def write(self, *patch_files: patch_file.PatchFile) -> None:
        write_series(self.folder, *patch_files)

    def lock(self) -> None:
        carried = {CLOCK: diff.blob_id(b"tick\n")}
        built = lock.build(
            RELEASE, series.load(RELEASE, self.folder), "ab" * 32, carried
        )
        lock.path_of(RELEASE, self.folder).write_bytes(lock.render(built))

    def check(self, whole: bool = True) -> tuple[Finding, ...]:
        return check.check([RELEASE], self.root, whole=whole)

    def said(self) -> list[str]:
        return [f"{f.file}:{f.line}: {f.what}" for f in self.check()]


def with_fix(**changes) -> Callable[[Sound], None]:
    def change(clone: Sound) -> None:
        kept = {"trailers": clone.fix.trailers} | changes
        clone.write(clone.first, make_patch_file(*clone.fix.sections, **kept))
        clone.lock()

    return change


def with_first(*trailers: tuple[str, str]) -> Callable[[Sound], None]:
    def change(clone: Sound) -> None:
        clone.write(
            make_patch_file(*clone.first.sections, trailers=trailers), clone.fix
        )
        clone.lock()

    return change


def with_tests(*selectors: str) -> Callable[[Sound], None]:
    named = tuple(("Regression-Test", selector) for selector in selectors)
    return with_fix(trailers=(STATUS, FIXES, *named))


def with_clock(new: bytes) -> Callable[[Sound], None]:
    def change(clone: Sound) -> None:
        edit = make_edit(CLOCK, b"tick\n", new)
        clone.write(clone.first, make_patch_file(edit, trailers=clone.fix.trailers))
        clone.lock()

    return change


def with_source(source: bytes, path: str = TEST) -> Callable[[Sound], None]:
    def change(clone: Sound) -> None:
        files = {KIT: b"kit = 1\n", TEST: TEST_SOURCE} | {path: source}
        sections = (diff.render_add(p, content) for p, content in sorted(files.items()))
        clone.write(
            make_patch_file(*sections, trailers=clone.first.trailers), clone.fix
        )
        write_files(clone.root, files)
        clone.lock()

    return change
