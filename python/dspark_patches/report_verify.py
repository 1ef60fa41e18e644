"""A verification, told in the three formats of :mod:`dspark_patches.report`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.box import SIMPLE
from rich.progress import MofNCompleteColumn, Progress, TaskID
from rich.table import Table

from . import report
from .findings import Finding
from .progress import note, progress
from .proof import PatchProof, Run
from .report_findings import print_finding
from .verify import Report


class VerifyReporter:
    """Tells of a verification as it goes; an observer of :mod:`.verify`."""

    def __init__(self, form: str, progress: Progress) -> None:
        self._form = form
        self._progress = progress
        self._task: TaskID | None = None
        self._started = time.monotonic()

    def note(self, message: str) -> None:
        note(self._progress, message)

    def planned(self, count: int) -> None:
        self._task = self._progress.add_task("trees", total=count)

    def ran(self, run: Run) -> None:
        statuses = [outcome.status for outcome in run.outcomes.values()]
        counts = (f"{statuses.count(each)} {each}" for each in dict.fromkeys(statuses))
        told = ", ".join(counts) or "no tests"
        self.note(f"{run.base}: {run.tree}: {told} ({run.seconds:.0f} s)")
        if self._task is not None:
            self._progress.advance(self._task)

    def judged(
        self, proofs: tuple[PatchProof, ...], findings: tuple[Finding, ...]
    ) -> None:
        if self._form == "json":
            return
        # The bar and the results may share one terminal.
        self._progress.stop()
        if self._form == "text":
            report.console().print(_table(proofs))
            for left_out in _left_out(proofs):
                report.line(left_out)
        for finding in findings:
            print_finding(self._form, finding)
        self._progress.start()

    def finish(self, seen: Report) -> None:
        """Print what is left to say when all is done."""
        self._progress.stop()
        if self._form == "json":
            report.json(seen)
        else:
            report.line(_summary(seen, time.monotonic() - self._started))


@contextmanager
def verify_reporter(form: str) -> Iterator[VerifyReporter]:
    """A reporter, with a progress bar where there is a terminal to show it."""
    with progress(MofNCompleteColumn()) as shown:
        yield VerifyReporter(form, shown)


def _table(proofs: tuple[PatchProof, ...]) -> Table:
    table = Table(title=proofs[0].base, title_justify="left", box=SIMPLE)
    table.add_column("patch", overflow="fold")
    for name in ("kind", "red", "green"):
        table.add_column(name)
    table.add_column("tests", justify="right")
    for proof in proofs:
        marks = ("yes" if proven else "NO" for proven in (proof.red, proof.green))
        table.add_row(proof.patch, proof.kind, *marks, str(len(proof.tests)))
    return table


def _left_out(proofs: tuple[PatchProof, ...]) -> Iterator[str]:
    for proof in proofs:
        for path in proof.left_out:
            yield f"left out of {proof.patch}, since no wheel carries it: {path}"


def _summary(seen: Report, seconds: float) -> str:
    bases = dict.fromkeys(result.base for result in seen.results)
    proven = sum(result.red and result.green for result in seen.results)
    told = (
        f"{proven} of {len(seen.results)} patches red, then green "
        f"({', '.join(bases)}; {seconds:.0f} s)"
    )
    return f"ok: {told}" if seen.ok else f"findings: {len(seen.findings)}; {told}"
