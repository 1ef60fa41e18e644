"""An operator's machine: a fake SGLang, installed or checked out, and its series."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import factories
import msgspec
from world import World, text

from dspark_patches.git import Git
from dspark_patches.installs.locate import Target, locate
from dspark_patches.model import lock, patch_file, releases, series
from dspark_patches.model.releases import Release
from dspark_patches.trees import workshop

ROUTER = "python/sglang/srt/router.py"
EAGLE = "python/sglang/srt/eagle.py"
DFLASH = "python/sglang/srt/dflash.py"
HANDOFF = "python/sglang/srt/handoff.py"
KIT = "python/sglang/test/kits/kit.py"
GUARD = "test/registered/unit/test_guard.py"
TEST = "test/registered/unit/test_clock.py"
RECORD = "sglang-0.5.16.dist-info/RECORD"

RELEASED = {
    "python/sglang/__init__.py": b"",
    "python/sglang/srt/__init__.py": b"",
    "python/sglang/test/__init__.py": b"",
    ROUTER: text('''
        """Routes a batch to its algorithm."""

        from sglang.srt import dflash, eagle


        class Batch:
            def __init__(self, algorithm):
                self.algorithm = algorithm
                self.clock = 0
                self.evicted = 0

            def evict(self):
                self.evicted += 1


        def route(batch):
            """Prepare one iteration."""
            if batch.algorithm == "dflash":
                return dflash.prepare(batch)
            return eagle.prepare(batch)


        def idle(batch):
            return None
        '''),
    EAGLE: text('''
        """The EAGLE path."""


        def prepare(batch):
            batch.evict()
            lengths = [batch.algorithm]
            needed = len(lengths)
            batch.clock += 1
            return needed
        '''),
    DFLASH: text('''
        """The DFLASH path."""


        def prepare(batch):
            reserved = 2
            return reserved
        '''),
}
CHECKED_OUT = RELEASED | {GUARD: b"OWNER = 'eagle'\n", "README.md": b"SGLang\n"}

_OWNED = {
    ROUTER: RELEASED[ROUTER].replace(
        b'"""Prepare one iteration."""\n',
        b'"""Prepare one iteration."""\n    batch.evict()\n    batch.clock += 1\n',
    ),
    EAGLE: RELEASED[EAGLE]
    .replace(b"    batch.evict()\n", b"")
    .replace(b"    batch.clock += 1\n", b""),
    GUARD: b"OWNER = 'router'\n",
    TEST: text("""
        import unittest

        from sglang.srt import router
        from sglang.test.kits.kit import ALGORITHMS


        class TestClock(unittest.TestCase):
            def test_ticks(self):
                for algorithm in ALGORITHMS:
                    batch = router.Batch(algorithm)
                    router.route(batch)
                    self.assertEqual((batch.clock, batch.evicted), (1, 1), algorithm)
        """),
}
# The state of the repository after each patch, from none to all.
STEPS = (
    {},
    {KIT: b"ALGORITHMS = ['eagle', 'dflash']\n"},
    _OWNED,
    {
        HANDOFF: b"def build(batch):\n    return batch.algorithm\n",
        # It edits a line of the second patch again.
        ROUTER: _OWNED[ROUTER]
        .replace(b"    batch.clock += 1\n", b"    batch.clock += 1  # Once.\n")
        .replace(
            b"def idle(batch):\n    return None\n",
            b"def idle(batch):\n    return batch.evicted\n",
        ),
    },
)
SUBJECTS = ("Add a kit", "Give the clock one owner", "Hand a batch over")
SLUGS = ("add-a-kit", "give-the-clock-one-owner", "hand-a-batch-over")
# What a later release did by itself, in another place.
LATER = RELEASED | {
    DFLASH: RELEASED[DFLASH].replace(
        b"    reserved = 2\n",
        b"    batch.evict()\n    reserved = 2\n    batch.clock += 1\n",
    ),
}


def state(count: int) -> dict[str, bytes]:
    """A checkout's files with the first ``count`` patches."""
    files = dict(CHECKED_OUT)
    for step in STEPS[: count + 1]:
        files |= step
    return files


