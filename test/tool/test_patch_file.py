"""Patches are read strictly, and reading and writing are inverse."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from factories import make_patch_file, make_repository
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from patch_files import BODY, SUBJECT, TRAILERS, patch_file_values, sample

from dspark_patches.errors import BadInput, Failure
from dspark_patches.files import MAX_BYTES
from dspark_patches.model import diff, patch_file


@given(patch_file_values())
def test_parse_inverts_render(value: patch_file.PatchFile) -> None:
    try:
        data = patch_file.render(value)
    except BadInput:
        assume(False)
    assert patch_file.parse(data) == value


CORRUPTION = st.tuples(
    st.sampled_from(["replace", "insert", "delete", "cut", "double"]),
    st.integers(0, len(sample())),
    st.binary(min_size=1, max_size=3) | st.sampled_from([b"\n", b"\r\n", b" ", b"\0"]),
)


@settings(max_examples=500)
@given(st.lists(CORRUPTION, min_size=1, max_size=3))
def test_a_corrupt_patch_is_refused_or_read_exactly(changes: list) -> None:
    data = sample()
    for how, at, noise in changes:
        data = {
            "replace": data[:at] + noise + data[at + len(noise) :],
            "insert": data[:at] + noise + data[at:],
            "delete": data[:at] + data[at + len(noise) :],
            "cut": data[:at],
            "double": data[:at] + data[max(0, at - 80) :],
        }[how]
    try:
        value = patch_file.parse(data)
    except Failure:
        return
    assert patch_file.render(value) == data


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        (b"From: dspark-patches", b"From: =?UTF-8?q?x?=", "NAME <ADDRESS>"),
        (b"Date: Tue", b"Date: Wed", "a date as git writes it"),
        (b"Date: Tue, 1 Sep", b"Date: Tue, 01 Sep", "a date as git writes it"),
        (b"1 Sep 2026 12:00:00 +0000", b"1 Sep 1970", "a date as git writes it"),
        (b"Tue, 1 Sep 2026", b"Mon, 1 Sep 1969", "a date as git writes it"),
        (b"Date: Tue, ", b"Date: ", "a date as git writes it"),
        (b"12:00:00 +0000", b"12:00:00 -0000", "a date as git writes it"),
        (b"12:00:00 +0000", b"32:00:00 +0000", "a date as git writes it"),
        (b"Subject: [PATCH] Tick", b"Subject: [PATCH] [Spec] Tick", "git am"),
        (b"Subject: [PATCH] Tick", b"Subject: [PATCH] Re: Tick", "git am"),
        (b"Subject: [PATCH] Tick", b"Subject: [PATCH]  Tick", "git am"),
        (b"Subject: [PATCH] Tick", b"Subject: [PATCH] Tick ", "single spaces"),
        (b"ticked twice. ", b"ticked twice. \n", "white space at its end"),
        (
            b"Subject: [PATCH] Tick the",
            b"Subject: [PATCH] Tick\n the",
            "git writes this line otherwise",
        ),
        (b"The clock", b"The clock \xc3\xa9", "plain ASCII"),
        (b"The clock", b"---\nThe clock", "take this line"),
        (b"The clock", b"Subject: The clock", "take this line"),
        (b"The clock", b"From here the clock", "take this line"),
        (b"\n\nThe clock", b"\n\n\nThe clock", "one blank line after each"),
        (b"Fixes: ", b"  Fixes: ", "among the trailers"),
        (b"Date: ", b"MIME-Version: 1.0\nDate: ", "expected 'Date: "),
    ],
)
def test_what_is_not_canonical_is_named(old: bytes, new: bytes, what: str) -> None:
    data = sample()
    assert old in data
    with pytest.raises(BadInput, match=what) as caught:
        patch_file.parse(data.replace(old, new), "v0.5.16/0001-x.patch")
    assert str(caught.value).startswith("v0.5.16/0001-x.patch:")


@pytest.mark.parametrize(
    "data",
    [
        sample()[:-1],
        sample().replace(b"\n", b"\r\n"),
        b"",
        b"\n",
        b"diff --git a/x b/x\n",
        b"x" * 100,
    ],
)
def test_broken_files_are_refused(data: bytes) -> None:
    with pytest.raises(BadInput):
        patch_file.parse(data)


@pytest.mark.parametrize("count", [*range(7), 8, 9])
def test_a_message_that_breaks_off_is_refused(count: int) -> None:
    head, _, rest = sample().partition(b"diff --git ")
    lines = head.splitlines(keepends=True)
    assert len(lines) == 11
    with pytest.raises(BadInput):
        patch_file.parse(b"".join(lines[:count]) + b"diff --git " + rest)


def test_an_empty_message_is_refused() -> None:
    head, _, rest = sample().partition(b"The clock")
    with pytest.raises(BadInput, match="a message has paragraphs"):
        patch_file.parse(head + b"\n" + rest[rest.index(b"diff --git ") :])


@pytest.mark.parametrize(
    ("size", "refused"), [(998, False), (999, True)], ids=["longest", "too long"]
)
def test_a_message_line_has_a_limit(size: int, refused: bool) -> None:
    data = sample().replace(b"The clock ticked twice.", b"x" * size + b"\nAnd more.")
    if refused:
        with pytest.raises(BadInput, match="patch:6: .* at most 998"):
            patch_file.parse(data)
    else:
        assert patch_file.render(patch_file.parse(data)) == data


def test_prose_with_a_colon_is_no_trailer() -> None:
    data = sample()
    start, end = data.index(b"Upstream-Status: "), data.index(b"\n\ndiff --git")
    value = patch_file.parse(data[:start] + b"Note: this is\nprose." + data[end:])
    assert value.trailers == ()
    assert value.body.endswith("\n\nNote: this is\nprose.")


@pytest.mark.parametrize("key", patch_file.KNOWN_TRAILERS)
def test_prose_among_known_trailers_is_refused(key: str) -> None:
    data = sample()
    start, end = data.index(b"Upstream-Status: "), data.index(b"\n\ndiff --git")
    last = f"{key}: this is\nprose.".encode()
    with pytest.raises(BadInput, match="stands among the trailers"):
        patch_file.parse(data[:start] + last + data[end:])


def test_a_huge_patch_is_refused() -> None:
    with pytest.raises(BadInput, match="larger than"):
        patch_file.parse(sample() + b"x" * MAX_BYTES + b"\n")


@pytest.mark.parametrize(
    "line", [b"x", b"/", b"\n", b"+a\n", b"@@ -1 +1 @@\n", b" b/", b"diff --git a/"]
)
@pytest.mark.parametrize("place", [b"From ", b"Subject: ", b"\n\n", b"a/", b"@@ -1 "])
def test_long_runs_end(line: bytes, place: bytes) -> None:
    """In time that grows with their length alone; its square would be hours."""
    data = sample()
    at = data.index(place) + len(place)
    noise = line * (MAX_BYTES // 4 // len(line))
    with contextlib.suppress(BadInput):
        patch_file.parse(data[:at] + noise + data[at:])


def test_a_failure_stays_short_whatever_the_line() -> None:
    data = sample().replace(b"b.py", b"/" * 1_000_000)
    with pytest.raises(BadInput, match="expected 'diff --git") as caught:
        patch_file.parse(data)
    assert len(str(caught.value)) < 200


@settings(max_examples=5, deadline=None)
@given(values=st.lists(st.tuples(SUBJECT, BODY, TRAILERS), min_size=10, max_size=20))
def test_git_writes_these_messages_the_same(
    tmp_path_factory: pytest.TempPathFactory, values: list
) -> None:
    git = make_repository(tmp_path_factory.mktemp("git"), {"release": b""})
    written = []
    for number, (subject, body, trailers) in enumerate(values):
        section = diff.render_add(f"f{number}", b"x\n")
        value = make_patch_file(section, subject=subject, body=body, trailers=trailers)
        with contextlib.suppress(BadInput):
            written.append(patch_file.render(value))
    assume(written)
    git.run("am", "-q", stdin=b"".join(written))
    options = ("--full-index", "--zero-commit", "--no-signature", "--no-stat")
    count = f"-{len(written)}"
    output = git.run("format-patch", "--stdout", *options, "-N", "-U3", count)
    assert output == b"\n".join(written)


@pytest.mark.parametrize(
    "changes",
    [
        {"body": "Fixes: this paragraph is no trailer", "trailers": ()},
        {"body": "Ends with a blank line.\n"},
        {"body": "Not ASCII: \u00e9"},
        {"subject": "Tick\nthe clock"},
        {"subject": "Tick", "body": "", "trailers": ()},
        {"trailers": (("Two words", "x"),)},
        {"author": "Nobody"},
        {"sections": ()},
    ],
)
def test_what_cannot_be_read_back_is_not_written(changes: dict) -> None:
    with pytest.raises(BadInput):
        patch_file.render(msgspec.structs.replace(make_patch_file(), **changes))
