"""The installer's list of files comes back byte for byte."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dspark_patches.change.record import updated

ROW = b"sglang/x.py,sha256=uU0nuZNNPgilLlLX2n2r-sSE7-N6U4DukIj3rOLvzek,11"
OTHER = b"sglang/y.py,sha256=abc,3"


def test_a_row_is_written_as_pip_writes_it() -> None:
    listed = b"\r\n".join([OTHER, ROW, b""])
    changed = updated(listed, {"sglang/x.py": (b"hello world", b"")})
    empty = b"sglang/x.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0"
    assert changed == b"\r\n".join([OTHER, empty, b""])


def test_an_added_file_gets_one_row() -> None:
    listed = OTHER + b"\n"
    once = updated(listed, {"sglang/x.py": (None, b"hello world")})
    assert once == OTHER + b"\n" + ROW + b"\n"
    assert updated(once, {"sglang/x.py": (None, b"hello world")}) == once
    assert updated(once, {"sglang/x.py": (b"hello world", None)}) == listed


def test_a_row_that_says_something_else_is_left_alone() -> None:
    listed = OTHER + b"\n" + ROW + b"\n"
    assert updated(listed, {"sglang/y.py": (b"other", b"new")}) == listed


def test_a_list_that_does_not_end_is_left_alone() -> None:
    assert updated(ROW, {"sglang/z.py": (None, b"z")}) == ROW
    assert updated(b"", {"sglang/z.py": (None, b"z")}) == b""


contents = st.binary(max_size=4)
paths = st.sampled_from(["sglang/x.py", "sglang/y.py", "sglang/z.py"])
lines = st.binary(max_size=12).map(lambda b: b.replace(b"\n", b"").replace(b"\r", b""))


@given(
    released=st.dictionaries(paths, contents),
    patched=st.dictionaries(paths, contents),
    noise=st.lists(lines, max_size=3),
    ending=st.sampled_from([b"\n", b"\r\n"]),
)
def test_there_and_back(released, patched, noise, ending) -> None:
    """Files edited and added; no patched file has the content of its release."""
    patched = {p: c for p, c in patched.items() if released.get(p) != c}
    record = b"".join(line + ending for line in noise)
    record = updated(record, {p: (None, c) for p, c in released.items()})
    there = {p: (released.get(p), c) for p, c in patched.items()}
    back = {p: (new, old) for p, (old, new) in there.items()}
    changed = updated(record, there)
    assert updated(changed, there) == changed
    assert updated(changed, back) == record
