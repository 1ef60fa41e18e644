"""The lock says what a series stands on, and survives no tampering."""

from __future__ import annotations

import string
from pathlib import Path

import pytest
from factories import (
    make_delete,
    make_edit,
    make_patch_file,
    make_release,
    write_files,
    write_series,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dspark_patches.errors import BadInput, Failure, Precondition
from dspark_patches.model import diff, lock, patch_file, series

SHA256 = "ab" * 32
CLOCK = "python/sglang/srt/clock.py"
GUARD = "test/registered/unit/test_guard.py"
KIT = "python/sglang/test/kits/clock_kit.py"


def two_patches() -> tuple[patch_file.PatchFile, ...]:
    return (
        make_patch_file(
            make_edit(CLOCK, b"tick\n", b"tick once\n"),
            diff.render_add(KIT, b"kit\n"),
            make_edit(GUARD, b"guard\n", b"guard clock\n"),
        ),
        make_patch_file(
            make_edit(CLOCK, b"tick once\n", b"evict, tick once\n"),
            make_delete("python/sglang/srt/old.py", b"old\n"),
        ),
    )


def build(folder: Path, root: Path) -> lock.Lock:
    release = make_release()
    loaded = series.load(release, folder)
    return lock.build(release, loaded, SHA256, lock.carried_blobs(loaded, root))


def parse(folder: Path, data: bytes) -> lock.Lock:
    lock.path_of(make_release(), folder).write_bytes(data)
    return lock.load(make_release(), folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_series(tmp_path / "patches" / "v0.5.16", *two_patches())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    old = {"python/sglang/srt/old.py": b"old\n"}
    write_files(tmp_path / "root", {CLOCK: b"tick\n"} | old)
    return tmp_path / "root"


def test_the_lock_states_release_and_result(folder: Path, root: Path) -> None:
    built = build(folder, root)
    assert built.wheel == lock.Wheel(file=make_release().wheel, sha256=SHA256)
    assert built.edited[CLOCK] == lock.Edited(
        released=diff.blob_id(b"tick\n"),
        result=diff.blob_id(b"evict, tick once\n"),
    )
    assert built.added == {KIT: diff.blob_id(b"kit\n")}
    assert built.result_blobs()["python/sglang/srt/old.py"] == diff.ZEROS
    assert set(built.released_blobs()) - set(built.released_blobs(in_wheel=True)) == {
        GUARD
    }


@pytest.mark.parametrize(
    "section",
    [diff.render_add(KIT, b""), make_edit(GUARD, b"a\n", b"b\n")],
    ids=["nothing edited", "nothing added"],
)
def test_a_lock_comes_back_from_its_file(tmp_path: Path, section: diff.Section) -> None:
    folder = write_series(tmp_path / "v0.5.16", make_patch_file(section))
    loaded = series.load(make_release(), folder)
    built = lock.build(make_release(), loaded, SHA256, {}, {"HAS_TREE": True})
    assert len(built.edited) + len(built.added) == 1
    lock.path_of(make_release(), folder).write_bytes(lock.render(built))
    assert lock.load(make_release(), folder) == built
    assert lock.agreed(make_release(), loaded) == built


def test_a_release_that_differs_is_refused(folder: Path, root: Path) -> None:
    (root / CLOCK).write_bytes(b"tock\n")
    with pytest.raises(BadInput, match=f"0001-patch.patch: {CLOCK} begins with"):
        build(folder, root)


def test_a_package_file_that_the_wheel_lacks_is_refused(
    folder: Path, root: Path
) -> None:
    (root / CLOCK).unlink()
    with pytest.raises(BadInput, match=f"the release has {diff.ZEROS}"):
        build(folder, root)


def test_a_missing_lock_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(Precondition, match="has no lock") as caught:
        lock.load(make_release(), tmp_path)
    assert caught.value.next_step == "run `dspark-patches lock v0.5.16`"


def test_a_lock_of_another_wheel_is_refused(folder: Path, root: Path) -> None:
    data = lock.render(build(folder, root)).replace(b"0.5.16-py3", b"0.5.17-py3")
    lock.path_of(make_release(), folder).write_bytes(data)
    with pytest.raises(BadInput, match="locks sglang-0.5.17"):
        lock.load(make_release(), folder)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"python/sglang/srt/clock.py", b"../clock.py"),
        (b"python/sglang/srt/clock.py", b"/etc/clock.py"),
        (SHA256.encode(), b"ab"),
        (SHA256.encode(), SHA256.upper().encode()),
        (b"\nresult = ", b"\nmore = 1\nresult = "),
        (b"[added]", b"[added]\nx = " + b"[" * 100_000),
        (b"[added]", b"[added]\nx = " + b"1" * 100_000),
        (b"[added]", b"[wheel]"),
        (b"# Generated", b"# \xff"),
    ],
)
def test_a_broken_lock_is_refused(
    folder: Path, root: Path, old: bytes, new: bytes
) -> None:
    data = lock.render(build(folder, root))
    assert old in data
    with pytest.raises(BadInput, match="v0.5.16/lock.toml"):
        parse(folder, data.replace(old, new))


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    at=st.integers(0, 900),
    noise=st.binary(max_size=4)
    | st.text(string.punctuation, max_size=3).map(str.encode),
    cut=st.integers(0, 4),
)
def test_a_corrupt_lock_is_refused_or_a_lock(
    folder: Path, root: Path, at: int, noise: bytes, cut: int
) -> None:
    data = lock.render(build(folder, root))
    try:
        value = parse(folder, data[:at] + noise + data[at + cut :])
    except Failure:
        return
    assert parse(folder, lock.render(value)) == value
