"""Hunks of a diff, read strictly.

Counts must add up and line numbers must follow from hunk to hunk, so that a
hunk says exactly where it lands.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from .lines import Reader

NO_NEWLINE = b"\\ No newline at end of file"

_HUNK = re.compile(
    rb"@@ -(N)(?:,(N))? \+(N)(?:,(N))? @@( .*)?".replace(b"N", rb"0|[1-9]\d{0,8}"),
    re.DOTALL,
)
# The sides of a hunk, old and new, on which a line with this marker stands.
_SIDES = {b" ": (0, 1), b"-": (0,), b"+": (1,)}


class Hunk(msgspec.Struct, frozen=True, kw_only=True):
    """One hunk; ``lines`` keep their marker byte and lack their newline."""

    old_start: int
    old_count: int
    new_start: int
    new_count: int
    heading: bytes
    lines: tuple[bytes, ...]


def read_all(reader: Reader) -> tuple[Hunk, ...]:
    """The hunks of one file, up to the first line that begins no hunk.

    Raises:
        Malformed: a hunk whose counts or line numbers do not fit.
    """
    found: list[Hunk] = []
    ended = [False, False]
    while reader.peek().startswith(b"@@ "):
        number = reader.number
        hunk = _hunk(reader, ended)
        if not _follows(found, hunk):
            reader.fail("the hunk's line numbers do not follow", number)
        found.append(hunk)
    return tuple(found)


def _hunk(reader: Reader, ended: list[bool]) -> Hunk:
    match = _HUNK.fullmatch(reader.peek())
    if not match or b"1" in (match[2], match[4]):
        reader.fail("expected '@@ -LINE,COUNT +LINE,COUNT @@'")
    reader.take()
    start = reader.at
    counts = [1 if text is None else int(text) for text in (match[2], match[4])]
    _hunk_lines(reader, list(counts), ended)
    return Hunk(
        old_start=int(match[1]),
        old_count=counts[0],
        new_start=int(match[3]),
        new_count=counts[1],
        heading=match[5] or b"",
        lines=reader.since(start),
    )


def _hunk_lines(reader: Reader, left: list[int], ended: list[bool]) -> None:
    last: tuple[int, ...] = ()
    while any(left) or reader.peek() == NO_NEWLINE:
        number = reader.number
        line = reader.take()
        if line == NO_NEWLINE:
            if not last:
                reader.fail("a file ends twice", number)
            for side in last:
                ended[side] = True
            last = ()
            continue
        last = _SIDES.get(line[:1], ())
        if not last:
            reader.fail("the hunk is shorter than its counts say", number)
        if b"\0" in line:
            reader.fail("binary content is not allowed", number)
        for side in last:
            left[side] -= 1
            if left[side] < 0 or ended[side]:
                reader.fail("the hunk is longer than its counts say", number)


def _follows(previous: Sequence[Hunk], hunk: Hunk) -> bool:
    sides = ((hunk.old_start, hunk.old_count), (hunk.new_start, hunk.new_count))
    if any(0 in (h.old_count, h.new_count) for h in (*previous[-1:], hunk)):
        # Among lines of context, a side without lines is an empty file.
        return not previous and all(start == min(count, 1) for start, count in sides)
    old_end = new_end = 1
    for last in previous[-1:]:
        old_end = last.old_start + last.old_count
        new_end = last.new_start + last.new_count
    return 0 <= hunk.old_start - old_end == hunk.new_start - new_end


def one_side(found: Sequence[Hunk], marker: bytes) -> bytes:
    """What the lines with one marker add up to as a file's content."""
    lines = [line for hunk in found for line in hunk.lines]
    content = b"".join(line[1:] + b"\n" for line in lines if line[:1] == marker)
    return content[:-1] if lines[-1:] == [NO_NEWLINE] else content
