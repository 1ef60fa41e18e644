"""A small world to verify in: a fake release, its wheel, a series, a cache."""

from __future__ import annotations

import textwrap
import zipfile
from collections.abc import Mapping
from pathlib import Path

import factories

from dspark_patches.model import diff
from dspark_patches.model.releases import Release

CLOCK = "python/sglang/srt/clock.py"
TEST = "test/registered/unit/test_clock.py"

RELEASED = {
    "python/sglang/__init__.py": b"",
    "python/sglang/srt/__init__.py": b"",
    "python/sglang/test/__init__.py": b"",
    CLOCK: b"def tick(now):\n    return now\n",
}
FIXED_CLOCK = b"def tick(now):\n    return now + 1\n"


def text(source: str) -> bytes:
    """A file from an indented literal."""
    return textwrap.dedent(source).lstrip("\n").encode()


TEST_SOURCE = text("""
    import unittest

    from sglang.srt.clock import tick


    class TestClock(unittest.TestCase):
        def test_tick(self):
            self.assertEqual(tick(1), 2)
    """)


class World:
    """Fake releases on a find-links shelf, and a data root with their series."""

    def __init__(self, root: Path) -> None:
        self.data = root / "data"
        self.shelf = root / "shelf"
        self.cache = root / "cache"
        for folder in (self.data / "patches", self.shelf):
            folder.mkdir(parents=True)
        (self.data / "patches" / "releases.toml").touch()

    def release(
        self, tag: str = "v0.5.16", files: Mapping[str, bytes] = RELEASED
    ) -> Release:
        """Add a release and put its wheel on the shelf."""
        release = factories.make_release(tag)
        with (self.data / "patches" / "releases.toml").open("a") as table:
            table.write(f'["{tag}"]\nversion = "{release.version}"\n')
            table.write(f'wheel = "{release.wheel}"\nrequires_python = ">=3.10"\n')
        make_wheel(self.shelf / release.wheel, release.version, files)
        return release

    def tree(self, name: str, files: Mapping[str, bytes]) -> Path:
        """A tree of its own, made of the released files and these."""
        root = self.data.parent / name
        factories.write_files(root, {**RELEASED, **files})
        return root

    def series(self, release: Release, *patch_files) -> Path:
        """Write the release's series."""
        return factories.write_series(self.data / "patches" / release.tag, *patch_files)

    def control(self, release: Release, name: str, *sections: diff.Section) -> None:
        """Add a control to the release's series."""
        folder = self.data / "patches" / release.tag / "controls"
        folder.mkdir(exist_ok=True)
        body = b"".join(section.text for section in sections)
        (folder / f"{name}.diff").write_bytes(b"Stop the clock.\n\n" + body)


def make_wheel(path: Path, version: str, files: Mapping[str, bytes]) -> None:
    """A wheel that pip accepts, with ``files`` given by repository path."""
    info = f"sglang-{version}.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name.removeprefix("python/"), content)
        archive.writestr(
            f"{info}/METADATA",
            f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n",
        )
        archive.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr(f"{info}/RECORD", "")


def fix_patch_file(*sections: diff.Section, tests: tuple[str, ...] = (TEST,)):
    """A patch that mends the clock and adds its test, unless told otherwise."""
    trailers = (("Upstream-Status", "Pending [not sent]"),)
    trailers += tuple(("Regression-Test", test) for test in tests)
    return factories.make_patch_file(
        *(sections or (mend_clock(), diff.render_add(TEST, TEST_SOURCE))),
        trailers=trailers,
    )


def mend_clock() -> diff.Section:
    return factories.make_edit(CLOCK, RELEASED[CLOCK], FIXED_CLOCK)


def stop_clock() -> diff.Section:
    return factories.make_edit(CLOCK, FIXED_CLOCK, RELEASED[CLOCK])
