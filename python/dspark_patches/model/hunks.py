"""Hunks of a diff, read strictly.

Counts must add up and line numbers must follow from hunk to hunk, so that a
hunk says exactly where it lands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from ..lines import Malformed

NO_NEWLINE = b"\\ No newline at end of file"

_START = re.compile(rb"^(?=@@ )", re.MULTILINE)
_HUNK = re.compile(
    rb"@@ -(N)(?:,(N))? \+(N)(?:,(N))? @@( [^\n]*)?\n".replace(b"N", rb"0|[1-9]\d{0,8}")
)


class Hunk(msgspec.Struct, frozen=True, kw_only=True):
    """One hunk; ``lines`` keep their marker byte and lack their newline."""

    old_start: int
    old_count: int
    new_start: int
    new_count: int
    heading: bytes
    lines: tuple[bytes, ...]


def read(text: bytes, name: str, first: int) -> Iterator[Hunk]:
    """The hunks of a section.

    Args:
        text: the section.
        name: the file that it comes from, for errors.
        first: the number of its first line in that file.

    Raises:
        Malformed: a hunk whose counts or line numbers do not fit.
    """
    head, *parts = _START.split(text)
    number = first + head.count(b"\n")
    last: Hunk | None = None
    for part in parts:
        match = _HUNK.match(part)
        if not match or b"1" in (match[2], match[4]):
            raise Malformed(name, number, "expected '@@ -LINE,COUNT +LINE,COUNT @@'")
        counts = [1 if count is None else int(count) for count in (match[2], match[4])]
        hunk = Hunk(
            old_start=int(match[1]),
            old_count=counts[0],
            new_start=int(match[3]),
            new_count=counts[1],
            heading=match[5] or b"",
            lines=tuple(part[match.end() :].split(b"\n")[:-1]),
        )
        if why := _wrong(hunk) or _astray(last, hunk):
            raise Malformed(name, number, why)
        yield hunk
        last = hunk
        number += part.count(b"\n")


def _wrong(hunk: Hunk) -> str:
    """Why a hunk's lines are not what its counts say, or an empty string."""
    markers = b"".join(line[:1] or b"?" for line in hunk.lines)
    if markers.translate(None, b" +-\\"):
        return "a line of the hunk has no marker"
    if b"\0" in b"".join(hunk.lines):
        return "binary content is not allowed"
    both = markers.count(b" ")
    if (both + markers.count(b"-"), both + markers.count(b"+")) != (
        hunk.old_count,
        hunk.new_count,
    ):
        return "the hunk is shorter or longer than its counts say"
    # The last line of a side may lack its newline; of context, that of both.
    for at, line in enumerate(hunk.lines):
        if line[:1] != b"\\":
            continue
        sides = {32: b" -+", 45: b" -", 43: b" +"}.get(markers[at - 1] if at else 0)
        if line != NO_NEWLINE or not sides:
            return "a file ends twice"
        if any(marker in sides for marker in markers[at + 1 :]):
            return "a file goes on after its end"
    return ""


def _astray(last: Hunk | None, hunk: Hunk) -> str:
    """Why a hunk cannot stand after another, or an empty string."""
    old_end = last.old_start + last.old_count if last else 1
    new_end = last.new_start + last.new_count if last else 1
    follows = 0 <= hunk.old_start - old_end == hunk.new_start - new_end
    if any(0 in (one.old_count, one.new_count) for one in (hunk, last or hunk)):
        # Among lines of context, a side without lines is an empty file.
        sides = (hunk.old_start, hunk.old_count), (hunk.new_start, hunk.new_count)
        follows = not last and all(start == min(count, 1) for start, count in sides)
    if last and b"\\" in {line[:1] for line in last.lines}:
        return "a file goes on after its end"
    return "" if follows else "the hunk's line numbers do not follow"


def one_side(found: Sequence[Hunk], marker: bytes) -> bytes:
    """What the lines with one marker add up to as a file's content."""
    lines = [line for hunk in found for line in hunk.lines]
    content = b"".join(line[1:] + b"\n" for line in lines if line[:1] == marker)
    return content[:-1] if lines[-1:] == [NO_NEWLINE] else content
