"""Patches come out of git byte-equal, whatever the configuration."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from clone import CLOCK, GUARD, TEST, Clone, full_checkout, two_patch_files
from factories import make_edit, make_patch_file, write_files, write_series

from dspark_patches.errors import Conflict, Precondition
from dspark_patches.files import replace_all
from dspark_patches.maintain import pr
from dspark_patches.model import diff, patch_file, series


def test_a_series_comes_out_as_it_is(clone: Clone) -> None:
    assert clone.regenerate() == clone.patch_files()


def test_no_configuration_changes_a_byte(clone: Clone, hostile: str) -> None:
    assert clone.regenerate() == clone.patch_files()


def test_an_added_file_follows_its_source(clone: Clone) -> None:
    write_files(clone.sources, {TEST: b"test\nmore"})
    written = clone.regenerate()
    assert written["0001-patch"] == clone.patch_files()["0001-patch"]
    changed = patch_file.parse(written["0002-patch"])
    assert diff.forward(None, changed.sections[1]) == b"test\nmore"


def test_a_sloppy_hunk_is_written_as_git_writes_it(clone: Clone) -> None:
    old, new = b"a\nb\nc\nd\ne\nf\n", b"a\nb\nc\nd\ne\nF\n"
    write_files(clone.released, {CLOCK: old})
    write_series(clone.folder, make_patch_file(make_edit(CLOCK, old, new)))
    (clone.folder / "0002-patch.patch").unlink()
    (section,) = patch_file.parse(clone.regenerate()["0001-patch"]).sections
    assert diff.changed_lines(section) == (1, 1)
    assert b"@@ -3,4 +3,4 @@ b\n" in section.text


def test_a_patch_of_checkout_files_alone_is_kept(clone: Clone) -> None:
    only = make_patch_file(make_edit(GUARD, b"guard\n", b"guarded\n"))
    write_series(clone.folder, only)
    (clone.folder / "0002-patch.patch").unlink()
    assert clone.regenerate() == {"0001-patch": patch_file.render(only)}


def test_an_edit_of_other_files_is_refused(clone: Clone) -> None:
    write_files(clone.released, {CLOCK: b"tock\n"})
    with pytest.raises(
        Conflict, match=f"v0.5.16/0001-patch.patch does not fit {CLOCK}"
    ):
        clone.regenerate()


def test_an_edit_of_a_file_that_the_wheel_lacks_is_refused(
    clone: Clone,
) -> None:
    (clone.released / CLOCK).unlink()
    with pytest.raises(Conflict, match=f"does not fit {CLOCK}"):
        clone.regenerate()


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        (b"-tick\n", b"-tock\n", "do not stand"),
        (b"+tick once", b"+tick o", "expected blob"),
    ],
)
def test_an_edit_that_lies_about_its_blobs_is_refused(
    clone: Clone, old: bytes, new: bytes, what: str
) -> None:
    path = clone.folder / "0001-patch.patch"
    path.write_bytes(path.read_bytes().replace(old, new))
    with pytest.raises(Conflict, match="0001-patch.patch does not fit") as caught:
        clone.regenerate()
    assert what in caught.value.cause


def test_a_missing_source_is_refused(clone: Clone) -> None:
    (clone.sources / TEST).unlink()
    with pytest.raises(Precondition, match=f"adds {TEST}, which the clone does not"):
        clone.regenerate()


def test_git_am_takes_the_patches(clone: Clone, tmp_path: Path) -> None:
    git = full_checkout(tmp_path / "sglang")
    patch_files = sorted(map(str, clone.folder.glob("*.patch")))
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    identity = ["-c", "user.name=x", "-c", "user.email=x@dspark-patches.invalid"]
    command = ["git", *identity, "am", "-q", *patch_files]
    subprocess.run(command, cwd=git.directory, env=environment, check=True)
    links = series.chain(clone.series)
    for path, link in links.items():
        assert git.text("rev-parse", f"HEAD:{path}") == link.new
    assert git.text("log", "-1", "--format=%B") == patch_file.commit_message(
        two_patch_files()[1]
    ).rstrip("\n")


def test_nothing_changes_when_a_file_cannot_be_staged(tmp_path: Path) -> None:
    write_files(tmp_path, {"a": b"old", "not-a-folder": b""})
    with pytest.raises(Precondition, match="cannot be written"):
        replace_all({tmp_path / "a": b"new", tmp_path / "not-a-folder" / "b": b"new"})
    assert (tmp_path / "a").read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "not-a-folder"]


def test_files_are_written_and_removed_together(tmp_path: Path) -> None:
    write_files(tmp_path, {"old": b"old", "kept": b"kept"})
    (tmp_path / "kept").chmod(0o755)
    new = tmp_path / "folder" / "new"
    replace_all({new: b"new", tmp_path / "old": None, tmp_path / "kept": b"more"})
    assert new.read_bytes() == b"new"
    assert not (tmp_path / "old").exists()
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o755


def test_a_pull_request_has_upstreams_form(clone: Clone) -> None:
    text = pr.render(clone.series.patches[1])
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert headings == [
        "# Evict before the tick",
        "## Motivation",
        "## Modifications",
        "## Accuracy Tests",
        "## Speed Tests and Profiling",
        "## Checklist",
    ]
    assert "Fixes: sgl-project/sglang#1\n" in text
    assert f"- change `{CLOCK}` (+2 -1)\n- add `{TEST}` (+1 -0)\n" in text
    assert "python3 test/registered/unit/spec/test_clock.py -f\n" in text
    assert "- [x] Add unit tests" in text
    assert "Upstream-Status" not in text and "Regression-Test" not in text
