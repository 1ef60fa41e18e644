"""The mails of a series: what ``git format-patch`` writes, read strictly.

The one canonical form is git's own output for the options that the export
pins: ``render(parse(data)) == data`` holds for every mail that is accepted,
and ``parse(render(mail)) == mail`` for every mail that can be written. With
no diffstat git writes no ``---`` line; a blank line ends the message.
"""

from __future__ import annotations

import email.utils
import re
import textwrap
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import NoReturn

import msgspec

from . import diff
from .diff import Section
from .lines import Malformed, split

AUTHOR = "dspark-patches <noreply@dspark-patches.invalid>"
KNOWN_TRAILERS = ("Upstream-Status", "Fixes", "Refs", "Regression-Test")

_FIRST_LINE = "From " + diff.ZEROS + " Mon Sep 17 00:00:00 2001"
_SUBJECT = "Subject: [PATCH] "
_SUBJECT_WIDTH = 78
_WORD = 60
_LONGEST_LINE = 998
_AUTHOR = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _-]* <[^<>\s]+>")
_TRAILER = re.compile(r"([A-Za-z][A-Za-z0-9-]*): (\S.*)")
# What `git am` takes off a subject, or takes for something else in a body.
_STRIPPED = re.compile(r"re:|[\[: ]", re.IGNORECASE)
_BREAKS = re.compile(r"---|diff -|Index: |>?From |\[PATCH\]\s")
_IN_BODY_HEADER = re.compile(r"(From|Date|Subject):", re.IGNORECASE)


class Mail(msgspec.Struct, frozen=True, kw_only=True):
    """One patch as a mail; ``body`` has neither trailers nor a final newline."""

    subject: str
    date: str
    author: str
    body: str
    trailers: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]

    def values(self, key: str) -> tuple[str, ...]:
        """The values of one trailer, in order."""
        return tuple(value for name, value in self.trailers if name == key)


def parse(data: bytes, name: str = "mail") -> Mail:
    """Read one mail.

    Args:
        data: its bytes.
        name: the file that they come from, for errors.

    Raises:
        Malformed: anything but the canonical form, with file and line.
    """
    lines = split(data, name)
    first = next((n for n, t in enumerate(lines) if t.startswith(b"diff --git ")), None)
    if first is None:
        _bad(name, len(lines), "there is no diff")
    message = _message(lines[:first], name)
    author = _header(message, 1, "From: ", name)
    date = _header(message, 2, "Date: ", name)
    subject, at = _subject(message, name)
    if not _AUTHOR.fullmatch(author):
        _bad(name, 2, "expected 'From: NAME <ADDRESS>'")
    if canonical_date(date) != date:
        _bad(name, 3, "expected a date as git writes it")
    body, trailers = _body(message, at, name)
    return Mail(
        subject=subject,
        date=date,
        author=author,
        body=body,
        trailers=trailers,
        sections=diff.parse(lines[first:], name, first + 1),
    )


def render(mail: Mail) -> bytes:
    """The bytes of a mail, as git writes them.

    Raises:
        Malformed: the mail has a value that no canonical mail can hold.
    """
    data = joined(mail)
    if parse(data) != mail:
        raise Malformed("mail", 0, "it cannot be written and read back")
    return data


def joined(mail: Mail) -> bytes:
    """The bytes of a mail that :func:`parse` accepted."""
    headers = [
        _FIRST_LINE,
        f"From: {mail.author}",
        f"Date: {mail.date}",
        _fold(mail.subject),
        "",
        _text(mail),
        "\n",
    ]
    head = "\n".join(headers).encode("utf-8", "surrogatepass")
    return head + b"".join(section.text for section in mail.sections)


def commit_message(mail: Mail) -> str:
    """The commit message that a mail stands for."""
    return f"{mail.subject}\n\n{_text(mail)}\n"


def parse_diff(data: bytes, name: str = "diff") -> tuple[Section, ...]:
    """The sections of a control: text that explains it, then a diff.

    Raises:
        Malformed: there is no text, or the diff is not canonical.
    """
    return parse_control(data, name)[1]


