"""Mails are read strictly, and reading and writing are inverse."""

from __future__ import annotations

import contextlib
import string
import time
from pathlib import Path

import msgspec
import pytest
from factories import make_delete, make_edit, make_mail, make_repository, write_files
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dspark_patches import diff, mail
from dspark_patches.errors import BadInput, Failure
from dspark_patches.lines import MAX_BYTES

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
def mail_values(draw: st.DrawFn) -> mail.Mail:
    return make_mail(
        *draw(sections()),
        subject=draw(SUBJECT),
        body=draw(BODY),
        trailers=draw(TRAILERS),
    )


@given(mail_values())
def test_parse_inverts_render(value: mail.Mail) -> None:
    try:
        data = mail.render(value)
    except BadInput:
        assume(False)
    assert mail.parse(data) == value


def sample() -> bytes:
    return mail.render(
        make_mail(
            diff.render_add("a/new.py", b"one\ntwo"),
            make_edit("b.py", b"x\n", b"y\nz\n"),
            make_delete("c.py", b"gone\n"),
        )
    )


CORRUPTION = st.tuples(
    st.sampled_from(["replace", "insert", "delete", "cut", "double"]),
    st.integers(0, len(sample())),
    st.binary(min_size=1, max_size=3) | st.sampled_from([b"\n", b"\r\n", b" ", b"\0"]),
)


@settings(max_examples=500)
@given(st.lists(CORRUPTION, min_size=1, max_size=3))
def test_a_corrupt_mail_is_refused_or_read_exactly(changes: list) -> None:
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
        value = mail.parse(data)
    except Failure:
        return
    assert mail.render(value) == data


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        (b"b.py", b"../b.py", "climbs"),
        (b"b.py", b"/b.py", "absolute"),
        (b"b.py", b"x/.GiT/b.py", "git directory"),
        (b"b.py", b".git./b.py", "git directory"),
        (b"b.py", b"b\\.py", "character"),
        (b"b.py", b"b\x01.py", "character"),
        (b"b.py", b"b .py", "character"),
        (b"b.py", b"a/new.py", "out of order"),
        (b"c.py", b"b.py/x", "both a file and a folder"),
        (b"diff --git a/b.py b/b.py", b'diff --git "a/b.py" "b/b.py"', "quoted"),
        (b"diff --git a/b.py b/b.py", b"diff --git a/b.py b/c.py", "one path"),
        (b" 100644\n--- a/b", b" 120000\n--- a/b", "a link or submodule"),
        (b" 100644\n--- a/b", b" 160000\n--- a/b", "a link or submodule"),
        (b" 100644\n--- a/b", b"\n--- a/b", "mode is missing"),
        (b"\nindex 587be6b", b"\nold mode 100644\nindex 587be6b", "a mode change"),
        (b"\nindex 587be6b", b"\nrename from x\nindex 587be6b", "a rename"),
        (b"\nindex 587be6b", b"\nGIT binary patch\nindex 587be6b", "a binary patch"),
        (b"587be6b4c3f93f93c489c0111bba5596147a26cb", b"587be6b", "full 40 digit"),
        (b"@@ -1 +1,2 @@", b"@@ -1 +1,3 @@", "shorter than its counts"),
        (b"@@ -1 +1,2 @@", b"@@ -1,2 +1,2 @@", "shorter than its counts"),
        (b"@@ -1 +1,2 @@", b"@@ -1 +1 @@", "expected 'diff --git"),
        (b"@@ -1 +1,2 @@", b"@@ -1 +2,2 @@", "do not follow"),
        (b"@@ -1 +1,2 @@", b"@@ -1,1 +1,2 @@", "expected '@@"),
        (b"-x\n", b"-\0\n", "binary"),
        (b"+two\n", b"+too\n", "does not hash"),
        (b"-gone\n", b"-went\n", "does not hash"),
        (b"+one\n", b"+one\n\\ No newline at end of file\n", "longer than its counts"),
        (b"--- a/b.py\n", b"--- a/b.py\r\n", "expected '--- a/b.py'"),
        (
            b"\n+two\n\\ No",
            b"\n+two\n\\ No newline at end of file\n\\ No",
            "ends twice",
        ),
        (b"@@ -1 +1,2 @@\n-x\n+y\n+z\n", b"x", "expected a hunk"),
        (b"@@ -1 +0,0 @@\n-gone", b"@@ -1,2 +1 @@\n-gone\n x", "whole in one hunk"),
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
        (b"ticked twice. ", b"ticked twice. \n", "ends with white space"),
        (b"Subject: [PATCH] Tick the", b"Subject: [PATCH] Tick\n the", "folded"),
        (b"The clock", b"The clock \xc3\xa9", "plain ASCII"),
        (b"The clock", b"---\nThe clock", "take this line"),
        (b"The clock", b"Subject: The clock", "take this line"),
        (b"The clock", b"From here the clock", "take this line"),
        (b"\n\nThe clock", b"\n\n\nThe clock", "a blank line too many"),
        (b"Fixes: ", b"  Fixes: ", "among the trailers"),
        (b"Date: ", b"MIME-Version: 1.0\nDate: ", "expected 'Date: "),
    ],
)
def test_what_is_not_canonical_is_named(old: bytes, new: bytes, what: str) -> None:
    data = sample()
    assert old in data
    with pytest.raises(BadInput, match=what) as caught:
        mail.parse(data.replace(old, new), "v0.5.16/0001-x.patch")
    assert str(caught.value).startswith("v0.5.16/0001-x.patch:")


