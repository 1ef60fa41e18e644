"""Hunks go in and come out exactly where they say."""

from __future__ import annotations

import msgspec
import pytest
from factories import make_delete, make_edit, make_patch_file
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_patches.errors import Conflict
from dspark_patches.model import diff, patch_file
from dspark_patches.model.patching import backward, forward, lines_of
from dspark_patches.trees import workshop

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
    with pytest.raises(Conflict, match="x.py is not the file that the patch says"):
        forward(content, section)
    with pytest.raises(Conflict, match="x.py is not the file that the patch says"):
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
    with pytest.raises(Conflict, match="does not fit at line 1") as caught:
        forward(old, liar)
    assert "expected b'a" in caught.value.cause


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
