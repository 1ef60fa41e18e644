"""A series is read whole, in order, and its blob ids form a chain."""

from __future__ import annotations

from pathlib import Path

import pytest
from factories import make_edit, make_patch_file, make_release, write_series

from dspark_patches.errors import BadInput, Usage
from dspark_patches.model import diff, patch_file, series

CLOCK = "python/sglang/srt/clock.py"
TEST = "test/registered/unit/spec/test_clock.py"
FIX = make_edit(CLOCK, b"tick\n", b"tick once\n")
CONTROL = b"Ticks twice again.\n\n" + make_edit(CLOCK, b"once\n", b"twice\n").text


def add_control(folder: Path, name: str, data: bytes = CONTROL) -> None:
    (folder / "controls").mkdir(exist_ok=True)
    (folder / "controls" / name).write_bytes(data)


def test_patches_come_in_order_with_their_controls(tmp_path: Path) -> None:
    fix = make_patch_file(FIX)
    test = make_patch_file(diff.render_add(TEST, b"test\n"))
    folder = write_series(tmp_path / "v0.5.16", fix, test)
    add_control(folder, "0002-twice.diff")
    loaded = series.load(make_release(), folder)
    assert [patch.file for patch in loaded.patches] == [fix, test]
    assert [patch.number for patch in loaded.patches] == [1, 2]
    assert [patch.kind for patch in loaded.patches] == ["fix", "test"]
    assert loaded.patches[0].controls == ()
    (control,) = loaded.patches[1].controls
    assert (control.name, control.why) == ("0002-twice", "Ticks twice again.")
    assert loaded.path(loaded.patches[1]) == folder / "0002-patch.patch"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("python/sglang/srt/x.py", "fix"),
        ("python/sglang/test_x.py", "fix"),
        ("docs/x.md", "fix"),
        ("python/sglang/test/kits/x.py", "test"),
        ("test/registered/x.py", "test"),
    ],
)
def test_a_patch_that_touches_more_than_tests_is_a_fix(path: str, kind: str) -> None:
    sections = (diff.render_add(path, b"x\n"),)
    patch = series.Patch(number=1, name="0001-x", file=make_patch_file(*sections))
    assert patch.kind == kind


def test_the_tests_are_those_that_the_patch_names(tmp_path: Path) -> None:
    trailers = (
        ("Regression-Test", "a.py::A"),
        ("Fixes", "x"),
        ("Regression-Test", "b"),
    )
    patch = series.Patch(
        number=1, name="0001-x", file=make_patch_file(trailers=trailers)
    )
    assert patch.tests == ("a.py::A", "b")


def test_every_failure_of_a_series_is_found(tmp_path: Path) -> None:
    folder = write_series(tmp_path / "v0.5.16", *[make_patch_file(FIX)] * 3)
    (folder / "0001-patch.patch").write_bytes(b"noise\n")
    (folder / "0003-patch.patch").rename(folder / "0004-patch.patch")
    (folder / "0002-Patch.patch.orig").write_bytes(b"")
    (folder / "0004-again.patch").write_bytes(patch_file.render(make_patch_file(FIX)))
    (folder / "0005-link.patch").symlink_to(folder / "0002-patch.patch")
    add_control(folder, "0009-nothing.diff")
    add_control(folder, "0002-silent.diff", FIX.text)
    found, failures = series.scan(make_release(), folder)
    assert [patch.number for patch in found.patches] == [2, 4]
    assert [str(failure) for failure in failures] == [
        "v0.5.16/controls/0002-silent.diff:1: a control begins with the text that "
        "explains it, in UTF-8",
        "v0.5.16/controls/0009-nothing.diff: there is no patch 0009",
        "v0.5.16/0001-patch.patch:1: there is no diff",
        "v0.5.16/0002-Patch.patch.orig: does not belong here; "
        "expected NNNN-SLUG.patch",
        "v0.5.16/0004-patch.patch: v0.5.16/0004-again.patch has the number 0004 as "
        "well",
        "v0.5.16/0005-link.patch: not a regular file",
    ]
    with pytest.raises(BadInput, match="0002-silent.diff:1: a control"):
        series.load(make_release(), folder)


@pytest.mark.parametrize(
    "name", ["0002-x.diff", "x.patch", "2-x.patch", "0002-.patch", "0002-X.patch", ".x"]
)
def test_a_file_that_is_no_patch_is_found(tmp_path: Path, name: str) -> None:
    folder = write_series(tmp_path / "v0.5.16", make_patch_file(FIX))
    (folder / name).write_bytes(patch_file.render(make_patch_file(FIX)))
    (failure,) = series.scan(make_release(), folder)[1]
    assert failure.file == f"v0.5.16/{name}"
    assert failure.what == "does not belong here; expected NNNN-SLUG.patch"


def test_a_release_without_a_series_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(Usage, match="v0.5.16 has no series"):
        series.load(make_release(), tmp_path / "v0.5.16")


def make_series(tmp_path: Path, *patch_files: patch_file.PatchFile) -> series.Series:
    folder = write_series(tmp_path / "v0.5.16", *patch_files)
    return series.load(make_release(), folder)


def test_the_chain_gives_each_path_before_and_after(tmp_path: Path) -> None:
    loaded = make_series(
        tmp_path,
        make_patch_file(FIX, diff.render_add(TEST, b"one\n")),
        make_patch_file(
            make_edit(CLOCK, b"tick once\n", b"t\n"),
            make_edit(TEST, b"one\n", b"two\n"),
        ),
    )
    expected = {
        CLOCK: series.Link(old=diff.blob_id(b"tick\n"), new=diff.blob_id(b"t\n")),
        TEST: series.Link(old=diff.ZEROS, new=diff.blob_id(b"two\n")),
    }
    assert series.chain(loaded) == expected
    assert series.chain(loaded, {CLOCK: diff.blob_id(b"tick\n")}) == expected


@pytest.mark.parametrize(
    ("patch_files", "what"),
    [
        ([make_patch_file(FIX), make_patch_file(FIX)], "an earlier patch leaves"),
        (
            [
                make_patch_file(diff.render_add(TEST, b"a\n")),
                make_patch_file(diff.render_add(TEST, b"b\n")),
            ],
            "an earlier patch leaves",
        ),
        ([make_patch_file(make_edit(CLOCK, b"tock\n", b"tick\n"))], "the release has"),
        ([make_patch_file(diff.render_add(CLOCK, b"tick\n"))], "the release has"),
        (
            [make_patch_file(make_edit(TEST, b"a\n", b"b\n"))],
            f"the release has {diff.ZEROS}",
        ),
    ],
)
def test_a_broken_chain_names_patch_and_path(
    tmp_path: Path, patch_files: list[patch_file.PatchFile], what: str
) -> None:
    loaded = make_series(tmp_path, *patch_files)
    with pytest.raises(BadInput, match=what) as caught:
        series.chain(loaded, {CLOCK: diff.blob_id(b"tick\n")})
    assert f"v0.5.16/000{len(patch_files)}-patch.patch: " in str(caught.value)
