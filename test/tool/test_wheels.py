"""A base's released files: downloaded once, whole or absent."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import factories
import pytest
from world import CLOCK, RELEASED

from dspark_patches import bases, unpack, wheels
from dspark_patches.diff import blob_id
from dspark_patches.errors import BadInput, Exit, Precondition


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def left_behind(world) -> list[str]:
    """What lies in the cache for any base."""
    return sorted(path.name for path in world.cache.glob("bases/*/*"))


def test_a_wheel_becomes_a_tree(world):
    base = world.release()
    released = wheels.obtain(base)
    for path, content in RELEASED.items():
        assert (released.root / path).read_bytes() == content
    assert released.origin.sha256 == sha256(world.shelf / base.wheel)
    assert left_behind(world) == [released.origin.sha256[:16]]


def test_a_warm_cache_needs_no_pip(world, monkeypatch):
    base = world.release()
    first = wheels.obtain(base)

    def forbidden(*args, **kwargs):
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "run", forbidden)
    assert wheels.obtain(base) == first
    assert wheels.obtain(base, first.origin.sha256) == first


def test_another_wheel_in_the_cache_is_not_taken(world):
    base = world.release()
    wheels.obtain(base)
    with pytest.raises(Precondition, match="not the wheel that is locked"):
        wheels.obtain(base, "0" * 64)


def test_a_wheel_that_is_not_the_locked_one_leaves_nothing(world):
    base = world.release()
    with pytest.raises(Precondition) as caught:
        wheels.obtain(base, "0" * 64)
    assert sha256(world.shelf / base.wheel) in caught.value.cause
    assert left_behind(world) == []


def test_no_wheel_to_be_had_says_so_and_leaves_nothing(world):
    base = world.release()
    (world.shelf / base.wheel).unlink()
    with pytest.raises(Precondition) as caught:
        wheels.obtain(base)
    assert caught.value.exit_code == Exit.PRECONDITION
    assert base.wheel in caught.value.message
    assert "No matching distribution" in caught.value.cause
    assert "PIP_FIND_LINKS" in caught.value.next_step
    assert left_behind(world) == []


def test_a_truncated_wheel_is_refused_and_leaves_nothing(world):
    base = world.release()
    wheel = world.shelf / base.wheel
    wheel.write_bytes(wheel.read_bytes()[:-40])
    with pytest.raises((Precondition, BadInput)) as caught:
        wheels.obtain(base)
    assert caught.value.exit_code == Exit.PRECONDITION
    assert base.wheel in caught.value.message
    assert left_behind(world) == []


def test_a_full_disk_while_pip_downloads(world, monkeypatch):
    base = world.release()
    said = "ERROR: Could not install: [Errno 28] No space left on device\n"
    full = subprocess.CompletedProcess([], 1, "", said)
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: full)
    with pytest.raises(Precondition, match="the disk is full"):
        wheels.obtain(base)
    assert left_behind(world) == []


def test_a_full_disk_while_unpacking(world, monkeypatch):
    base = world.release()

    def full(wheel, to):
        to.mkdir(parents=True)
        (to / "half").touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(unpack, "package", full)
    with pytest.raises(Precondition, match="the disk is full") as caught:
        wheels.obtain(base)
    assert "DSPARK_CACHE" in caught.value.next_step
    assert left_behind(world) == []


def test_a_cache_that_cannot_be_written(world):
    base = world.release()
    world.cache.write_text("a file in the way")
    with pytest.raises(Precondition, match="cannot be written"):
        wheels.obtain(base)


def test_processes_that_prepare_the_same_base_at_once_agree(world):
    base = world.release()
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import factories; from dspark_patches import wheels\n"
        "print(wheels.obtain(factories.make_base()).root)\n"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parent)]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    roots = {process.communicate()[0].strip() for process in running}
    assert [process.returncode for process in running] == [0, 0, 0]
    assert roots == {str(wheels.obtain(base).root)}
    assert len(left_behind(world)) == 1


def test_what_a_killed_process_left_is_removed_once_it_is_old(world):
    base = world.release()
    folder = world.cache / "bases" / base.tag
    old, young = folder / ".tmp-old", folder / ".tmp-young"
    for scratch in (old, young):
        scratch.mkdir(parents=True)
    day_before = time.time() - 2 * 24 * 3600
    os.utime(old, (day_before, day_before))
    wheels.obtain(base)
    assert not old.exists()
    assert young.exists()


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


def test_pip_is_asked_for_the_pinned_wheel_and_never_for_sources():
    arguments = wheels.download_arguments(bases.load()["v0.5.22"])
    assert arguments[-1] == "sglang==0.5.22"
    assert {
        "--only-binary=:all:",
        "--no-deps",
        "--python-version=3.11",
        "--implementation=cp",
        "--abi=cp311",
        "--platform=manylinux_2_34_x86_64",
    } <= set(arguments)


def test_a_pin_that_is_no_wheel_name_is_refused():
    broken = factories.make_base("v1 of something")
    with pytest.raises(BadInput, match="bases.toml"):
        wheels.download_arguments(broken)


def test_the_cache_is_the_users_unless_told(monkeypatch, tmp_path):
    monkeypatch.setenv("DSPARK_CACHE", str(tmp_path))
    assert wheels.cache_dir() == tmp_path
    monkeypatch.delenv("DSPARK_CACHE")
    assert wheels.cache_dir().name == "dspark-patches"
