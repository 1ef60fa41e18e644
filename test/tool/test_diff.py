"""Diffs are read strictly, as git writes them, and go in exactly where they say."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from factories import (
    make_delete,
    make_edit,
    make_patch_file,
    make_repository,
    write_files,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from patch_files import CONTENT, PATH, sample

from dspark_patches.errors import BadInput, Conflict
from dspark_patches.model import diff, patch_file
from dspark_patches.model.diff import backward, forward
from dspark_patches.model.hunks import lines_of
from dspark_patches.trees import workshop

TEXT_FILE = "expected 'diff --git a/PATH b/PATH'"
HEAD = "git writes the head of a text file otherwise"
NUMBERS = "numbers do not fit"
LINES = "no such lines"
WHOLE = "stand whole in one hunk"
TWO_BLOBS = "two blobs that differ"


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        (b"b.py", b"../b.py", "climbs"),
        (b"b.py", b"/b.py", "absolute"),
        (b"b.py", b"x/.GiT/b.py", "git directory"),
        (b"b.py", b".git./b.py", "git directory"),
        (b"b.py", b"b\\.py", "character"),
        (b"b.py", b"b\x01.py", "character"),
        (b"b.py", b"b .py", TEXT_FILE),
        (b"b.py", b"a/new.py", "out of order"),
        (b"c.py", b"b.py/x", "below another file"),
        (b"diff --git a/b.py b/b.py", b'diff --git "a/b.py" "b/b.py"', TEXT_FILE),
        (b"diff --git a/b.py b/b.py", b"diff --git a/b.py b/c.py", TEXT_FILE),
        (b" 100644\n--- a/b", b" 120000\n--- a/b", "a link"),
        (b" 100644\n--- a/b", b" 160000\n--- a/b", "a link"),
        (b" 100644\n--- a/b", b"\n--- a/b", ":22: " + HEAD),
        (b"\nindex 587be6b", b"\nold mode 100644\nindex 587be6b", "a mode change"),
        (b"\nindex 587be6b", b"\nrename from x\nindex 587be6b", "a rename"),
        (b"\nindex 587be6b", b"\nGIT binary patch\nindex 587be6b", "a binary patch"),
        (b"index 587be6b4c3", b"index ", ":21: .* full 40 digit"),
        (b"--- a/b.py\n", b"--- a/b.py\r\n", ":23: " + HEAD),
        (b"@@ -1 +1,2 @@\n-x\n+y\n+z\n", b"x", HEAD),
        (b"@@ -1 +1,2 @@", b"@@ -1 +1,3 @@", ":25: .*" + NUMBERS),
        (b"@@ -1 +1,2 @@", b"@@ -1,2 +1,2 @@", NUMBERS),
        (b"@@ -1 +1,2 @@", b"@@ -1 +1 @@", NUMBERS),
        (b"@@ -1 +1,2 @@", b"@@ -1 +2,2 @@", NUMBERS),
        (b"@@ -1 +1,2 @@", b"@@ -1,1 +1,2 @@", NUMBERS),
        (b"-x\n", b"-\0\n", LINES),
        (b"-x\n", b"-x\n\n", LINES),
        (b"+one\n", b"+one\n\\ No newline at end of file\n", LINES),
        (b"\\ No newline at", b"\\ No end at", LINES),
        (
            b"\n+two\n\\ No",
            b"\n+two\n\\ No newline at end of file\n\\ No",
            LINES,
        ),
        (b"+two\n", b"+too\n", WHOLE),
        (b"-gone\n", b"-went\n", WHOLE),
        (b"@@ -1 +0,0 @@\n-gone", b"@@ -1,2 +1 @@\n-gone\n x", WHOLE),
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
    with pytest.raises(BadInput, match=f"patch:21: .*{TWO_BLOBS}"):
        patch_file.parse(data)


def test_an_edit_has_a_hunk() -> None:
    text = make_edit("x", b"1\n", b"2\n").text
    with pytest.raises(BadInput, match=f"diff:2: .*{TWO_BLOBS}"):
        patch_file.parse_control(b"Why.\n" + text[: text.index(b"--- ")])


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
    assert diff.forward(None, section) == content
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
    for moved in (b"@@ -18,7 +20,7 @@", b"@@ -2,7 +3,7 @@", b"@@ -50,7 +51,7 @@"):
        with pytest.raises(BadInput, match=NUMBERS):
            wrong = data.replace(b"@@ -18,7 +19,7 @@", moved)
            patch_file.parse_control(b"Why.\n" + wrong)


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
    with pytest.raises(BadInput, match=NUMBERS):
        patch_file.parse_control(b"Why.\n" + head + hunks)[1]


def test_changed_lines_are_counted() -> None:
    assert diff.changed_lines(make_edit("b.py", b"x\n", b"y\nz\n")) == (2, 1)


def test_a_control_needs_an_explanation() -> None:
    section = make_edit("b.py", b"x\n", b"y\n")
    assert patch_file.parse_control(b"Why.\n" + section.text) == ("Why.", (section,))
    for data, what in (
        (section.text, "explains"),
        (b"Why: \xff\n" + section.text, "in UTF-8"),
        (b"Why.\n", "there is no diff"),
    ):
        with pytest.raises(BadInput, match=what):
            patch_file.parse_control(data)


line = st.sampled_from([b"a", b"b", b"", b"\t c", b"d\r", b"\\ x", b"\xff"])
text = st.builds(
    lambda lines, end: b"".join(one + b"\n" for one in lines) + end,
    st.lists(line, max_size=12),
    st.sampled_from([b"", b"", b"a", b"no end"]),
)


@settings(max_examples=60, deadline=None)
@given(old=text, new=text)
def test_what_git_writes_goes_in_and_out(old: bytes, new: bytes) -> None:
    if old == new:
        return
    with workshop.bare() as shop:
        start = shop.start({"x.py": old}, {"x.py": "100644"}, "start")
        shop.put("x.py", "100644", new)
        data = shop.format(shop.commit(start, make_patch_file()))
    (section,) = patch_file.parse(data).sections
    assert forward(old, section) == new
    assert backward(new, section) == old


def test_whole_files() -> None:
    add, delete = diff.render_add("x.py", b"x"), make_delete("x.py", b"x\n")
    assert forward(None, add) == b"x" and backward(b"x", add) is None
    assert forward(b"x\n", delete) is None and backward(None, delete) == b"x\n"


@pytest.mark.parametrize("content", [None, b"", b"other\n", b"a\nb", b"a\nb\n\n"])
def test_any_other_file_is_refused(content: bytes | None) -> None:
    section = make_edit("x.py", b"a\nb\n", b"c\n")
    with pytest.raises(Conflict, match="the patch does not fit x.py"):
        forward(content, section)
    with pytest.raises(Conflict, match="the patch does not fit x.py"):
        backward(content, section)


def test_a_hunk_that_lies_about_its_place_is_refused() -> None:
    """Its blob ids fit, its lines stand one line further down."""
    old, new = b"x\na\nb\nc\n", b"x\na\nB\nc\n"
    section = make_edit("x.py", b"a\nb\nc\n", b"a\nB\nc\n")
    moved = section.text.replace(
        f"{section.old}..{section.new}".encode(),
        f"{diff.blob_id(old)}..{diff.blob_id(new)}".encode(),
    )
    liar = msgspec.structs.replace(
        section, text=moved, old=diff.blob_id(old), new=diff.blob_id(new)
    )
    with pytest.raises(Conflict, match="does not fit x.py") as caught:
        forward(old, liar)
    assert "do not stand at its line" in caught.value.cause


def test_a_hunk_that_lies_about_its_result_is_refused() -> None:
    section = make_edit("x.py", b"a\n", b"b\n")
    liar = msgspec.structs.replace(section, new="1" * 40)
    with pytest.raises(Conflict) as caught:
        forward(b"a\n", liar)
    assert "expected blob 1111" in caught.value.cause


@given(text)
def test_lines_add_up(content: bytes) -> None:
    assert b"".join(lines_of(content)) == content
    assert all(b"\n" not in one[:-1] for one in lines_of(content))
