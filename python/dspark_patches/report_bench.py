"""A bench, told in the three formats of :mod:`dspark_patches.report`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.box import SIMPLE
from rich.progress import Progress, TaskID
from rich.table import Table

from . import report
from .bench import tables
from .bench.results import Results, Row
from .progress import note, progress


class BenchReporter:
    """Tells of a bench as it goes; an observer of :mod:`.bench.job`."""

    def __init__(self, form: str, progress: Progress) -> None:
        self._form = form
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def note(self, message: str) -> None:
        note(self._progress, message)

    def started(self, what: str):
        task = self._tasks[what] = self._progress.add_task(what, total=None)

        def progress(done: int, total: int) -> None:
            self._progress.update(task, completed=done, total=total)

        return progress

    def found(self, row: Row) -> None:
        told = f"{row.base} {row.tree}: {row.figure}: {row.name}"
        self.note(f"{told} ({row.cpu_seconds:.1f} s)")

    def ended(self, what: str) -> None:
        self._progress.remove_task(self._tasks.pop(what))

    def finish(self, results: Results) -> None:
        """Print what was found."""
        self._progress.stop()
        if self._form == "json":
            report.json(results)
            return
        for table in tables.tables(results):
            report.console().print(_shown(table))
            report.line(table.note.replace("*", "").replace("`", "") + "\n")
        if self._form == "github":
            report.annotation("notice", f"{len(results.rows)} tasks", title="bench")


@contextmanager
def bench_reporter(form: str) -> Iterator[BenchReporter]:
    """A reporter, with progress bars where there is a terminal to show them."""
    with progress() as shown:
        yield BenchReporter(form, shown)


def _shown(table: tables.Table) -> Table:
    shown = Table(title=table.title, title_justify="left", box=SIMPLE)
    for name in table.header:
        shown.add_column(name, overflow="fold")
    for row in table.rows:
        shown.add_row(*row)
    return shown
