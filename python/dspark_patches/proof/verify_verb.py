"""``dspark-patches verify``: every patch red, then green."""

from __future__ import annotations

import time
from pathlib import Path

import click
from rich.box import SIMPLE
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from .. import options as shared
from .. import report
from ..errors import Exit
from ..findings import Finding
from ..model import releases
from ..report_findings import print_finding
from . import runner
from . import verify as job
from .judgement import PatchProof, Run


@click.command(name="verify")
@click.argument("release", nargs=-1)
@shared.form
@click.option(
    "--jobs",
    type=click.IntRange(1, 64),
    default=2,
    show_default=True,
    help="How many trees to test at once; each needs about 1 GiB of memory.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(1),
    default=runner.TIMEOUT,
    show_default=True,
    metavar="SECONDS",
    help="How long the tests of one tree may take.",
)
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False, resolve_path=True),
    metavar="DIR",
    help="Keep the trees below DIR, as DIR/RELEASE/pristine and so on.",
)
@click.pass_context
def command(
    context: click.Context,
    release: tuple[str, ...],
    form: str,
    jobs: int,
    timeout: float,
    keep: Path | None,
) -> None:
    """Show that every patch of a RELEASE is needed and works.

    Each release's wheel is downloaded once. Its regression tests must
    fail on the released code, for the right reason, and pass on the patched
    code. With no RELEASE, every release that has a series is verified.

    \b
    Examples:
      dspark-patches verify                      all releases
      dspark-patches verify v0.5.16              one release
      dspark-patches verify --format json        for a program
      dspark-patches verify v0.5.16 --keep /tmp/trees
      dspark-patches exec /tmp/trees/v0.5.16/patched test/.../test_x.py -f

    Ends with 0 when all is proven, 1 when not, 3 when it could not be tried.
    """
    chosen = releases.chosen(release)
    options = job.Options(jobs=jobs, timeout=timeout, keep=keep)
    with Reporter(form) as reporter:
        seen = job.verify(chosen, options, reporter)
        reporter.finish(seen)
    context.exit(Exit.OK if seen.ok else Exit.FINDINGS)


class Reporter(job.Observer):
    """Tells of a verification as it goes, with a bar where a terminal shows it."""

    def __init__(self, form: str) -> None:
        self._form = form
        self._started = time.monotonic()
        stderr = report.console(stderr=True)
        self._progress = Progress(
            SpinnerColumn(),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=stderr,
            transient=True,
            redirect_stdout=False,
            disable=not stderr.is_terminal,
        )

    def __enter__(self) -> Reporter:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def note(self, message: str) -> None:
        text = report.printable(message)
        self._progress.console.print(text, soft_wrap=True, style="dim")

    def planned(self, count: int) -> None:
        self._task = self._progress.add_task("trees", total=count)

    def ran(self, run: Run) -> None:
        told = report.counts(outcome.status for outcome in run.outcomes.values())
        self.note(f"{run.release}: {run.tree}: {told} ({run.seconds:.0f} s)")
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
            for proof in proofs:
                for path in proof.left_out:
                    why = "since no wheel carries it"
                    report.line(f"left out of {proof.patch}, {why}: {path}")
        for finding in findings:
            print_finding(self._form, finding)
        self._progress.start()

    def finish(self, seen: job.Report) -> None:
        """Print what is left to say when all is done."""
        self._progress.stop()
        if self._form == "json":
            report.json(seen)
            return
        tags = ", ".join(dict.fromkeys(result.release for result in seen.results))
        proven = sum(result.red and result.green for result in seen.results)
        seconds = time.monotonic() - self._started
        told = f"{proven} of {len(seen.results)} patches red, then green "
        told += f"({tags}; {seconds:.0f} s)"
        found = f"findings: {len(seen.findings)}; "
        report.line(f"ok: {told}" if seen.ok else found + told)


def _table(proofs: tuple[PatchProof, ...]) -> Table:
    table = Table(title=proofs[0].release, title_justify="left", box=SIMPLE)
    table.add_column("patch", overflow="fold")
    for name in ("kind", "red", "green"):
        table.add_column(name)
    table.add_column("tests", justify="right")
    for proof in proofs:
        marks = ("yes" if proven else "NO" for proven in (proof.red, proof.green))
        table.add_row(proof.patch, proof.kind, *marks, str(len(proof.tests)))
    return table
