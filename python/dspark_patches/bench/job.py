"""Run figures on bases: processes, a few at a time, and their rows."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from typing import Protocol

import msgspec

from .. import __version__
from ..bases import Base, find, load
from ..proof import PRISTINE
from . import figures
from .figures import Progress, Setting
from .place import Place, place, release
from .results import FORM, TREES, Host, Results, Row, merged
from .worker import Ready, Worker


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How to run.

    Attributes:
        figures: their names, of :data:`figures.NAMES`.
        seed: of every task.
        jobs: processes at a time; the cost is measured by itself in any case.
    """

    figures: tuple[str, ...] = figures.NAMES
    seed: int = 0
    jobs: int = 1


class Observer(Protocol):
    """Told what happens, from any thread."""

    def note(self, message: str) -> None:
        """Something slow begins."""

    def started(self, what: str) -> Progress:
        """A process begins; to be told how far each of its tasks is."""

    def found(self, row: Row) -> None:
        """A task is done."""

    def ended(self, what: str) -> None:
        """That process is done."""


def bench(bases: Sequence[Base], options: Options, observer: Observer) -> Results:
    """Run the figures.

    Raises:
        Precondition: a wheel cannot be had, a tree not be written, or a process
            died.
        SimulatorFailed: a task ended with an exception.
    """
    rows: list[Row] = []
    versions: list[Ready] = []
    with place(observer.note) as where:
        for row in _all_rows(where, bases, options, observer, versions):
            observer.found(row)
            rows.append(row)
    found = Results(
        form=FORM,
        tool=__version__,
        host=Host(
            python=versions[-1].python,
            torch=versions[-1].torch,
            platform=f"{platform.system()} {platform.machine()}",
        ),
        releases={row.base: release(find(row.base)) for row in rows},
        rows=tuple(rows),
    )
    # Merged with nothing but itself: in order.
    return merged(msgspec.structs.replace(found, rows=()), found)


def _all_rows(
    where: Place,
    bases: Sequence[Base],
    options: Options,
    observer: Observer,
    versions: list[Ready],
) -> Iterator[Row]:
    single = [name for name in options.figures if name in figures.SINGLE]
    # Made one by one: pip and git are quick, and their errors plain.
    places = [(base, tree) for base in bases for tree in TREES] if single else []
    for base, tree in places:
        where.tree(base, tree)
    with ThreadPoolExecutor(options.jobs) as pool:
        jobs = [
            pool.submit(_rows, where, *each, single, options, observer, versions)
            for each in places
        ]
        try:
            for job in as_completed(jobs):
                yield from job.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    if "cost" in options.figures:
        for base in bases:
            yield from _cost_rows(where, base, options, observer, versions)


def _rows(
    where: Place,
    base: Base,
    tree: str,
    names: Sequence[str],
    options: Options,
    observer: Observer,
    versions: list[Ready],
) -> list[Row]:
    what = f"{base.tag} {tree}"
    progress = observer.started(what)
    with Worker(where.tree(base, tree)) as worker:
        versions.append(worker.ready)
        setting = Setting(
            base=base.tag,
            tree=tree,
            seed=options.seed,
            worker=worker,
            progress=progress,
        )
        rows = [row for name in names for row in figures.SINGLE[name](setting)]
    observer.ended(what)
    return rows


def _cost_rows(
    where: Place,
    base: Base,
    options: Options,
    observer: Observer,
    versions: list[Ready],
) -> Iterator[Row]:
    """A base's cost and, in the same turns, that of the releases whose own fix came
    first and is newest: only numbers of one run can be compared."""
    newest = tuple(load())[-1]
    references = dict.fromkeys((figures.COST_REFERENCE, newest))
    measured = [(base, tree, tree) for tree in TREES]
    measured += [(find(tag), PRISTINE, tag) for tag in references if tag != base.tag]
    what = f"{base.tag} cost"
    progress = observer.started(what)
    with ExitStack() as stack:
        settings = []
        for each, tree, name in measured:
            worker = stack.enter_context(Worker(where.tree(each, tree)))
            versions.append(worker.ready)
            settings.append(
                Setting(
                    base=base.tag,
                    tree=name,
                    seed=options.seed,
                    worker=worker,
                    progress=progress,
                )
            )
        yield from figures.cost(settings)
    observer.ended(what)
