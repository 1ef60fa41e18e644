"""Run figures on bases: processes, a few at a time, and their rows."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Protocol

import msgspec

from .. import __version__
from ..bases import Base, find, load
from ..proof import PRISTINE
from ..waiting import as_completed
from . import figures
from .figures import Progress, Setting
from .place import Place, place, release
from .results import FORM, TREES, Host, Results, Row, merged
from .worker import Ready, Workers


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How to run.

    Attributes:
        figures: their names, of :data:`figures.NAMES`; none for those that are made
            of each base.
        seed: of every task.
        jobs: processes at a time; the cost is measured by itself in any case.
    """

    figures: tuple[str, ...] = ()
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


class Run:
    """A run of the figures; what it has found so far can be had at any time.

    Args:
        bases: to run on.
        options: how.
        observer: told what happens.

    Raises:
        BadInput: the lock of a base cannot be read.
    """

    def __init__(
        self, bases: Sequence[Base], options: Options, observer: Observer
    ) -> None:
        self._bases = bases
        self._options = options
        self._observer = observer
        self._workers = Workers()
        # Now, not when it ends: the clone may have moved on by then.
        self._releases = {base.tag: release(base) for base in bases}
        # Appended to by any thread.
        self._rows: list[Row] = []
        self._versions: list[Ready] = []

    def run(self) -> None:
        """Run every figure to its end.

        Raises:
            Precondition: a wheel cannot be had, a tree not be written, or a process
                died.
            SimulatorFailed: a task ended with an exception.
        """
        try:
            with place(self._observer.note) as where:
                self._single(where)
                for base in self._bases:
                    if "cost" in self._names(base):
                        self._cost(where, base)
        finally:
            self._workers.stop()

    def results(self) -> Results | None:
        """All rows so far, in order; None where there is none."""
        rows = tuple(self._rows)
        if not rows:
            return None
        ready = self._versions[-1]
        found = Results(
            form=FORM,
            tool=__version__,
            host=Host(
                python=ready.python,
                torch=ready.torch,
                platform=f"{platform.system()} {platform.machine()}",
            ),
            releases={row.base: self._releases[row.base] for row in rows},
            rows=rows,
        )
        # Merged with nothing but itself: in order.
        return merged(msgspec.structs.replace(found, rows=()), found)

    def _single(self, where: Place) -> None:
        """The figures of one tree each, a few trees at a time."""
        # Made one by one: pip and git are quick, and their errors plain. Those of the
        # cost are made now as well, of the same patches as all.
        places = [(base, tree) for base in self._bases for tree in TREES]
        for base, tree in places:
            where.tree(base, tree)
        with ThreadPoolExecutor(self._options.jobs) as pool:
            jobs = [
                pool.submit(self._tree, where, base, tree, names)
                for base, tree in places
                if (names := self._names(base) - {"cost"})
            ]
            try:
                for job in as_completed(jobs):
                    job.result()
            except BaseException:
                # Else the pool waits for what runs, which may take an hour.
                self._workers.stop()
                pool.shutdown(cancel_futures=True)
                raise

    def _names(self, base: Base) -> Set[str]:
        return {*(self._options.figures or figures.names_of(base.tag))}

    def _tree(self, where: Place, base: Base, tree: str, names: Set[str]) -> None:
        what = f"{base.tag} {tree}"
        progress = self._observer.started(what)
        with self._setting(where, base, tree, base, tree, progress) as setting:
            for name in figures.SINGLE:
                if name in names:
                    self._keep(figures.SINGLE[name](setting))
        self._observer.ended(what)

    def _cost(self, where: Place, base: Base) -> None:
        """A base's cost and, in the same turns, that of the releases whose own fix
        came first and is newest: only numbers of one run can be compared."""
        newest = tuple(load())[-1]
        references = dict.fromkeys((figures.COST_REFERENCE, newest))
        measured = [(base, tree, tree) for tree in TREES]
        measured += [
            (find(tag), PRISTINE, tag) for tag in references if tag != base.tag
        ]
        what = f"{base.tag} cost"
        progress = self._observer.started(what)
        with ExitStack() as stack:
            settings = [
                stack.enter_context(
                    self._setting(where, each, tree, base, name, progress)
                )
                for each, tree, name in measured
            ]
            self._keep(figures.cost(settings))
        self._observer.ended(what)

    @contextmanager
    def _setting(
        self,
        where: Place,
        base: Base,
        tree: str,
        told_base: Base,
        told_tree: str,
        progress: Progress,
    ) -> Iterator[Setting]:
        """A process in a tree, whose rows are told by another base and tree where
        that is what they are compared with."""
        with self._workers.start(where.tree(base, tree)) as worker:
            self._versions.append(worker.ready)
            yield Setting(
                base=told_base.tag,
                tree=told_tree,
                seed=self._options.seed,
                worker=worker,
                progress=progress,
            )

    def _keep(self, rows: Iterator[Row]) -> None:
        for row in rows:
            self._rows.append(row)
            self._observer.found(row)
