"""Sections and hunks of a git diff, read strictly.

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
from typing import Literal, NoReturn

import msgspec

from ..lines import Malformed
from .hunks import NO_NEWLINE, Hunk, one_side
from .hunks import read as read_hunks

Kind = Literal["add", "edit", "delete"]

ZEROS = "0" * 40

_START = re.compile(rb"^(?=diff --git )", re.MULTILINE)
_MODES = ("100644", "100755")
_COMPONENT = re.compile(r"[A-Za-z0-9_.+@~-]+", re.ASCII)
_GIT_DIRECTORY = re.compile(r"(\.git|git~[0-9]+)", re.IGNORECASE)
_LONGEST_PATH = 512
# What a header may not say, then the one form that it has.
_REFUSED = re.compile(
    rb"^(?P<mode_change>(?:old|new) mode )|^(?P<rename_or_copy>(?:dis)?similarity |"
    rb"rename |copy )|^(?P<binary_patch>GIT binary|Binary files )|"
    rb'^(?P<quoted_path>diff --git ")',
    re.MULTILINE,
)
_HEADER = re.compile(
    rb"diff --git a/(?P<path>[^\n ]{1,512}) b/(?P=path)\n"
    rb"(?:(?P<whole>new|deleted) file mode (?P<mode>[0-7]{6})\n)?"
    rb"index (?P<old>[0-9a-f]{40})\.\.(?P<new>[0-9a-f]{40})(?: (?P<kept>[0-7]{6}))?\n"
    rb"(?P<files>--- (?P<before>[^\n]+)\n\+\+\+ (?P<after>[^\n]+)\n)?"
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
    """Read a run of sections.

    Args:
        data: the diff; its last line ends.
        name: the file that it comes from, for errors.
        first: the number of its first line in that file.

    Raises:
        Malformed: anything but a canonical diff of added, edited and deleted
            text files, in git's path order.
    """
    sections: list[Section] = []
    parents: set[str] = set()
    for text in _START.split(data):
        if not text and not sections:
            continue
        section = _section(text, name, first)
        if sections and section.path.encode() <= sections[-1].path.encode():
            _bad(name, first, f"{section.path} is a duplicate or out of order")
        parts = section.path.split("/")
        parents.update("/".join(parts[:n]) for n in range(1, len(parts)))
        sections.append(section)
        first += text.count(b"\n")
    for section in sections:
        if section.path in parents:
            _bad(name, first, f"{section.path} is both a file and a folder")
    return tuple(sections)


def hunks(section: Section) -> tuple[Hunk, ...]:
    """The hunks of a section that :func:`parse` accepted."""
    return tuple(read_hunks(section.text, section.path, 1))


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
    text = f"diff --git a/{path} b/{path}\nnew file mode {mode}\n"
    text += f"index {ZEROS}..{blob_id(content)}\n"
    body = [text.encode()]
    if content:
        lines = content.removesuffix(b"\n").split(b"\n")
        count = b"1" if len(lines) == 1 else b"1,%d" % len(lines)
        body.append(f"--- /dev/null\n+++ b/{path}\n".encode())
        body.append(b"@@ -0,0 +%s @@\n" % count)
        body.extend(b"+%s\n" % line for line in lines)
        if not content.endswith(b"\n"):
            body.append(NO_NEWLINE + b"\n")
    (section,) = parse(b"".join(body), path)
    return section


def _bad(name: str, number: int, what: str) -> NoReturn:
    raise Malformed(name, number, what)


def _section(text: bytes, name: str, first: int) -> Section:
    head = text.partition(b"\n@@ ")[0] + b"\n"
    if refused := _REFUSED.search(head):
        number = first + head[: refused.start()].count(b"\n")
        _bad(name, number, f"a {refused.lastgroup} is not allowed".replace("_", " "))
    match = _HEADER.match(text)
    if not match:
        _bad(
            name,
            first,
            "expected 'diff --git a/PATH b/PATH', then full 40 digit blob ids",
        )
    path = match["path"].decode("latin-1")
    if why := check_path(path):
        _bad(name, first, why)
    kind = _KINDS[match["whole"]]
    if (match["mode"] is None) == (match["kept"] is None):
        _bad(name, first, "the file mode is missing or stands twice")
    mode = (match["mode"] or match["kept"]).decode()
    if mode not in _MODES:
        _bad(name, first, f"file mode {mode} (a link or submodule) is not allowed")
    before = "/dev/null" if kind == "add" else f"a/{path}"
    after = "/dev/null" if kind == "delete" else f"b/{path}"
    files = f"--- {before}\n+++ {after}\n".encode()
    if match["files"] not in (None, files):
        _bad(name, first, f"expected '--- {before}' and '+++ {after}'")
    rest = text[match.end() :]
    if bool(rest) != bool(match["files"]) or (rest and not rest.startswith(b"@@ ")):
        _bad(name, first + head.count(b"\n"), "expected a hunk")
    found = tuple(read_hunks(text, name, first))
    ids = match["old"].decode(), match["new"].decode()
    if why := _disagree(kind, ids, found):
        _bad(name, first, why)
    return Section(path=path, kind=kind, mode=mode, old=ids[0], new=ids[1], text=text)


def _disagree(kind: Kind, ids: tuple[str, str], found: Sequence[Hunk]) -> str:
    """Why a section's hunks are not what its blob ids say, or an empty string."""
    old, new = ids
    if kind == "edit":
        sound = ZEROS not in ids and old != new and found
        return "" if sound else "an edit needs two blobs that differ, and a hunk"
    marker, absent, blob = (b"+", old, new) if kind == "add" else (b"-", new, old)
    whole = all(line[:1] in (marker, b"\\") for hunk in found for line in hunk.lines)
    if absent != ZEROS or len(found) > 1 or not whole:
        return "an added or deleted file must stand whole in one hunk"
    if blob_id(one_side(found, marker)) != blob:
        return f"the content does not hash to the blob id {blob}"
    return ""
