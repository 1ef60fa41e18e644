"""The installer's list of files comes back byte for byte."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dspark_patches.installs.record import row, updated

ROW = b"sglang/x.py,sha256=uU0nuZNNPgilLlLX2n2r-sSE7-N6U4DukIj3rOLvzek,11"
OTHER = b"sglang/y.py,sha256=abc,3"


def test_a_row_is_written_as_pip_writes_it() -> None:
    listed = b"\r\n".join([OTHER, ROW, b""])
    changed = updated(listed, {"sglang/x.py": (b"hello world", b"")}, patched=True)
    empty = b"sglang/x.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0"
    assert changed == b"\r\n".join([OTHER, empty, b""])


def test_an_added_file_gets_one_row() -> None:
    listed = OTHER + b"\n"
    files = {"sglang/x.py": (None, b"first", b"hello world")}
    once = updated(listed, files, patched=True)
    assert once == OTHER + b"\n" + ROW + b"\n"
    assert updated(once, files, patched=True) == once
    assert updated(once, files, patched=False) == listed
    # Also where a shorter series has been before.
    short = updated(listed, {"sglang/x.py": (None, b"first")}, patched=True)
    assert updated(short, files, patched=True) == once
    assert updated(short, files, patched=False) == listed


def test_a_row_that_says_something_else_is_left_alone() -> None:
    listed = OTHER + b"\n" + ROW + b"\n"
    files = {"sglang/y.py": (b"other", b"new")}
    assert updated(listed, files, patched=True) == listed


def test_a_list_that_does_not_end_is_left_alone() -> None:
    files = {"sglang/z.py": (None, b"z")}
    assert updated(ROW, files, patched=True) == ROW
    assert updated(b"", files, patched=True) == b""


contents = st.binary(max_size=4)
paths = st.sampled_from(["sglang/x.py", "sglang/y.py", "sglang/z.py"])
lines = st.binary(max_size=12).map(lambda b: b.replace(b"\n", b"").replace(b"\r", b""))
series = st.dictionaries(
    paths, st.lists(contents | st.none(), min_size=2, max_size=3, unique=True)
)


@given(
    files=series, noise=st.lists(lines, max_size=3), ending=st.sampled_from(["", "\r"])
)
def test_there_and_back(files, noise, ending) -> None:
    """Files edited, added and deleted, with none of a file's contents twice."""
    end = ending.encode() + b"\n"
    released = [row(p, c[0]) for p, c in files.items() if c[0] is not None]
    record = b"".join(line + end for line in (*noise, *released))
    changed = updated(record, files, patched=True)
    assert updated(changed, files, patched=True) == changed
    assert updated(changed, files, patched=False) == record
