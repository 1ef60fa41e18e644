"""Sections of a git diff, read strictly.

A section is one file's part of a diff. Only what the series needs is allowed:
text files that are added, edited or deleted. Everything else that git can
express (renames, mode changes, links, binary data) and everything that it
tolerates (fuzzy headers, counts that do not add up) is refused, because a
reader that guesses lands a hunk in the wrong place.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from .hunks import NO_NEWLINE, Hunk, one_side, read_all
from .lines import Malformed, Reader

Kind = Literal["add", "edit", "delete"]

ZEROS = "0" * 40
MODES = ("100644", "100755")

_COMPONENT = re.compile(r"[A-Za-z0-9_.+@~-]+", re.ASCII)
_GIT_DIRECTORY = re.compile(r"(\.git|git~[0-9]+)", re.IGNORECASE)
_INDEX = re.compile(r"index ([0-9a-f]{40})\.\.([0-9a-f]{40})(?: ([0-7]{6}))?", re.ASCII)
_LONGEST_PATH = 512
_WHOLE: dict[str, Kind] = {"new file mode ": "add", "deleted file mode ": "delete"}
_REFUSED = {
    "old mode ": "a mode change",
    "new mode ": "a mode change",
    "similarity index ": "a rename or copy",
    "dissimilarity index ": "a rewrite",
    "rename ": "a rename",
    "copy ": "a copy",
    "GIT binary patch": "a binary patch",
    "Binary files ": "a binary patch",
}


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """One file's part of a diff; ``text`` holds it verbatim."""

    path: str
    kind: Kind
    mode: str
    old: str
    new: str
    text: bytes


def blob_id(content: bytes) -> str:
    """The id that git gives to a file of this content."""
    header = b"blob %d\0" % len(content)
    return hashlib.sha1(header + content, usedforsecurity=False).hexdigest()


def check_path(path: str) -> str:
    """Why ``path`` cannot be a file of the series, or an empty string."""
    if len(path) > _LONGEST_PATH:
        return f"the path is longer than {_LONGEST_PATH} characters"
    for part in path.split("/"):
        if part in ("", ".", ".."):
            return f"the path {path!r} is absolute, climbs or is not normal"
        if not _COMPONENT.fullmatch(part):
            return f"the path {path!r} has a character that no path here may have"
        if _GIT_DIRECTORY.fullmatch(part.rstrip(".")):
            return f"the path {path!r} points into a git directory"
    return ""


def parse(lines: Sequence[bytes], name: str, first: int = 1) -> tuple[Section, ...]:
    """Read a run of sections.

    Args:
        lines: the diff's lines without their newlines.
        name: the file that they come from, for errors.
        first: the number of the first line in that file.

    Raises:
        Malformed: anything but a canonical diff of added, edited and deleted
            text files, in git's path order.
    """
    reader = Reader(lines, name, first)
    sections: list[Section] = []
    parents: set[str] = set()
    while reader.more():
        start = reader.number
        section = _section(reader)
        if sections and section.path.encode() <= sections[-1].path.encode():
            reader.fail(f"{section.path} is a duplicate or out of order", start)
        parts = section.path.split("/")
        parents.update("/".join(parts[:n]) for n in range(1, len(parts)))
        sections.append(section)
    for section in sections:
        if section.path in parents:
            reader.fail(f"{section.path} is both a file and a folder", first)
    return tuple(sections)


def hunks(section: Section) -> tuple[Hunk, ...]:
    """The hunks of a section that :func:`parse` accepted."""
    reader = Reader(section.text.split(b"\n")[:-1], section.path, 1)
    while reader.more() and not reader.peek().startswith(b"@@ "):
        reader.take()
    return read_all(reader)


def changed_lines(section: Section) -> tuple[int, int]:
    """How many lines a section adds and removes."""
    lines = [line[:1] for hunk in hunks(section) for line in hunk.lines]
    return lines.count(b"+"), lines.count(b"-")


def added_content(section: Section) -> bytes:
    """The whole file that an "add" section creates."""
    return one_side(hunks(section), b"+")


