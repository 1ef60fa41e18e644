"""The patches of a series: what ``git format-patch`` writes, read strictly.

The one canonical form is git's own output for the options that the export
pins: ``render(parse(data)) == data`` holds for every patch that is accepted,
and ``parse(render(patch)) == patch`` for every patch that can be written. With
no diffstat git writes no ``---`` line; a blank line ends the message.
"""

from __future__ import annotations

import email.utils
import os
import re
import textwrap
from datetime import datetime, timezone
from typing import NoReturn

import msgspec

from ..lines import Malformed, whole
from . import diff
from .diff import Section

AUTHOR = "dspark-patches <noreply@dspark-patches.invalid>"
KNOWN_TRAILERS = ("Upstream-Status", "Fixes", "Refs", "Regression-Test")

_FIRST_LINE = "From " + diff.ZEROS + " Mon Sep 17 00:00:00 2001"
_SUBJECT = "Subject: [PATCH] "
_STARTS = (_FIRST_LINE, "From: ", "Date: ", _SUBJECT)
_SUBJECT_WIDTH = 78
_WORD = 60
_LONGEST_LINE = 998
_DIFF = b"\ndiff --git "
_AUTHOR = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _-]* <[^<>\s]+>")
_TRAILER = re.compile(r"([A-Za-z][A-Za-z0-9-]*): (\S.*)")
# What `git am` takes off a subject, or takes for something else in a body.
_STRIPPED = re.compile(r"re:|[\[: ]", re.IGNORECASE)
_BREAKS = re.compile(r"---|diff -|Index: |>?From |\[PATCH\]\s")
_IN_BODY_HEADER = re.compile(r"(From|Date|Subject):", re.IGNORECASE)


class PatchFile(msgspec.Struct, frozen=True, kw_only=True):
    """One patch as a file; ``body`` has neither trailers nor a final newline."""

    subject: str
    date: str
    author: str
    body: str
    trailers: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]

    def values(self, key: str) -> tuple[str, ...]:
        """The values of one trailer, in order."""
        return tuple(value for name, value in self.trailers if name == key)


def parse(data: bytes, name: str = "patch") -> PatchFile:
    """Read one patch.

    Args:
        data: its bytes.
        name: the file that they come from, for errors.

    Raises:
        Malformed: anything but the canonical form, with file and line.
    """
    head, sections = _apart(data, name)
    lines = _ascii(head, name)
    for number, (line, start) in enumerate(zip(lines, _STARTS), 1):
        if not line.startswith(start):
            _bad(name, number, f"expected '{start}...'")
    author, date = lines[1][len("From: ") :], lines[2][len("Date: ") :]
    if not _AUTHOR.fullmatch(author):
        _bad(name, 2, "expected 'From: NAME <ADDRESS>'")
    if canonical_date(date) != date:
        _bad(name, 3, "expected a date as git writes it")
    # A subject that goes on does so on lines that begin with a space.
    end = next(n for n, line in enumerate([*lines, ""]) if n > 3 and line[:1] != " ")
    subject = " ".join([lines[3][len(_SUBJECT) :], *(t[1:] for t in lines[4:end])])
    if _STRIPPED.match(subject) or "=?" in subject:
        _bad(name, 4, "git am would take the subject's beginning off")
    if any(not 0 < len(word) <= _WORD for word in subject.split(" ")):
        _bad(name, 4, f"a subject has single spaces and words of at most {_WORD}")
    body, trailers = _body(lines[end + 1 : -1], end + 2, name)
    patch_file = PatchFile(
        subject=subject,
        date=date,
        author=author,
        body=body,
        trailers=trailers,
        sections=sections,
    )
    if (written := joined(patch_file)) != data:
        number = os.path.commonprefix([written, data]).count(b"\n") + 1
        _bad(name, number, "git writes this line otherwise")
    return patch_file


def render(patch_file: PatchFile) -> bytes:
    """The bytes of a patch, as git writes them.

    Raises:
        Malformed: the patch has a value that no canonical patch can hold.
    """
    data = joined(patch_file)
    if parse(data) != patch_file:
        raise Malformed("patch", 0, "it cannot be written and read back")
    return data


