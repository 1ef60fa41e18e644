"""``git am patches/<release>/*.patch``, with git alone.

The checkout is made from the released wheel, which carries no tests: edits to
those are excluded here, and only those.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import black
import isort
import pytest

from dspark_patches.model import lock, releases, series
from dspark_patches.trees import make

EVERY_RELEASE = pytest.mark.parametrize(
    "release", releases.with_series(), ids=lambda release: release.tag
)


def git(root: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=Maintainer", "-c", "user.email=m@example.invalid"]
    return subprocess.run(
        ["git", *identity, *arguments],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    ).stdout


@pytest.fixture
def checkout(release, tmp_path):
    released = make.released(release, lambda message: None)
    for path in lock.load(release).edited:
        source = released.root / path
        if source.is_file():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, tmp_path / path)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", release.tag)
    return tmp_path


@EVERY_RELEASE
def test_applies_and_leaves_what_the_lock_says(release, checkout):
    locked = lock.load(release)
    loaded = series.load(release)
    patch_files = [str(loaded.path(patch)) for patch in loaded.patches]
    outside = [path for path in locked.edited if not series.in_wheels(path)]
    excluded = [f"--exclude={path}" for path in outside]
    git(checkout, "am", "--quiet", *excluded, *patch_files)
    assert git(checkout, "status", "--porcelain") == ""
    subjects = git(checkout, "log", "--reverse", "--format=%s", "HEAD").splitlines()
    assert subjects[1:] == [patch.file.subject for patch in loaded.patches]
    entries = git(checkout, "ls-tree", "-r", "HEAD").splitlines()
    blobs = {
        path: entry.split()[2] for entry, path in (line.split("\t") for line in entries)
    }
    wanted = {
        path: file.result
        for path, file in locked.edited.items()
        if series.in_wheels(path)
    }
    assert wanted.items() <= blobs.items()
    assert locked.added.items() <= blobs.items()


@EVERY_RELEASE
def test_what_it_adds_is_formatted(release):
    loaded = series.load(release)
    patched = make.recipes(loaded, make.released(release).root)[make.PATCHED]
    for path in sorted(series.added_paths(loaded)):
        text = patched[path].decode()
        assert black.format_str(text, mode=black.Mode()) == text, path
        options = {"profile": "black", "known_first_party": ("sglang",)}
        assert isort.check_code(text, show_diff=True, **options), path