def carried(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Those of ``files`` that an installed package has, by their place."""
    start = "python/sglang/"
    return {p[len("python/") :]: c for p, c in files.items() if p.startswith(start)}


class Machine:
    """Releases with their series and locks, and what is made of them.

    v0.5.16 has three patches: a test kit, a fix and another; v0.5.17 has the
    test kit only, since its release mends the clock itself.
    """

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self.folder = folder
        self.release = world.release("v0.5.16", RELEASED)
        self.later = world.release("v0.5.17", LATER)
        self.patch_files, later = _all_patch_files()
        self.write(self.release, self.patch_files, RELEASED)
        self.write(self.later, later, LATER)

    def write(
        self,
        release: Release,
        patch_files: tuple[patch_file.PatchFile, ...],
        files: Mapping[str, bytes],
    ) -> None:
        """Let these patches be the series of a release, and lock it."""
        folder = releases.series_dir(release)
        folder.mkdir(parents=True, exist_ok=True)
        for number, (value, slug) in enumerate(zip(patch_files, SLUGS), 1):
            (folder / f"{number:04}-{slug}.patch").write_bytes(patch_file.render(value))
        self.lock(release, files)

    def lock(self, release: Release, files: Mapping[str, bytes]) -> None:
        loaded = series.load(release)
        tree = self.folder / f"released-{release.tag}"
        factories.write_files(tree, files)
        found = lock.carried_blobs(loaded, tree)
        wheel = (self.world.shelf / release.wheel).read_bytes()
        built = lock.build(release, loaded, hashlib.sha256(wheel).hexdigest(), found)
        lock.path_of(release).write_bytes(lock.render(built))

    def site(
        self, files: Mapping[str, bytes] = RELEASED, version: str = "0.5.16"
    ) -> Path:
        """A site-packages folder as pip writes it."""
        root = self.folder / "site-packages"
        info = f"sglang-{version}.dist-info"
        placed = carried(files) | {
            f"{info}/METADATA": f"Name: sglang\nVersion: {version}\n".encode(),
            f"{info}/INSTALLER": b"pip\n",
        }
        rows = [f"{info}/RECORD,,", "sglang/__pycache__/__init__.cpython-310.pyc,,"]
        for place, content in placed.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
            hashed = digest.decode().rstrip("=")
            rows.append(f"{place},sha256={hashed},{len(content)}")
        record = "".join(f"{row}\r\n" for row in sorted(rows)).encode()
        factories.write_files(root, placed | {f"{info}/RECORD": record})
        return root

    def package(self, files: Mapping[str, bytes] = RELEASED) -> Target:
        """An installed package."""
        return locate(self.site(files))

    def checkout(self, files: Mapping[str, bytes] = CHECKED_OUT) -> Git:
        """A git checkout whose one commit holds ``files``."""
        return factories.make_repository(self.folder / "checkout", files)

    def tree(self, files: Mapping[str, bytes] = CHECKED_OUT) -> Path:
        """A plain tree."""
        root = self.folder / "tree"
        factories.write_files(root, files)
        return root


def environment(home: Path) -> Path:
    """Make a virtual environment without anything; its site-packages folder."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = home / "lib" / version / "site-packages"
    site.mkdir(parents=True)
    (home / "bin").mkdir()
    (home / "bin" / "python").symlink_to(sys.executable)
    (home / "pyvenv.cfg").write_text(f"home = {Path(sys.base_prefix) / 'bin'}\n")
    return site


def uninstall(home: Path) -> None:
    """Let pip itself take sglang out of an environment."""
    python = str(home / "bin" / "python")
    command = [sys.executable, "-m", "pip", "--python", python, "uninstall", "-qy"]
    subprocess.run([*command, "sglang"], check=True)


def contents(root: Path) -> dict[str, bytes]:
    """Every file below a folder, git's own aside."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".git" not in path.relative_to(root).parts
    }


@cache
def _all_patch_files() -> (
    tuple[tuple[patch_file.PatchFile, ...], tuple[patch_file.PatchFile, ...]]
):
    """The two series; git takes a while to write them."""
    steps = enumerate(SUBJECTS)
    patch_files = tuple(
        patch_file_of(state(n), state(n + 1), subject) for n, subject in steps
    )
    return patch_files, (patch_file_of(LATER, LATER | STEPS[1], SUBJECTS[0]),)


def patch_file_of(
    before: Mapping[str, bytes], after: Mapping[str, bytes], subject: str
) -> patch_file.PatchFile:
    """The patch that git writes for the difference of two states."""
    trailers = (("Upstream-Status", "Pending [not sent]"),)
    if TEST in after and TEST not in before:
        trailers += (("Regression-Test", f"{TEST}::TestClock"),)
    value = factories.make_patch_file(subject=subject, trailers=trailers)
    with workshop.bare() as shop:
        start = shop.start(before, dict.fromkeys(before, "100644"), "before")
        for path, content in after.items():
            shop.put(path, "100644", content)
        made = patch_file.parse(shop.format(shop.commit(start, value)))
    return msgspec.structs.replace(value, sections=made.sections)
