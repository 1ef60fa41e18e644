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

import msgspec

from ..errors import Malformed
from ..files import MAX_BYTES
from . import diff
from .diff import Section

AUTHOR = "dspark-patches <noreply@dspark-patches.invalid>"
KNOWN_TRAILERS = ("Upstream-Status", "Fixes", "Refs", "Regression-Test")

_HEAD = {
    "From 0{40} Mon Sep 17 00:00:00 2001": r"(From 0{40} Mon Sep 17 00:00:00 2001)\n",
    "From: NAME <ADDRESS>": r"From: ([A-Za-z0-9][A-Za-z0-9 _-]* <[^<>\s]+>)\n",
    "Date: DATE": r"Date: ([^\n]+)\n",
    "Subject: [PATCH] SUBJECT": r"Subject: \[PATCH\] ([^\n]+(?:\n [^\n]+)*)\n\n",
}
_SUBJECT = "Subject: [PATCH] "
_SUBJECT_WIDTH = 78
# What `git am` leaves as it is: it takes tags and "re:" off, and decodes "=?".
_SUBJECT_KEPT = re.compile(
    r"(?!re:|[\[:]|.*=\?)[^ ]{1,60}(?: [^ ]{1,60})*", re.IGNORECASE
)
# git encodes any other line, and each version its own way.
_LINE = re.compile(r"(?:[ -~]{0,997}[!-~])?")
# What `git am` takes for something else than a line of a body.
_BREAKS = re.compile(r"---|diff -|Index: |>?From |\[PATCH\]\s|(?i:From|Date|Subject):")
_TRAILER = re.compile(r"([A-Za-z][A-Za-z0-9-]*): (\S.*)")


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
    """Read one patch, called ``name`` in errors.

    Raises:
        Malformed: anything but the canonical form, with file and line.
    """
    head, sections = _apart(data, name)
    text = head.decode("latin-1")
    for number, line in enumerate(text.split("\n"), 1):
        if not _LINE.fullmatch(line):
            what = "a line is plain ASCII, at most 998 characters, without white space"
            raise Malformed(name, number, f"{what} at its end")
    values, at = [], 0
    for what, pattern in _HEAD.items():
        match = re.compile(pattern).match(text, at)
        if not match:
            raise Malformed(name, text.count("\n", 0, at) + 1, f"expected '{what}'")
        values.append(match[1])
        at = match.end()
    _, author, date, subject = values
    subject = subject.replace("\n ", " ")
    if canonical_date(date) != date:
        raise Malformed(name, 3, "expected a date as git writes it")
    if not _SUBJECT_KEPT.fullmatch(subject):
        what = "git am takes a subject without [TAG] or re:, of single spaces"
        raise Malformed(name, 4, f"{what} and words of at most 60 characters")
    body, trailers = _message(text[at:], text.count("\n", 0, at) + 1, name)
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
        raise Malformed(name, number, "git writes this line otherwise")
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
    first = f"From {diff.ZEROS} Mon Sep 17 00:00:00 2001\n"
    head = f"{first}From: {patch_file.author}\nDate: {patch_file.date}\n{subject}\n\n"
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
    why = head.decode("utf-8", "replace").strip()
    if not why or "\ufffd" in why:
        what = "a control begins with the text that explains it, in UTF-8"
        raise Malformed(name, 1, what)
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
    if len(data) > MAX_BYTES:
        raise Malformed(name, 0, f"larger than {MAX_BYTES} bytes")
    head, found, _ = data.partition(b"\ndiff --git ")
    number = data.count(b"\n")
    if data and not data.endswith(b"\n"):
        raise Malformed(name, number + 1, "the file does not end with a newline")
    if not found:
        raise Malformed(name, number or 1, "there is no diff")
    number = head.count(b"\n") + first + 1
    return head + b"\n", diff.parse(data[len(head) + 1 :], name, number)


def _text(patch_file: PatchFile) -> str:
    trailers = "\n".join(f"{key}: {value}" for key, value in patch_file.trailers)
    return "\n\n".join(filter(None, [patch_file.body, trailers]))


def _message(
    text: str, first: int, name: str
) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The body, and the trailers in its last paragraph."""
    *paragraphs, last, end = text.split("\n\n") if "\n\n" in text else ("", "x")
    if end or not all(p and p == p.strip("\n") for p in (*paragraphs, last)):
        what = "a message has paragraphs, and one blank line after each"
        raise Malformed(name, first, what)
    for number, line in enumerate(text.split("\n"), first):
        if _BREAKS.match(line):
            raise Malformed(
                name, number, "git am would not take this line for the body"
            )
    found = [_TRAILER.fullmatch(line) for line in last.split("\n")]
    trailers = tuple(match.groups() for match in found if match)
    if len(trailers) == len(found):
        return "\n\n".join(paragraphs), trailers
    if any(key in KNOWN_TRAILERS for key, _ in trailers):
        number = first + text.count("\n") - 1 - len(found)
        raise Malformed(name, number, "a line stands among the trailers but is none")
    return text[:-2], ()
