"""Sections and hunks are read strictly, and written as git writes them."""

from __future__ import annotations

from pathlib import Path

import pytest
from factories import make_edit, make_repository, write_files
from hypothesis import given
from patch_files import CONTENT, PATH, sample

from dspark_patches.errors import BadInput
from dspark_patches.model import diff, patch_file


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        (b"b.py", b"../b.py", "climbs"),
        (b"b.py", b"/b.py", "absolute"),
        (b"b.py", b"x/.GiT/b.py", "git directory"),
        (b"b.py", b".git./b.py", "git directory"),
        (b"b.py", b"b\\.py", "character"),
        (b"b.py", b"b\x01.py", "character"),
        (b"b.py", b"b .py", "expected 'diff --git"),
        (b"b.py", b"a/new.py", "out of order"),
        (b"c.py", b"b.py/x", "both a file and a folder"),
        (b"diff --git a/b.py b/b.py", b'diff --git "a/b.py" "b/b.py"', "quoted"),
        (b"diff --git a/b.py b/b.py", b"diff --git a/b.py b/c.py", "expected 'diff"),
        (b" 100644\n--- a/b", b" 120000\n--- a/b", "a link or submodule"),
        (b" 100644\n--- a/b", b" 160000\n--- a/b", "a link or submodule"),
        (b" 100644\n--- a/b", b"\n--- a/b", "mode is missing"),
        (b"\nindex 587be6b", b"\nold mode 100644\nindex 587be6b", "a mode change"),
        (b"\nindex 587be6b", b"\nrename from x\nindex 587be6b", "a rename"),
        (b"\nindex 587be6b", b"\nGIT binary patch\nindex 587be6b", "a binary patch"),
        (b"587be6b4c3f93f93c489c0111bba5596147a26cb", b"587be6b", "full 40 digit"),
        (b"@@ -1 +1,2 @@", b"@@ -1 +1,3 @@", "shorter or longer"),
        (b"@@ -1 +1,2 @@", b"@@ -1,2 +1,2 @@", "shorter or longer"),
        (b"@@ -1 +1,2 @@", b"@@ -1 +1 @@", "shorter or longer"),
        (b"@@ -1 +1,2 @@", b"@@ -1 +2,2 @@", "do not follow"),
        (b"@@ -1 +1,2 @@", b"@@ -1,1 +1,2 @@", "expected '@@"),
        (b"-x\n", b"-\0\n", "binary"),
        (b"+two\n", b"+too\n", "does not hash"),
        (b"-gone\n", b"-went\n", "does not hash"),
        (b"+one\n", b"+one\n\\ No newline at end of file\n", "goes on after its end"),
        (b"--- a/b.py\n", b"--- a/b.py\r\n", "expected '--- a/b.py'"),
        (
            b"\n+two\n\\ No",
            b"\n+two\n\\ No newline at end of file\n\\ No",
            "ends twice",
        ),
        (b"@@ -1 +1,2 @@\n-x\n+y\n+z\n", b"x", "expected a hunk"),
        (b"@@ -1 +0,0 @@\n-gone", b"@@ -1,2 +1 @@\n-gone\n x", "whole in one hunk"),
    ],
)
def test_what_is_not_canonical_is_named(old: bytes, new: bytes, what: str) -> None:
    data = sample()
    assert old in data
    with pytest.raises(BadInput, match=what) as caught:
        patch_file.parse(data.replace(old, new), "v0.5.16/0001-x.patch")
    assert str(caught.value).startswith("v0.5.16/0001-x.patch:")


@pytest.mark.parametrize("ids", ["{zeros}..{new}", "{old}..{zeros}", "{old}..{old}"])
def test_an_edit_has_two_blobs(ids: str) -> None:
    old, new = diff.blob_id(b"x\n"), diff.blob_id(b"y\nz\n")
    wrong = ids.format(zeros=diff.ZEROS, old=old, new=new).encode()
    data = sample().replace(f"{old}..{new}".encode(), wrong)
    with pytest.raises(BadInput, match="patch:21: an edit needs two blobs"):
        patch_file.parse(data)


def test_an_edit_has_a_hunk() -> None:
    text = make_edit("x", b"1\n", b"2\n").text
    with pytest.raises(BadInput, match="diff:2: an edit needs two blobs"):
        patch_file.parse_control(b"Why.\n" + text[: text.index(b"--- ")])[1]


def test_a_short_blob_id_is_named_by_its_line() -> None:
    data = sample().replace(b"index 587be6b4c3", b"index ")
    with pytest.raises(BadInput, match="patch:21: expected .* full 40 digit"):
        patch_file.parse(data)


