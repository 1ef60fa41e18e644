"""Hunks put into a file or taken out of it, exactly where they say.

No search, no fuzz: a hunk's old lines stand at its line number or the file is
not the one that it was written for. Blob ids prove the result.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import Conflict
from .diff import ZEROS, Section, added_content, blob_id, hunks
from .hunks import NO_NEWLINE, Hunk


def forward(content: bytes | None, section: Section) -> bytes | None:
    """The file after a section; None stands for no file.

    Raises:
        Conflict: the file is not the one that the section was written for.
    """
    _expect(content, section.old, section)
    if section.kind == "add":
        result: bytes | None = added_content(section)
    elif section.kind == "delete":
        result = None
    else:
        result = _edited(content or b"", section, 0)
    _expect(result, section.new, section)
    return result


def backward(content: bytes | None, section: Section) -> bytes | None:
    """The file before a section; None stands for no file.

    Raises:
        Conflict: the file is not the one that the section makes.
    """
    _expect(content, section.new, section)
    if section.kind == "add":
        result: bytes | None = None
    else:
        result = _edited(content or b"", section, 1)
    _expect(result, section.old, section)
    return result


def lines_of(content: bytes) -> list[bytes]:
    """A file's lines, each with its newline where it has one."""
    lines = [line + b"\n" for line in content.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def sides(hunk: Hunk) -> tuple[list[bytes], list[bytes]]:
    """The lines of a hunk before and after it, with their newlines."""
    found: tuple[list[bytes], list[bytes]] = ([], [])
    last: tuple[list[bytes], ...] = ()
    for line in hunk.lines:
        if line == NO_NEWLINE:
            for side in last:
                side[-1] = side[-1][:-1]
            continue
        last = {b" ": found, b"-": found[:1], b"+": found[1:]}[line[:1]]
        for side in last:
            side.append(line[1:] + b"\n")
    return found


def _edited(content: bytes, section: Section, of: int) -> bytes:
    lines = lines_of(content)
    result: list[bytes] = []
    at = 0
    for hunk in hunks(section):
        pair = sides(hunk)
        here, there = pair[of], pair[1 - of]
        start = (hunk.old_start, hunk.new_start)[of] - bool(here)
        if start < at or lines[start : start + len(here)] != here:
            raise Conflict(
                f"{section.path}: a hunk does not fit at line {start + 1}",
                cause=_first_difference(lines[start:], here),
                next_step="run `dspark-patches check`",
            )
        result += lines[at:start] + there
        at = start + len(here)
    return b"".join(result + lines[at:])


def _first_difference(found: Sequence[bytes], expected: Sequence[bytes]) -> str:
    for number, line in enumerate(expected):
        if found[number : number + 1] != [line]:
            there = found[number] if number < len(found) else b"the end of the file"
            return f"expected {line!r}, there is {there!r}"
    return "the hunks overlap"


def _expect(content: bytes | None, blob: str, section: Section) -> None:
    found = ZEROS if content is None else blob_id(content)
    if found != blob:
        raise Conflict(
            f"{section.path} is not the file that the patch says",
            cause=f"expected blob {blob}, there is {found}",
            next_step="run `dspark-patches check`",
        )