def joined(patch_file: PatchFile) -> bytes:
    """The bytes of a patch that :func:`parse` accepted."""
    subject = textwrap.fill(
        patch_file.subject,
        _SUBJECT_WIDTH,
        initial_indent=_SUBJECT,
        subsequent_indent=" ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    head = f"{_FIRST_LINE}\nFrom: {patch_file.author}\nDate: {patch_file.date}\n{subject}\n\n"
    text = f"{head}{_text(patch_file)}\n\n".encode("utf-8", "surrogatepass")
    return text + b"".join(section.text for section in patch_file.sections)


def commit_message(patch_file: PatchFile) -> str:
    """The commit message that a patch stands for."""
    return f"{patch_file.subject}\n\n{_text(patch_file)}\n"


def parse_control(data: bytes, name: str = "diff") -> tuple[str, tuple[Section, ...]]:
    """A control's explanation and its sections.

    Raises:
        Malformed: there is no text, or the diff is not canonical.
    """
    head, sections = _apart(b"\n" + data, name, first=0)
    try:
        why = head.decode("utf-8").strip()
    except UnicodeDecodeError:
        _bad(name, 1, "the explanation is not UTF-8")
    if not why:
        _bad(name, 1, "a control begins with the text that explains it")
    return why, sections


def canonical_date(text: str) -> str:
    """``text`` as git writes a patch's date, or an empty string."""
    try:
        when = email.utils.parsedate_to_datetime(text)
        if when.tzinfo is None or when < datetime(1970, 1, 2, tzinfo=timezone.utc):
            return ""
        return email.utils.format_datetime(when).replace(", 0", ", ")
    except (ValueError, TypeError, OverflowError, IndexError):
        return ""


def _apart(data: bytes, name: str, first: int = 1) -> tuple[bytes, tuple[Section, ...]]:
    """What stands before the diff, and its sections."""
    head, found, _ = whole(data, name).partition(_DIFF)
    if not found:
        _bad(name, data.count(b"\n") or 1, "there is no diff")
    number = head.count(b"\n") + first + 1
    return head + b"\n", diff.parse(data[len(head) + 1 :], name, number)


def _text(patch_file: PatchFile) -> str:
    trailers = "\n".join(f"{key}: {value}" for key, value in patch_file.trailers)
    return "\n\n".join(filter(None, [patch_file.body, trailers]))


def _bad(name: str, number: int, what: str) -> NoReturn:
    raise Malformed(name, number, what)


def _ascii(head: bytes, name: str) -> list[str]:
    """The lines of a message; git encodes others, and each version its own way."""
    lines = head.decode("latin-1").split("\n")[:-1]
    for number, line in enumerate(lines, 1):
        if not (line.isascii() and (line.isprintable() or not line)):
            _bad(name, number, "the message has a character that is not plain ASCII")
        if len(line) > _LONGEST_LINE:
            _bad(name, number, f"the line is longer than {_LONGEST_LINE} characters")
        if line != line.rstrip():
            _bad(name, number, "the line ends with white space")
    if len(lines) < len(_STARTS) + 2:
        _bad(name, len(lines), "expected headers, a message and a blank line")
    return lines


def _body(
    lines: list[str], first: int, name: str
) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The body, and the trailers in its last paragraph."""
    for number, line in enumerate(lines, first):
        if _BREAKS.match(line) or (number == first and _IN_BODY_HEADER.match(line)):
            _bad(name, number, "git am would not take this line for the message")
    paragraphs = "\n".join(lines).split("\n\n")
    if not all(text and text == text.strip("\n") for text in paragraphs):
        _bad(name, first, "a message has paragraphs, and one blank line between two")
    last = paragraphs[-1].split("\n")
    found = [match.groups() for line in last if (match := _TRAILER.fullmatch(line))]
    if len(found) == len(last):
        return "\n\n".join(paragraphs[:-1]), tuple(found)
    if any(key in KNOWN_TRAILERS for key, _ in found):
        number = first + len(lines) - len(last)
        _bad(name, number, "a line stands among the trailers but is none")
    return "\n".join(lines), ()
