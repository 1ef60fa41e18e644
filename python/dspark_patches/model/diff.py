"""A git diff, read strictly, and put into files exactly where it says.

A section is one file's part of a diff. Only what the series needs is allowed: text
files that are added, edited or deleted, as git itself writes them. What git merely
tolerates (fuzzy headers, counts that do not add up) is refused, because a reader
that guesses lands a hunk in the wrong place. There is no search and no fuzz: a hunk's
old lines stand at its line number, and blob ids prove the result.
"""

from __future__ import annotations

import hashlib
import os
import re
from typing import Literal

import msgspec

from ..errors import Conflict, Malformed
from .hunks import NO_NEWLINE, Hunk, lines_of, read, replaced

Kind = Literal["add", "edit", "delete"]

ZEROS = "0" * 40
_COMPONENT = re.compile(r"[A-Za-z0-9_.+@~-]+", re.ASCII)
_GIT_DIRECTORY = re.compile(r"(\.git|git~[0-9]+)", re.IGNORECASE)
_LONGEST_PATH = 512
_SECTIONS = re.compile(rb"^(?=diff --git )", re.MULTILINE)
_HEADER = re.compile(
    rb"diff --git a/(?P<path>[^\n ]{1,512}) b/(?P=path)\n"
    rb"(?:(?P<whole>new|deleted) file mode (?P<mode>100644|100755)\n)?"
    rb"index (?P<old>[0-9a-f]{40})\.\.(?P<new>[0-9a-f]{40})"
    rb"(?: (?P<kept>100644|100755))?\n"
)
_EXPECTED = (
    "expected 'diff --git a/PATH b/PATH', then full 40 digit blob ids of a text file; "
    "a rename, a mode change, a link or a binary patch is not allowed"
)
_KINDS: dict[bytes | None, Kind] = {b"new": "add", b"deleted": "delete", None: "edit"}


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


def blob_of(content: bytes | None) -> str:
    """The same, where None stands for no file: zeros."""
    return ZEROS if content is None else blob_id(content)


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


def parse(data: bytes, name: str, first: int = 1) -> tuple[Section, ...]:
    """Read a run of sections; ``first`` is the line in file ``name`` that they begin at.

    Raises:
        Malformed: anything but a canonical diff of added, edited and deleted
            text files, in git's path order.
    """
    sections: dict[str, Section] = {}
    last = b""
    for text in filter(None, _SECTIONS.split(data)):
        section = _section(text, name, first)
        if section.path.encode() <= last:
            what = f"{section.path} is a duplicate or out of order"
            raise Malformed(name, first, what)
        above = section.path.split("/")
        if any("/".join(above[:n]) in sections for n in range(1, len(above))):
            raise Malformed(name, first, f"{section.path} lies below another file")
        sections[section.path] = section
        last = section.path.encode()
        first += text.count(b"\n")
    return tuple(sections.values())


def hunks(section: Section) -> tuple[Hunk, ...]:
    """The hunks of a section that :func:`parse` accepted."""
    return tuple(read(section.text, section.path, 1))


def changed_lines(section: Section) -> tuple[int, int]:
    """How many lines a section adds and removes."""
    markers = [line[:1] for hunk in hunks(section) for line in hunk.lines]
    return markers.count(b"+"), markers.count(b"-")


def render_add(path: str, content: bytes, mode: str = "100644") -> Section:
    """The "add" section that git writes for a new file.

    Raises:
        Malformed: the path or the content cannot be part of a series.
    """
    if why := check_path(path):
        raise Malformed("added file", 0, why)
    lines = lines_of(content)
    head = _head("add", path, mode, ZEROS, blob_id(content), bool(lines))
    if lines:
        count = b"" if len(lines) == 1 else b",%d" % len(lines)
        head += b"@@ -0,0 +1%s @@\n" % count
    end = b"" if content[-1:] in (b"", b"\n") else b"\n" + NO_NEWLINE + b"\n"
    (section,) = parse(head + b"".join(b"+" + line for line in lines) + end, path)
    return section


def forward(
    content: bytes | None, section: Section, source: str = "the patch"
) -> bytes | None:
    """The file after a section of ``source``; None stands for no file.

    Raises:
        Conflict: the file is not the one that the section was written for.
    """
    return _changed(content, section, 0, source)


def backward(
    content: bytes | None, section: Section, source: str = "the patch"
) -> bytes | None:
    """The file before a section of ``source``; None stands for no file.

    Raises:
        Conflict: the file is not the one that the section makes.
    """
    return _changed(content, section, 1, source)


def _section(text: bytes, name: str, first: int) -> Section:
    match = _HEADER.match(text)
    if not match:
        raise Malformed(name, first, _EXPECTED)
    kind = _KINDS[match["whole"]]
    path, old, new = (
        found.decode("latin-1") for found in match.group("path", "old", "new")
    )
    mode = (match["mode"] or match["kept"] or b"").decode()
    if why := check_path(path):
        raise Malformed(name, first, why)
    section = Section(path=path, kind=kind, mode=mode, old=old, new=new, text=text)
    found = tuple(read(text, name, first))
    head, end, _ = text.partition(b"\n@@ -")
    head, written = head + end[:1], _head(kind, path, mode, old, new, bool(found))
    if head != written:
        number = first + os.path.commonprefix([head, written]).count(b"\n")
        raise Malformed(name, number, "git writes the head of a text file otherwise")
    if old == new or (kind == "edit" and (ZEROS in (old, new) or not found)):
        what = "an edit needs two blobs that differ, and a hunk"
        raise Malformed(name, first, what)
    if kind != "edit":
        absent, blob = (old, new) if kind == "add" else (new, old)
        whole = replaced(b"", found, 0 if kind == "add" else 1)
        if absent != ZEROS or whole is None or blob_id(whole) != blob:
            what = "the file does not stand whole in one hunk, as its blob ids say"
            raise Malformed(name, first, what)
    return section


def _head(kind: Kind, path: str, mode: str, old: str, new: str, hunks: bool) -> bytes:
    """What git writes before a file's hunks."""
    whole = {"add": f"new file mode {mode}\n", "delete": f"deleted file mode {mode}\n"}
    kept = f" {mode}" if kind == "edit" else ""
    text = (
        f"diff --git a/{path} b/{path}\n{whole.get(kind, '')}index {old}..{new}{kept}\n"
    )
    before = "/dev/null" if kind == "add" else f"a/{path}"
    after = "/dev/null" if kind == "delete" else f"b/{path}"
    return (text + (f"--- {before}\n+++ {after}\n" if hunks else "")).encode()


def _changed(
    content: bytes | None, section: Section, of: int, source: str
) -> bytes | None:
    """The other side of a section, from its old (0) or its new (1) side."""
    old, new = (section.old, section.new)[:: -1 if of else 1]
    result, why = None, _unlike(content, old)
    if not why and new != ZEROS:
        result = replaced(content or b"", hunks(section), of)
        if result is None:
            why = "the lines of a hunk do not stand at its line"
    if why := why or _unlike(result, new):
        raise Conflict(
            f"{source} does not fit {section.path}",
            cause=why,
            next_step="run `dspark-patches check`",
        )
    return result


def _unlike(content: bytes | None, blob: str) -> str:
    found = blob_of(content)
    return f"expected blob {blob}, there is {found}" if found != blob else ""
