"""A release's files: downloaded once, unpacked without trust, whole or absent."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import factories
import pytest
from world import CLOCK, RELEASED

from dspark_patches.errors import BadInput, Precondition
from dspark_patches.model import releases
from dspark_patches.model.diff import blob_id
from dspark_patches.trees import wheels

PACKAGE = {"sglang/__init__.py": b"", "sglang/a.py": b"a = 1\n"}


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
        wheels.obtain(release)
    with pytest.raises(Precondition, match="not the wheel that is locked") as caught:
        wheels.obtain(release, "0" * 64)
    assert found in caught.value.cause
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


def test_a_truncated_wheel_leaves_nothing(world):
    release = world.release()
    wheel = world.shelf / release.wheel
    wheel.write_bytes(wheel.read_bytes()[:-40])
    with pytest.raises((Precondition, BadInput), match=release.wheel):
        wheels.obtain(release)
    assert left_behind(world) == []


def pip_is_out_of_space(*args, **kwargs):
    said = "ERROR: Could not install: [Errno 28] No space left on device\n"
    return subprocess.CompletedProcess([], 1, "", said)


def half_unpacked(wheel, to):
    to.mkdir(parents=True)
    (to / "half").touch()
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("name", "full"),
    [("subprocess.run", pip_is_out_of_space), ("unpack", half_unpacked)],
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


def test_what_a_killed_process_left_goes_once_it_is_old(world):
    release = world.release()
    folder = world.cache / "releases" / release.tag
    old, young = folder / ".tmp-old", folder / ".tmp-young"
    for scratch in (old, young):
        scratch.mkdir(parents=True)
    day_before = time.time() - 2 * 24 * 3600
    os.utime(old, (day_before, day_before))
    wheels.obtain(release)
    assert (old.exists(), young.exists()) == (False, True)


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
    arguments = wheels.download_arguments(releases.load()["v0.5.22"])
    assert arguments[-1] == "sglang==0.5.22"
    assert {
        "--only-binary=:all:",
        "--no-deps",
        "--python-version=3.11",
        "--implementation=cp",
        "--abi=cp311",
        "--platform=manylinux_2_34_x86_64",
    } <= set(arguments)
    with pytest.raises(BadInput, match="releases.toml"):
        wheels.download_arguments(factories.make_release("v1 of something"))


def test_the_cache_is_the_users_unless_told(monkeypatch, tmp_path):
    monkeypatch.setenv("DSPARK_CACHE", str(tmp_path))
    assert wheels.cache_dir() == tmp_path
    monkeypatch.delenv("DSPARK_CACHE")
    assert wheels.cache_dir().name == "dspark-patches"


def make_zip(folder, *extra, files=PACKAGE):
    """A zip of ``files``, then of ``extra`` (name or ZipInfo, content) pairs."""
    with zipfile.ZipFile(folder / "w.whl", "w") as archive:
        for name, content in (*files.items(), *extra):
            archive.writestr(name, content)
    return folder / "w.whl"


def test_only_the_package_is_unpacked_and_no_extension(tmp_path):
    wheel = make_zip(
        tmp_path,
        ("sglang/srt/_core.cpython-310-x86_64-linux-gnu.so", b"ELF"),
        ("sglang/srt/kernel.cu", b"// cuda"),
        ("sglang-1.dist-info/METADATA", b""),
        ("tools/x.py", b""),
    )
    to = tmp_path / "to"
    wheels.unpack(wheel, to)
    found = {path.relative_to(to).as_posix() for path in to.rglob("*.*")}
    assert found == {*PACKAGE, "sglang/srt/kernel.cu"}


@pytest.mark.parametrize(
    "name", ["../../evil.py", "srt/../../../evil.py", "/evil.py", "..\\evil.py"]
)
def test_no_path_climbs_out(tmp_path, name):
    wheel = make_zip(tmp_path, (f"sglang/{name}", b""))
    wheels.unpack(wheel, tmp_path / "a" / "to")
    assert {path.name for path in tmp_path.iterdir()} == {"a", wheel.name}
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["to"]


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR])
def test_an_entry_becomes_a_plain_file(tmp_path, kind):
    entry = zipfile.ZipInfo("sglang/link.py")
    entry.external_attr = (kind | 0o777) << 16
    wheels.unpack(make_zip(tmp_path, (entry, b"/etc/passwd")), tmp_path / "to")
    found = tmp_path / "to" / "sglang" / "link.py"
    assert stat.S_ISREG(found.lstat().st_mode)


def test_what_is_no_wheel_of_sglang_is_refused(tmp_path, monkeypatch):
    with pytest.raises(BadInput, match="no package"):
        wheels.unpack(make_zip(tmp_path, files={"o/__init__.py": b""}), tmp_path / "o")
    wheel = make_zip(tmp_path)
    whole = wheel.read_bytes()
    for broken in (whole[:-30], whole.replace(b"a = 1\n", b"a = 2\n", 1)):
        wheel.write_bytes(broken)
        with pytest.raises(BadInput, match="truncated or corrupt"):
            wheels.unpack(wheel, tmp_path / "to")
    wheel.write_bytes(whole)
    monkeypatch.setattr(wheels, "MAX_BYTES", 5)
    with pytest.raises(BadInput, match="unpacks to over 5 bytes"):
        wheels.unpack(wheel, tmp_path / "to")