def test_a_failure_names_the_line() -> None:
    data = sample().replace(b"@@ -1 +1,2 @@", b"@@ -1 +1,3 @@")
    with pytest.raises(BadInput) as caught:
        mail.parse(data)
    after_hunk = data[: data.index(b"diff --git a/c.py")].count(b"\n") + 1
    assert str(caught.value).startswith(f"mail:{after_hunk}: ")


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
        mail.parse(data)


def test_a_huge_mail_is_refused_at_once() -> None:
    start = time.perf_counter()
    with pytest.raises(BadInput, match="larger than"):
        mail.parse(sample() + b"x" * 100_000_000 + b"\n")
    assert time.perf_counter() - start < 1


@pytest.mark.parametrize("line", [b"x", b"/", b"\n", b"+a\n", b"@@ -1 +1 @@\n"])
@pytest.mark.parametrize("place", [b"From ", b"Subject: ", b"\n\n", b"a/", b"@@ -1 "])
def test_long_runs_take_linear_time(line: bytes, place: bytes) -> None:
    data = sample()
    at = data.index(place) + len(place)
    noise = line * (MAX_BYTES // 4 // len(line))
    start = time.perf_counter()
    with contextlib.suppress(BadInput):
        mail.parse(data[:at] + noise + data[at:])
    assert time.perf_counter() - start < 5


def test_a_failure_stays_short_whatever_the_line() -> None:
    data = sample().replace(b"b.py", b"/" * 1_000_000)
    with pytest.raises(BadInput, match="longer than") as caught:
        mail.parse(data)
    assert len(str(caught.value)) < 200


@settings(max_examples=5, deadline=None)
@given(values=st.lists(st.tuples(SUBJECT, BODY, TRAILERS), min_size=10, max_size=20))
def test_git_writes_these_messages_the_same(
    tmp_path_factory: pytest.TempPathFactory, values: list
) -> None:
    git = make_repository(tmp_path_factory.mktemp("git"), {"base": b""})
    written = []
    for number, (subject, body, trailers) in enumerate(values):
        section = diff.render_add(f"f{number}", b"x\n")
        value = make_mail(section, subject=subject, body=body, trailers=trailers)
        with contextlib.suppress(BadInput):
            written.append(mail.render(value))
    assume(written)
    git.run("am", "-q", stdin=b"".join(written))
    options = ("--full-index", "--zero-commit", "--no-signature", "--no-stat")
    count = f"-{len(written)}"
    output = git.run("format-patch", "--stdout", *options, "-N", "-U3", count)
    assert output == b"\n".join(written)


def test_git_writes_these_sections_the_same(tmp_path: Path) -> None:
    before = {"a/b.py": b"1\n2\n3", "empty": b"", "gone": b"x\n", "crlf": b"a\r\nb\r\n"}
    after = {"a/b.py": b"1\n2\n", "empty": b"y", "crlf": b"a\r\nc\r\n", "new/e": b""}
    git = make_repository(tmp_path, before)
    (tmp_path / "gone").unlink()
    write_files(tmp_path, after)
    git.run("add", "-A")
    data = git.run("diff", "--cached", "--full-index", "--no-renames")
    found = mail.parse_diff(b"Why.\n\n" + data)
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
        mail.render(msgspec.structs.replace(make_mail(), **changes))


def test_hunks_say_where_they_land(tmp_path: Path) -> None:
    old = [b"%d\n" % number for number in range(40)]
    new = [b"first\n", *old[:20], b"middle\n", *old[21:39]]
    git = make_repository(tmp_path, {"x.py": b"".join(old)})
    write_files(tmp_path, {"x.py": b"".join(new)})
    data = git.run("diff", "--full-index")
    (section,) = mail.parse_diff(b"Why.\n" + data)
    places = [
        (hunk.old_start, hunk.old_count, hunk.new_start, hunk.new_count)
        for hunk in diff.hunks(section)
    ]
    assert places == [(1, 3, 1, 4), (18, 7, 19, 7), (37, 4, 38, 3)]
    for moved in (b"@@ -18,7 +20,7 @@", b"@@ -2,7 +3,7 @@", b"@@ -50,7 +51,7 @@"):
        with pytest.raises(BadInput, match="line numbers do not follow"):
            mail.parse_diff(b"Why.\n" + data.replace(b"@@ -18,7 +19,7 @@", moved))


def test_changed_lines_are_counted() -> None:
    assert diff.changed_lines(make_edit("b.py", b"x\n", b"y\nz\n")) == (2, 1)


def test_a_control_needs_an_explanation() -> None:
    section = make_edit("b.py", b"x\n", b"y\n")
    assert mail.parse_control(b"Why.\n" + section.text) == ("Why.", (section,))
    with pytest.raises(BadInput, match="explains"):
        mail.parse_diff(section.text)
    with pytest.raises(BadInput, match="there is no diff"):
        mail.parse_diff(b"Why.\n")
    with pytest.raises(BadInput, match="not UTF-8"):
        mail.parse_diff(b"Why: \xff\n" + section.text)
