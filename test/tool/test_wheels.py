"""A release's files: downloaded once, held to its hash, whole or absent."""

from __future__ import annotations

import errno
import hashlib
import re
import subprocess
import sys
from pathlib import Path

import factories
import pytest
from world import CLOCK, RELEASED

from dspark_patches.errors import BadInput, Precondition
from dspark_patches.model import releases
from dspark_patches.model.diff import blob_id
from dspark_patches.trees import wheels


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def left_behind(world) -> list[str]:
    """What lies in the cache for any release."""
    return sorted(path.name for path in world.cache.glob("releases/*/*"))


def forbidden(*args, **kwargs):
    raise AssertionError("a process was started")


def test_a_wheel_becomes_a_tree_once(world, monkeypatch):
    release = world.release()
    released = wheels.obtain(release)
    for path, content in RELEASED.items():
        assert (released.root / path).read_bytes() == content
    assert released.sha256 == sha256(world.shelf / release.wheel)
    assert left_behind(world) == [released.sha256[:16]]
    monkeypatch.setattr(subprocess, "run", forbidden)
    assert wheels.obtain(release, released.sha256) == released


@pytest.mark.parametrize("cached", [False, True])
def test_no_wheel_but_the_locked_one_is_taken(world, cached):
    release = world.release()
    found = sha256(world.shelf / release.wheel)
    if cached:
        wheels.obtain(release, found)
    with pytest.raises(Precondition, match="could not be downloaded") as caught:
        wheels.obtain(release, "0" * 64)
    assert f"Got        {found}" in caught.value.cause
    assert left_behind(world) == [found[:16]] * cached


def test_no_wheel_to_be_had(world):
    release = world.release()
    (world.shelf / release.wheel).unlink()
    with pytest.raises(Precondition) as caught:
        wheels.obtain(release)
    assert release.wheel in caught.value.message
    assert "No matching distribution" in caught.value.cause
    assert "PIP_FIND_LINKS" in caught.value.next_step
    assert left_behind(world) == []


@pytest.mark.parametrize(
    ("files", "what"),
    [
        ({"../../evil.py": b""}, "outside the target directory"),
        ({"python/other/__init__.py": b""}, "holds no package 'sglang'"),
        (None, "is invalid|not a zip"),
    ],
    ids=["climbs", "other", "truncated"],
)
def test_a_broken_wheel_leaves_nothing(world, files, what):
    release = world.release(files=files or RELEASED)
    wheel = world.shelf / release.wheel
    if files is None:
        wheel.write_bytes(wheel.read_bytes()[:-40])
    with pytest.raises(Precondition, match=release.wheel) as caught:
        wheels.obtain(release)
    assert re.search(what, caught.value.cause)
    assert left_behind(world) == []


def test_no_extension_is_kept(world):
    files = {"python/sglang/srt/_core.cpython-310-x86_64-linux-gnu.so": b"ELF"}
    released = wheels.obtain(world.release(files=RELEASED | files))
    found = {p.name for p in (released.package / "srt").iterdir()}
    assert found == {"__init__.py", "clock.py"}


def pip_is_out_of_space(*args, **kwargs):
    said = "ERROR: Could not install: [Errno 28] No space left on device\n"
    return subprocess.CompletedProcess([], 1, "", said)


def half_installed(release, sha256, to):
    to.mkdir(parents=True)
    (to / "half").touch()
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("name", "full"),
    [("subprocess.run", pip_is_out_of_space), ("_install", half_installed)],
)
def test_a_full_disk(world, monkeypatch, name, full):
    release = world.release()
    monkeypatch.setattr(f"dspark_patches.trees.wheels.{name}", full)
    with pytest.raises(Precondition, match="the disk is full") as caught:
        wheels.obtain(release)
    assert "DSPARK_CACHE" in caught.value.next_step
    assert left_behind(world) == []


def test_a_cache_that_cannot_be_written(world):
    release = world.release()
    world.cache.write_text("a file in the way")
    with pytest.raises(Precondition, match="cannot be written"):
        wheels.obtain(release)


def test_processes_that_prepare_a_release_at_once_agree(world):
    release = world.release()
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import factories; from dspark_patches.trees import wheels\n"
        "print(wheels.obtain(factories.make_release()).root)\n"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parent)]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    roots = {process.communicate()[0].strip() for process in running}
    assert [process.returncode for process in running] == [0, 0, 0]
    assert roots == {str(wheels.obtain(release).root)}
    assert len(left_behind(world)) == 1


def test_a_file_that_changed_in_the_cache_is_found(world):
    released = wheels.obtain(world.release())
    blobs = {CLOCK: blob_id(RELEASED[CLOCK])}
    wheels.verify_files(released, blobs)
    (released.root / CLOCK).write_bytes(b"tampered\n")
    with pytest.raises(Precondition, match="clock.py is not the file") as caught:
        wheels.verify_files(released, blobs)
    assert str(released.root) in caught.value.next_step
    (released.root / CLOCK).unlink()
    with pytest.raises(Precondition) as caught:
        wheels.verify_files(released, blobs)
    assert caught.value.cause == "missing"


def test_pip_is_asked_for_the_pinned_wheel_alone():
    arguments, wanted = wheels.pip_arguments(releases.load()["v0.5.22"], "ab")
    assert wanted == "sglang==0.5.22 --hash=sha256:ab"
    assert {
        "--only-binary=:all:",
        "--no-deps",
        "--python-version=3.11",
        "--implementation=cp",
        "--abi=cp311",
        "--platform=manylinux_2_34_x86_64",
    } <= set(arguments)
    with pytest.raises(BadInput, match="releases.toml"):
        wheels.pip_arguments(factories.make_release("v1 of something"))


def test_the_cache_is_the_users_unless_told(monkeypatch, tmp_path):
    monkeypatch.setenv("DSPARK_CACHE", str(tmp_path))
    assert wheels.cache_dir() == tmp_path
    monkeypatch.delenv("DSPARK_CACHE")
    assert wheels.cache_dir().name == "dspark-patches"
