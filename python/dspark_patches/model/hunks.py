"""Hunks of a diff, read strictly.

Markers, counts and line numbers must be those that git writes, from hunk to hunk, so
that a hunk says exactly where it lands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from ..errors import Malformed

NO_NEWLINE = b"\\ No newline at end of file"

_STARTS = re.compile(rb"^(?=@@ -)", re.MULTILINE)
_PLACE = re.compile(rb"@@ -(\d{1,9})[0-9,+ -]{1,40}@@((?: [^\n]*)?)\n")
# The last line of a side may lack its newline; git writes removed lines first.
_MARKERS = re.compile(rb"[ +-]+|[ +-]*(?:[ +]\\|-\\(?:\++\\?)?)")
_LINES = re.compile(rb"[^\n]*\n|[^\n]+")


class Hunk(msgspec.Struct, frozen=True, kw_only=True):
    """One hunk; ``lines`` keep their marker byte and lack their newline."""

    old_start: int
    old_count: int
    new_start: int
    new_count: int
    lines: tuple[bytes, ...]


def read(text: bytes, name: str, first: int) -> Iterator[Hunk]:
    """The hunks of a section that begins at line ``first`` of file ``name``.

    Raises:
        Malformed: lines that are no hunk's, counts or line numbers that do not fit.
    """
    head, *parts = _STARTS.split(text)
    number = first + head.count(b"\n")
    # Lines of the old file so far, and how many more the new one has.
    at = shift = 0
    for part in parts:
        lines = tuple(part.split(b"\n")[1:-1])
        markers = b"".join(line[:1] or b"?" for line in lines)
        if (
            not _MARKERS.fullmatch(markers)
            or b"\0" in part
            or markers.count(b"\\") != lines.count(NO_NEWLINE)
            or (b"\\" in markers and part is not parts[-1])
        ):
            raise Malformed(name, number, "a hunk of a text file has no such lines")
        same, old, new = (markers.count(marker) for marker in (b" ", b"-", b"+"))
        old, new = same + old, same + new
        place = _PLACE.match(part)
        start = int(place[1]) - bool(old) if place else -1
        written = b"@@ -%s +%s @@" % (_range(start, old), _range(start + shift, new))
        # Among lines of context, a side without lines is an empty file.
        alone = not start and len(parts) == 1
        if (
            not place
            or start < at
            or part[: place.start(2)] != written
            or not (old and new or alone)
        ):
            raise Malformed(name, number, "the hunk's numbers do not fit its lines")
        yield Hunk(
            old_start=start + bool(old),
            old_count=old,
            new_start=start + shift + bool(new),
            new_count=new,
            lines=lines,
        )
        at, shift = start + old, shift + new - old
        number += part.count(b"\n")


def _range(start: int, count: int) -> bytes:
    """Lines as a hunk's header gives them; ``start`` counts from zero."""
    first = b"%d" % (start + bool(count))
    return first if count == 1 else first + b",%d" % count


def lines_of(content: bytes) -> list[bytes]:
    """A file's lines, each with its newline where it has one."""
    return _LINES.findall(content)


def sides(hunk: Hunk) -> tuple[list[bytes], list[bytes]]:
    """The lines of a hunk before and after it, with their newlines."""
    lines = [line + b"\n" for line in hunk.lines]
    for at, line in enumerate(hunk.lines):
        if line[:1] == b"\\":
            lines[at - 1] = lines[at - 1][:-1]
    old, new = (
        [one[1:] for one in lines if one[:1] in signs] for signs in (b" -", b" +")
    )
    return old, new


def replaced(content: bytes, found: Sequence[Hunk], of: int) -> bytes | None:
    """A file with the hunks' old (0) or new (1) side replaced by the other.

    None where a hunk's lines do not stand at its line.
    """
    lines, result, at = lines_of(content), [], 0
    for hunk in found:
        here, there = sides(hunk)[:: -1 if of else 1]
        start = (hunk.old_start, hunk.new_start)[of] - bool(here)
        if lines[start : start + len(here)] != here:
            return None
        result += lines[at:start] + there
        at = start + len(here)
    return b"".join(result + lines[at:])
