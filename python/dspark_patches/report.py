"""Everything that is printed, in the three formats.

``text`` is for people: results on standard output, progress on standard
error. ``json`` is one object on standard output. ``github`` is workflow
commands, which show up beside the changed lines.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from .proof import Finding, PatchProof, Run
from .verify import Report

FORMATS = ("text", "json", "github")

_WIDTH_OF_A_FILE = 120
_DETAIL_LINES = 40


def console(stderr: bool = False) -> Console:
    """A console that prints text as it is: no markup, no highlighting."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(
        stderr=stderr,
        markup=False,
        highlight=False,
        emoji=False,
        width=None if stream.isatty() else _WIDTH_OF_A_FILE,
    )


def line(text: str, *, stderr: bool = False, style: str | None = None) -> None:
    """Print one line, or several, unwrapped."""
    console(stderr).print(printable(text), style=style, soft_wrap=True)


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
    line(f"error: {message}", stderr=True, style="bold red")
    for label, text in (("cause", cause), ("next", next_step)):
        if text:
            shown = text.replace("\n", "\n" + " " * (len(label) + 4))
            line(f"  {label}: {shown}", stderr=True)


def printable(text: str) -> str:
    """``text`` without what could drive a terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


class VerifyReporter:
    """Tells of a verification as it goes; an observer of :mod:`.verify`."""

    def __init__(self, form: str, progress: Progress) -> None:
        self._form = form
        self._progress = progress
        self._task: TaskID | None = None
        self._started = time.monotonic()

    def note(self, message: str) -> None:
        self._say(message)

    def planned(self, count: int) -> None:
        self._task = self._progress.add_task("trees", total=count)

    def ran(self, run: Run) -> None:
        statuses = [outcome.status for outcome in run.outcomes.values()]
        counts = ", ".join(
            f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses)
        )
        self._say(
            f"{run.base}: {run.tree}: {counts or 'no tests'} ({run.seconds:.0f} s)"
        )
        if self._task is not None:
            self._progress.advance(self._task)

    def judged(
        self, proofs: tuple[PatchProof, ...], findings: tuple[Finding, ...]
    ) -> None:
        if self._form == "text":
            console().print(_table(proofs))
            for finding in findings:
                _print_finding(finding)

    def report(self, report: Report) -> None:
        """Print what is left to say when all is done."""
        if self._form == "json":
            json(report)
            return
        if self._form == "github":
            _annotate(report.findings)
        line(_summary(report, time.monotonic() - self._started))

    def _say(self, message: str) -> None:
        self._progress.console.print(printable(message), soft_wrap=True, style="dim")


@contextmanager
def verify_reporter(form: str) -> Iterator[VerifyReporter]:
    """A reporter, with a progress bar where there is a terminal to show it."""
    stderr = console(stderr=True)
    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=stderr,
        transient=True,
        disable=not stderr.is_terminal,
    )
    with progress:
        yield VerifyReporter(form, progress)


def _table(proofs: Iterable[PatchProof]) -> Table:
    proofs = tuple(proofs)
    table = Table(title=proofs[0].base, title_justify="left", title_style="bold")
    table.add_column("patch", overflow="fold")
    for name in ("kind", "red", "green"):
        table.add_column(name)
    table.add_column("tests", justify="right")
    table.add_column("left out: not in wheels", overflow="fold")
    for proof in proofs:
        table.add_row(
            proof.patch,
            proof.kind,
            _mark(proof.red),
            _mark(proof.green),
            str(len(proof.tests)),
            "\n".join(proof.left_out),
        )
    return table


def _mark(proven: bool) -> str:
    return "yes" if proven else "NO"


def _print_finding(finding: Finding) -> None:
    place = "/".join(filter(None, [finding.base, finding.patch]))
    line(f"{place}: {finding.message}", style="red")
    lines = finding.detail.splitlines()
    if len(lines) > _DETAIL_LINES:
        lines = [f"({len(lines) - _DETAIL_LINES} lines more)", *lines[-_DETAIL_LINES:]]
    for text in lines:
        line(f"    {text}")


def _annotate(findings: Iterable[Finding]) -> None:
    for finding in findings:
        file = f"patches/{finding.base}/{finding.patch}.patch"
        place = {"file": file} if finding.patch else {}
        message = f"{finding.message}\n{finding.detail}".strip()
        annotation("error", message, title=f"verify {finding.base}", **place)


def _summary(report: Report, seconds: float) -> str:
    bases = len({result.base for result in report.results})
    count = f"{len(report.results)} patches on {bases} bases"
    if report.ok:
        return f"ok: {count}, each red on the released code and green when patched, in {seconds:.0f} s"
    proven = sum(result.red and result.green for result in report.results)
    return (
        f"not proven: {len(report.findings)} findings; {proven} of {count} are red "
        f"and green, in {seconds:.0f} s\n"
        "next: keep the trees with `dspark-patches verify BASE --keep DIR` and run "
        "one test file with `dspark-patches exec`"
    )


def _escape(text: str, also: bool = True) -> str:
    pairs = [("%", "%25"), ("\r", "%0D"), ("\n", "%0A")]
    for raw, escaped in pairs + ([(":", "%3A"), (",", "%2C")] if also else []):
        text = text.replace(raw, escaped)
    return text
