"""Wheels are unpacked without trust."""

from __future__ import annotations

import stat
import zipfile

import pytest

from dspark_patches import unpack
from dspark_patches.errors import BadInput

PACKAGE = {"sglang/__init__.py": b"", "sglang/a.py": b"a = 1\n"}


def make_zip(path, *extra, files=PACKAGE):
    """A zip of ``files``, then of ``extra`` (name or ZipInfo, content) pairs."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        for name, content in extra:
            archive.writestr(name, content)
    return path


def refused(wheel, to):
    """The refusal; nothing may have been written."""
    with pytest.raises(BadInput) as caught:
        unpack.package(wheel, to)
    assert not to.exists()
    return caught.value.message


def test_only_the_package_is_unpacked_and_no_extension(tmp_path):
    wheel = make_zip(
        tmp_path / "w.whl",
        ("sglang/srt/_core.cpython-310-x86_64-linux-gnu.so", b"ELF"),
        ("sglang/srt/kernel.cu", b"// cuda"),
        ("sglang-1.dist-info/METADATA", b""),
        ("tools/x.py", b""),
    )
    unpack.package(wheel, tmp_path / "to")
    found = {
        p.relative_to(tmp_path / "to").as_posix() for p in tmp_path.rglob("to/**/*.*")
    }
    assert found == {*PACKAGE, "sglang/srt/kernel.cu"}


@pytest.mark.parametrize(
    "name",
    [
        "sglang/../../evil.py",
        "sglang/srt/../../../evil.py",
        "sglang//evil.py",
        "sglang/./evil.py",
        "sglang/..\\evil.py",
    ],
)
def test_a_path_that_climbs_is_refused(tmp_path, name):
    wheel = make_zip(tmp_path / "w.whl", (name, b""))
    assert "is not a path in the package" in refused(wheel, tmp_path / "to")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR])
def test_an_entry_that_is_no_plain_file_is_refused(tmp_path, kind):
    entry = zipfile.ZipInfo("sglang/link.py")
    entry.external_attr = (kind | 0o777) << 16
    wheel = make_zip(tmp_path / "w.whl", (entry, b"/etc/passwd"))
    assert "is not a plain file" in refused(wheel, tmp_path / "to")


def test_too_many_files_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(unpack, "MAX_FILES", 1)
    assert "2 files" in refused(make_zip(tmp_path / "w.whl"), tmp_path / "to")


def test_a_size_beyond_reason_is_refused_before_unpacking(tmp_path, monkeypatch):
    monkeypatch.setattr(unpack, "MAX_BYTES", 5)
    assert "6 bytes" in refused(make_zip(tmp_path / "w.whl"), tmp_path / "to")


def test_a_wheel_without_the_package_is_refused(tmp_path):
    wheel = make_zip(tmp_path / "w.whl", files={"other/__init__.py": b""})
    assert "no package" in refused(wheel, tmp_path / "to")


def test_a_truncated_wheel_is_refused(tmp_path):
    wheel = make_zip(tmp_path / "w.whl")
    wheel.write_bytes(wheel.read_bytes()[:-30])
    assert "truncated or corrupt" in refused(wheel, tmp_path / "to")


def test_a_flipped_byte_is_found_by_its_checksum(tmp_path):
    wheel = make_zip(tmp_path / "w.whl")
    data = wheel.read_bytes().replace(b"a = 1\n", b"a = 2\n", 1)
    wheel.write_bytes(data)
    with pytest.raises(BadInput, match="truncated or corrupt"):
        unpack.package(wheel, tmp_path / "to")