def render_add(path: str, content: bytes, mode: str = "100644") -> Section:
    """The "add" section that git writes for a new file.

    Raises:
        Malformed: the path or the content cannot be part of a series.
    """
    if why := check_path(path):
        raise Malformed("added file", 0, why)
    blob = blob_id(content)
    text = f"diff --git a/{path} b/{path}\nnew file mode {mode}\n"
    text += f"index {ZEROS}..{blob}\n"
    body = [text.encode()]
    if content:
        lines = content.removesuffix(b"\n").split(b"\n")
        count = b"1" if len(lines) == 1 else b"1,%d" % len(lines)
        body.append(f"--- /dev/null\n+++ b/{path}\n".encode())
        body.append(b"@@ -0,0 +%s @@\n" % count)
        body.extend(b"+%s\n" % line for line in lines)
        if not content.endswith(b"\n"):
            body.append(NO_NEWLINE + b"\n")
    (section,) = parse(b"".join(body).split(b"\n")[:-1], path)
    return section


def _section(reader: Reader) -> Section:
    start, number = reader.at, reader.number
    path = _path(reader)
    kind, mode, old, new = _kind(reader)
    found: tuple[Hunk, ...] = ()
    if reader.peek().startswith(b"--- "):
        before = "/dev/null" if kind == "add" else f"a/{path}"
        after = "/dev/null" if kind == "delete" else f"b/{path}"
        for expected in (f"--- {before}", f"+++ {after}"):
            if reader.peek() != expected.encode():
                reader.fail(f"expected {expected!r}")
            reader.take()
        found = read_all(reader)
        if not found:
            reader.fail("expected a hunk")
    _agrees(reader, number, kind, (old, new), found)
    text = b"\n".join(reader.since(start)) + b"\n"
    return Section(path=path, kind=kind, mode=mode, old=old, new=new, text=text)


def _path(reader: Reader) -> str:
    number = reader.number
    line = reader.header()
    half, odd = divmod(len(line) - len("diff --git a/ b/"), 2)
    path = line[len("diff --git a/") :][: max(half, 0)]
    if line.startswith('diff --git "'):
        reader.fail("quoted paths are not allowed", number)
    if odd or not path or line != f"diff --git a/{path} b/{path}":
        reader.fail("expected 'diff --git a/PATH b/PATH' with one path", number)
    if why := check_path(path):
        reader.fail(why, number)
    return path


def _kind(reader: Reader) -> tuple[Kind, str, str, str]:
    kind: Kind = "edit"
    mode = ""
    line = reader.header()
    for prefix, changed in _WHOLE.items():
        if line.startswith(prefix):
            kind, mode = changed, line.removeprefix(prefix)
            line = reader.header()
    number = reader.number - 1
    _refuse(reader, line, number)
    index = _INDEX.fullmatch(line)
    if not index:
        reader.fail("expected 'index OLD..NEW' with full 40 digit blob ids", number)
    if (index[3] is None) != bool(mode):
        reader.fail("the file mode is missing or stands twice", number)
    mode = mode or index[3]
    if mode not in MODES:
        reader.fail(f"file mode {mode} (a link or submodule) is not allowed", number)
    _refuse(reader, reader.peek().decode("latin-1"), reader.number)
    return kind, mode, index[1], index[2]


def _refuse(reader: Reader, line: str, number: int) -> None:
    for prefix, refused in _REFUSED.items():
        if line.startswith(prefix):
            reader.fail(f"{refused} is not allowed", number)


def _agrees(
    reader: Reader,
    number: int,
    kind: Kind,
    ids: tuple[str, str],
    found: Sequence[Hunk],
) -> None:
    old, new = ids
    if kind == "edit":
        if ZEROS in ids or old == new or not found:
            reader.fail("an edit needs two blobs that differ, and a hunk", number)
        return
    marker, absent, blob = (b"+", old, new) if kind == "add" else (b"-", new, old)
    whole = all(line[:1] in (marker, b"\\") for hunk in found for line in hunk.lines)
    if absent != ZEROS or len(found) > 1 or not whole:
        reader.fail("an added or deleted file must stand whole in one hunk", number)
    if blob_id(one_side(found, marker)) != blob:
        reader.fail(f"the content does not hash to the blob id {blob}", number)
