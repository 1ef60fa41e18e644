"""Patches to try readers with: one sample, and strategies for many."""

from __future__ import annotations

import string

from factories import make_delete, make_edit, make_patch_file
from hypothesis import assume
from hypothesis import strategies as st

from dspark_patches.model import diff, patch_file

WORD = st.text(string.ascii_letters + string.digits + "_.,()'\"<>@", min_size=1)
SUBJECT = st.lists(WORD.filter(lambda w: len(w) <= 60), min_size=1, max_size=20).map(
    " ".join
)
LINE = st.text(string.ascii_letters + "-:>#*. ", min_size=1, max_size=60).map(str.strip)
PARAGRAPH = st.lists(LINE.filter(bool), min_size=1, max_size=4).map("\n".join)
BODY = st.lists(PARAGRAPH, max_size=3).map("\n\n".join)
KEY = st.sampled_from(["Upstream-Status", "Fixes", "Regression-Test", "Link"])
TRAILERS = st.lists(st.tuples(KEY, WORD), min_size=1, max_size=4).map(tuple)
CONTENT = st.lists(st.sampled_from([b"a", b"", b"b\r", b"\xff", b"-- x"])).flatmap(
    lambda lines: st.sampled_from([b"\n".join(lines), b"\n".join([*lines, b""])])
)
PATH = st.lists(st.sampled_from(["a", "b-c", "d.py", "E"]), min_size=1, max_size=3).map(
    "/".join
)


@st.composite
def sections(draw: st.DrawFn) -> tuple[diff.Section, ...]:
    found = []
    for path in draw(st.sets(PATH, min_size=1, max_size=4)):
        old, new = draw(CONTENT), draw(CONTENT)
        kind = draw(st.sampled_from(["add", "edit", "delete"]))
        if kind == "add":
            found.append(diff.render_add(path, new))
        elif kind == "delete":
            found.append(make_delete(path, old))
        elif old != new:
            found.append(make_edit(path, old, new))
    assume(found)
    return tuple(sorted(found, key=lambda section: section.path))


@st.composite
def patch_file_values(draw: st.DrawFn) -> patch_file.PatchFile:
    return make_patch_file(
        *draw(sections()),
        subject=draw(SUBJECT),
        body=draw(BODY),
        trailers=draw(TRAILERS),
    )


def sample() -> bytes:
    return patch_file.render(
        make_patch_file(
            diff.render_add("a/new.py", b"one\ntwo"),
            make_edit("b.py", b"x\n", b"y\nz\n"),
            make_delete("c.py", b"gone\n"),
        )
    )
