"""Run figures on releases: processes, a few at a time, and their rows."""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack

from dspark_patches.maintain.readme import served
from dspark_patches.model.releases import find

from .figures import FIGURES, names_of
from .place import Place, place, say
from .results import RELEASED, TREES, Results, Row
from .worker import Worker, start

# A release, figures, and the trees in which they run, in turns.
Job = tuple[str, Sequence[str], Sequence[str]]


def run(
    results: Results,
    releases: Sequence[str],
    figures: Sequence[str],
    jobs: int,
    save: Callable[[Results], None],
) -> None:
    """Run figures on releases to their end; without names, those of each release.

    Args:
        results: which take in the rows, each when it is there.
        jobs: processes at a time; what is timed is run by itself in any case.
        save: called after each change of the results.

    Raises:
        Failure: a wheel cannot be had, a tree not be written, or a process died.
        TaskFailed: a task ended with an exception.
    """
    # Now, not when it ends: the clone may have moved on by then.
    files = {tag: served(find(tag)) for tag in releases}
    lock = threading.Lock()

    def keep(host: str, rows: list[Row]) -> None:
        with lock:
            results.host = host
            results.add(files[rows[0].release], rows)
            save(results)

    parallel, alone = _jobs(releases, figures)
    with place() as where:
        _run(where, parallel, jobs, keep)
        _run(where, alone, 1, keep)


def _jobs(
    releases: Sequence[str], figures: Sequence[str]
) -> tuple[list[Job], list[Job]]:
    """What may run side by side, a tree's figures in one process; and what is timed,
    of all trees that are compared."""
    parallel, alone = [], []
    for tag in releases:
        wanted = figures or names_of(tag)
        quick = [name for name in wanted if not FIGURES[name].rounds]
        parallel += [(tag, quick, [tree]) for tree in TREES if quick]
        for name in wanted:
            if FIGURES[name].rounds:
                beside = [other for other in FIGURES[name].beside if other != tag]
                alone.append((tag, [name], [*TREES, *beside]))
    return parallel, alone


def _run(where: Place, jobs: Sequence[Job], many: int, keep) -> None:
    """Run jobs in threads, which wait for processes; they end with this."""
    live: list[Worker] = []

    def job(tag: str, names: Sequence[str], trees: Mapping) -> None:
        with ExitStack() as stack:
            workers = {
                tree: stack.enter_context(start(root, live))
                for tree, root in trees.items()
            }
            host = next(iter(workers.values())).host
            for name in names:
                for rows in _measure(tag, name, workers):
                    keep(f"{host}, {platform.system()} {platform.machine()}", rows)

    # Trees are made one by one: pip and git are quick, and their errors plain.
    made = [
        (tag, names, {tree: where.tree(*_kind(tag, tree)) for tree in trees})
        for tag, names, trees in jobs
    ]
    with ThreadPoolExecutor(many) as pool:
        futures = [pool.submit(job, *each) for each in made]
        try:
            pending = set(futures)
            while pending:
                # A signal that another thread received wakes nobody who waits longer.
                done, pending = wait(pending, 0.5)
                for future in done:
                    future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            while any(future.running() for future in futures):
                for process in tuple(live):
                    process.kill()
                time.sleep(0.1)


def _measure(tag: str, name: str, workers: Mapping[str, Worker]) -> Iterator[list[Row]]:
    """Run a figure's tasks, each in all trees in turns; the rows of one task."""
    figure = FIGURES[name]
    caches = next(iter(workers.values())).caches
    for task_name, task in figure.tasks(caches).items():
        runs = {tree: [] for tree in workers}
        for _ in range(figure.rounds or 1):
            for tree, worker in workers.items():
                runs[tree].append(worker.run(task))
        rows = [
            Row(
                figure=name,
                release=tag,
                name=task_name,
                tree=tree,
                task=task,
                record=figure.join([record for record, _ in done]),
                cpu_seconds=round(sum(seconds for _, seconds in done), 3),
            )
            for tree, done in runs.items()
        ]
        seconds = sum(row.cpu_seconds for row in rows)
        say(f"{tag} {', '.join(workers)}: {name}: {task_name} ({seconds:.1f} s)")
        yield rows


def _kind(tag: str, tree: str) -> tuple[str, str]:
    """The release and the kind of a row's tree."""
    return (tag, tree) if tree in TREES else (tree, RELEASED)