def test_a_failure_names_the_line() -> None:
    data = sample().replace(b"@@ -1 +1,2 @@", b"@@ -1 +1,3 @@")
    with pytest.raises(BadInput, match="^patch:25: the hunk is shorter or longer"):
        patch_file.parse(data)


def test_git_writes_these_sections_the_same(tmp_path: Path) -> None:
    before = {"a/b.py": b"1\n2\n3", "empty": b"", "gone": b"x\n", "crlf": b"a\r\nb\r\n"}
    after = {"a/b.py": b"1\n2\n", "empty": b"y", "crlf": b"a\r\nc\r\n", "new/e": b""}
    git = make_repository(tmp_path, before)
    (tmp_path / "gone").unlink()
    write_files(tmp_path, after)
    git.run("add", "-A")
    data = git.run("diff", "--cached", "--full-index", "--no-renames")
    found = patch_file.parse_control(b"Why.\n\n" + data)[1]
    kinds = {section.path: section.kind for section in found}
    assert kinds == {
        "a/b.py": "edit",
        "crlf": "edit",
        "empty": "edit",
        "gone": "delete",
        "new/e": "add",
    }
    for section in found:
        if section.kind != "delete":
            assert section.new == diff.blob_id(after[section.path])
    assert b"".join(section.text for section in found) == data


@given(PATH, CONTENT)
def test_an_added_file_comes_back(path: str, content: bytes) -> None:
    section = diff.render_add(path, content)
    assert diff.added_content(section) == content
    assert section.new == diff.blob_id(content)


@pytest.mark.parametrize("path", ["/x", "a//b", "a/../b", "x\ny", "\ud800", ".git/x"])
def test_a_hostile_path_is_not_written(path: str) -> None:
    with pytest.raises(BadInput):
        diff.render_add(path, b"x\n")


def test_hunks_say_where_they_land(tmp_path: Path) -> None:
    old = [b"v%d\n" % number for number in range(40)]
    new = [b"first\n", *old[:20], b"middle\n", *old[21:39]]
    git = make_repository(tmp_path, {"x.py": b"".join(old)})
    write_files(tmp_path, {"x.py": b"".join(new)})
    data = git.run("diff", "--full-index")
    (section,) = patch_file.parse_control(b"Why.\n" + data)[1]
    places = [
        (hunk.old_start, hunk.old_count, hunk.new_start, hunk.new_count)
        for hunk in diff.hunks(section)
    ]
    assert places == [(1, 3, 1, 4), (18, 7, 19, 7), (37, 4, 38, 3)]
    assert [hunk.heading for hunk in diff.hunks(section)] == [b"", b" v16", b" v35"]
    for moved in (b"@@ -18,7 +20,7 @@", b"@@ -2,7 +3,7 @@", b"@@ -50,7 +51,7 @@"):
        with pytest.raises(BadInput, match="line numbers do not follow"):
            patch_file.parse_control(
                b"Why.\n" + data.replace(b"@@ -18,7 +19,7 @@", moved)
            )[1]


@pytest.mark.parametrize(
    "hunks",
    [
        b"@@ -1,0 +1 @@\n+x\n",
        b"@@ -0,0 +2 @@\n+x\n",
        b"@@ -5 +4,0 @@\n-x\n",
        b"@@ -0,0 +1 @@\n+x\n@@ -1 +2 @@\n-y\n+z\n",
        b"@@ -1 +1 @@\n-x\n+y\n@@ -2,0 +3 @@\n+z\n",
    ],
)
def test_a_hunk_without_context_is_refused(hunks: bytes) -> None:
    text = make_edit("x", b"1\n", b"2\n").text
    head = text[: text.index(b"@@")]
    with pytest.raises(BadInput, match="line numbers do not follow"):
        patch_file.parse_control(b"Why.\n" + head + hunks)[1]


def test_changed_lines_are_counted() -> None:
    assert diff.changed_lines(make_edit("b.py", b"x\n", b"y\nz\n")) == (2, 1)


def test_a_control_needs_an_explanation() -> None:
    section = make_edit("b.py", b"x\n", b"y\n")
    assert patch_file.parse_control(b"Why.\n" + section.text) == ("Why.", (section,))
    with pytest.raises(BadInput, match="explains"):
        patch_file.parse_control(section.text)[1]
    with pytest.raises(BadInput, match="there is no diff"):
        patch_file.parse_control(b"Why.\n")[1]
    with pytest.raises(BadInput, match="not UTF-8"):
        patch_file.parse_control(b"Why: \xff\n" + section.text)[1]
