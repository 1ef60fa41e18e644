"""Everything that is printed, in the three formats.

``text`` is for people: results on standard output, progress on standard
error. ``json`` is one object on standard output. ``github`` is workflow
commands, which show up beside the changed lines.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import click
import msgspec

from .findings import Finding

FORMATS = ("text", "json", "github")

_DETAIL_LINES = 60
_STYLES = {"error": "red", "warning": "yellow"}


def line(text: str, *, stderr: bool = False, style: str | None = None) -> None:
    """Print one line, or several; ``style`` is a colour, for a terminal."""
    style = None if "NO_COLOR" in os.environ else style
    click.secho(printable(text), err=stderr, fg=style)


def json(value: Any) -> None:
    """Print one JSON object on standard output."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2)
    sys.stdout.write(text.decode() + "\n")


def annotation(level: str, message: str, **properties: str) -> None:
    """Print one GitHub workflow command, such as an error."""
    named = ",".join(f"{key}={_escape(value)}" for key, value in properties.items())
    text = _escape(message, also=False)
    sys.stdout.write(f"::{level}{' ' if named else ''}{named}::{text}\n")


def failure(form: str, message: str, cause: str, next_step: str) -> None:
    """Print why a verb could not do its work, and what helps."""
    if form == "json":
        error = {"message": message, "cause": cause, "next_step": next_step}
        json({"ok": False, "error": error})
        return
    if form == "github":
        annotation("error", "\n".join(filter(None, [message, cause, next_step])))
    line(f"error: {message}", stderr=True, style="red")
    for label, text in (("cause", cause), ("next", next_step)):
        if text:
            shown = text.replace("\n", "\n" + " " * (len(label) + 4))
            line(f"  {label}: {shown}", stderr=True)


def counted(number: int, what: str) -> str:
    """So many of ``what``."""
    return f"{number} {what}{'s' * (number != 1)}"


def print_findings(form: str, found: Sequence[Finding], of_what: str) -> bool:
    """Print the findings in ``of_what`` and say whether any is an error."""
    errors = sum(one.level == "error" for one in found)
    if form == "json":
        json({"ok": not errors, "findings": found})
        return bool(errors)
    for one in found:
        print_finding(form, one)
    warnings = counted(len(found) - errors, "warning")
    told = f"{counted(errors, 'error')}, {warnings} in {of_what}"
    line(f"findings: {told}" if found else f"ok: {of_what}")
    return bool(errors)


def print_finding(form: str, one: Finding) -> None:
    """Print one finding, as text or as an annotation."""
    if form == "github":
        title = " ".join(filter(None, ["dspark-patches", one.release, one.patch]))
        message = "\n".join(filter(None, [one.what, one.hint, one.detail]))
        place = {"file": one.file, "line": str(one.line or 1)}
        annotation(one.level, message, title=title, **place)
        return
    place = f"{one.file}:{one.line}" if one.line else one.file
    line(f"{place}: {one.level}: {one.what}", style=_STYLES[one.level])
    line(f"  next: {one.hint}")
    lines = one.detail.splitlines()
    if (skipped := len(lines) - _DETAIL_LINES) > 0:
        lines[:skipped] = [f"({skipped} lines before these)"]
    for text in lines:
        line(f"    {text}")


def counts(statuses: Iterable[str]) -> str:
    """How many tests ended in which way."""
    counted = Counter(statuses).items()
    return ", ".join(f"{count} {each}" for each, count in counted) or "no tests"


def printable(text: str) -> str:
    """``text`` without what could drive a terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def _escape(text: str, also: bool = True) -> str:
    pairs = [("%", "%25"), ("\r", "%0D"), ("\n", "%0A")]
    for raw, escaped in pairs + ([(":", "%3A"), (",", "%2C")] if also else []):
        text = text.replace(raw, escaped)
    return text