def parse_control(data: bytes, name: str = "diff") -> tuple[str, tuple[Section, ...]]:
    """A control's explanation and its sections.

    Raises:
        Malformed: there is no text, or the diff is not canonical.
    """
    lines = split(data, name)
    first = next((n for n, t in enumerate(lines) if t.startswith(b"diff --git ")), None)
    if first is None:
        _bad(name, len(lines), "there is no diff")
    try:
        why = b"\n".join(lines[:first]).decode("utf-8").strip()
    except UnicodeDecodeError:
        _bad(name, 1, "the explanation is not UTF-8")
    if not why:
        _bad(name, 1, "a control begins with the text that explains it")
    return why, diff.parse(lines[first:], name, first + 1)


def canonical_date(text: str) -> str:
    """``text`` as git writes a mail's date, or an empty string."""
    try:
        when = email.utils.parsedate_to_datetime(text)
        if when.tzinfo is None or when < datetime(1970, 1, 2, tzinfo=timezone.utc):
            return ""
        return email.utils.format_datetime(when).replace(", 0", ", ")
    except (ValueError, TypeError, OverflowError, IndexError):
        return ""


def _text(mail: Mail) -> str:
    paragraphs = [mail.body] if mail.body else []
    if mail.trailers:
        paragraphs.append("\n".join(f"{key}: {value}" for key, value in mail.trailers))
    return "\n\n".join(paragraphs)


def _bad(name: str, number: int, what: str) -> NoReturn:
    raise Malformed(name, number, what)


def _message(lines: Sequence[bytes], name: str) -> list[str]:
    message = []
    for number, line in enumerate(lines, 1):
        # git encodes a message that is not ASCII, and each version its own way.
        text = line.decode("latin-1")
        if not (text.isascii() and (text.isprintable() or not text)):
            _bad(name, number, "the message has a character that is not plain ASCII")
        if len(text) > _LONGEST_LINE:
            _bad(name, number, f"the line is longer than {_LONGEST_LINE} characters")
        if text != text.rstrip():
            _bad(name, number, "the line ends with white space")
        message.append(text)
    if message[:1] != [_FIRST_LINE]:
        _bad(name, 1, f"expected {_FIRST_LINE!r}")
    return message


def _header(message: Sequence[str], at: int, key: str, name: str) -> str:
    line = message[at] if at < len(message) else ""
    if not line.startswith(key):
        _bad(name, at + 1, f"expected '{key}...'")
    return line.removeprefix(key)


def _fold(subject: str) -> str:
    return textwrap.fill(
        subject,
        _SUBJECT_WIDTH,
        initial_indent=_SUBJECT,
        subsequent_indent=" ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _subject(message: Sequence[str], name: str) -> tuple[str, int]:
    words = [_header(message, 3, _SUBJECT, name)]
    at = 4
    while at < len(message) and message[at].startswith(" "):
        words.append(message[at][1:])
        at += 1
    subject = " ".join(words)
    if _STRIPPED.match(subject) or "=?" in subject:
        _bad(name, 4, "git am would take the subject's beginning off")
    if any(not 0 < len(word) <= _WORD for word in subject.split(" ")):
        _bad(name, 4, f"a subject has single spaces and words of at most {_WORD}")
    if "\n".join(message[3:at]) != _fold(subject):
        _bad(name, 4, "the subject is not folded as git folds it")
    return subject, at


def _body(
    message: Sequence[str], at: int, name: str
) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The body from line ``at`` on, and the trailers in its last paragraph."""
    if message[at : at + 1] != [""] or message[-1] != "" or len(message) < at + 3:
        _bad(name, at + 1, "expected a blank line, a message and a blank line")
    text = list(message[at + 1 : -1])
    for number, line in enumerate(text, at + 2):
        if _BREAKS.match(line) or (number == at + 2 and _IN_BODY_HEADER.match(line)):
            _bad(name, number, "git am would not take this line for the message")
        if not line and (number == at + 2 or not message[number]):
            _bad(name, number, "a blank line too many")
    split = max((n for n, line in enumerate(text) if not line), default=-1) + 1
    last = text[split:]
    trailers = [_TRAILER.fullmatch(line) for line in last]
    found = tuple((match[1], match[2]) for match in trailers if match)
    if len(found) == len(last):
        return "\n".join(text[: max(split - 1, 0)]), found
    for number, match in enumerate(trailers, at + 2 + split):
        if not match and any(key in KNOWN_TRAILERS for key, _ in found):
            _bad(name, number, "this line stands among the trailers but is none")
    return "\n".join(text), ()
