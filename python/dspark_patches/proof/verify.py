"""The main job: show every patch of a series red, then green.

The regression tests run in each of the trees that :mod:`dspark_patches.trees.make`
makes of a series; :mod:`dspark_patches.proof.judgement` judges.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path, PurePosixPath
from queue import Empty, SimpleQueue
from threading import Thread

import msgspec

from ..errors import Precondition
from ..findings import Finding
from ..model import series
from ..model.releases import Release
from ..model.series import Series
from ..trees import make as trees
from ..trees.make import PATCHED, PRISTINE
from . import judgement as proof
from . import runner
from .judgement import PatchProof, Run
from .runner import Server

_PATIENCE = 0.5


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How to run.

    Attributes:
        jobs: how many trees to test at once.
        timeout: seconds for the tests of one tree.
        keep: a folder to keep the trees in; None drops them.
    """

    jobs: int = 2
    timeout: float = runner.TIMEOUT
    keep: Path | None = None


class Observer:
    """Told what happens, as it happens, from one thread; cares for nothing."""

    def note(self, message: str) -> None:
        """Something slow begins."""

    def planned(self, count: int) -> None:
        """So many trees will be tested."""

    def ran(self, run: Run) -> None:
        """A tree was tested."""

    def judged(
        self, proofs: tuple[PatchProof, ...], findings: tuple[Finding, ...]
    ) -> None:
        """A release is done."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of every release; ``ok`` when nothing is amiss."""

    ok: bool
    results: tuple[PatchProof, ...]
    findings: tuple[Finding, ...]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One tree to build, and the tests to run in it."""

    release: str
    tree: str
    package: Path
    files: trees.Files
    selectors: tuple[str, ...]


def verify(
    releases: Sequence[Release],
    options: Options,
    observer: Observer,
    load: Callable[[Release], Series] = series.load,
) -> Report:
    """Verify the series of these releases.

    Args:
        releases: the releases.
        options: how to run.
        observer: told what happens.
        load: reads a release's series; may add tests to its patches.

    Raises:
        Usage: a release has no series.
        BadInput: a patch, control, lock or wheel is broken.
        Precondition: a wheel cannot be had, or a tree not be written.
        Conflict: a patch or control does not fit its release.
    """
    loaded = {release.tag: load(release) for release in releases}
    plans = {
        release.tag: plan(loaded[release.tag], trees.released(release, observer.note))
        for release in releases
    }
    observer.planned(sum(map(len, plans.values())))
    runs: dict[str, dict[str, Run]] = {tag: {} for tag in plans}
    judged = {}
    everything = [each for planned in plans.values() for each in planned]
    with closing(_run_all(everything, options)) as finished:
        for run in finished:
            observer.ran(run)
            runs[run.release][run.tree] = run
            if len(runs[run.release]) == len(plans[run.release]):
                judged[run.release] = proof.judge(
                    loaded[run.release], runs[run.release]
                )
                observer.judged(*judged[run.release])
    results = tuple(proof for tag in plans for proof in judged[tag][0])
    findings = tuple(finding for tag in plans for finding in judged[tag][1])
    return Report(ok=not findings, results=results, findings=findings)


def plan(loaded: Series, released: trees.Released) -> tuple[Plan, ...]:
    """The trees that prove a series, the longest first."""
    named = tuple(test for patch in loaded.patches for test in patch.tests)
    files = tuple(sorted(filter(_is_test_file, trees.tests(loaded))))
    selectors = {PATCHED: files + named, PRISTINE: named}
    for patch in loaded.patches:
        selectors |= {trees.tree_of(c): patch.tests for c in patch.controls}
    return tuple(
        Plan(
            release=loaded.release,
            tree=name,
            package=released.package,
            files=content,
            selectors=tuple(dict.fromkeys(selectors[name])),
        )
        for name, content in trees.recipes(loaded, released.root).items()
    )


def _is_test_file(path: str) -> bool:
    return path.startswith("test/") and PurePosixPath(path).match("test_*.py")


def _run_all(plans: Sequence[Plan], options: Options) -> Iterator[Run]:
    """Run the plans, a few at a time; the first failure calls off the rest."""
    todo: SimpleQueue[Plan] = SimpleQueue()
    done: SimpleQueue[Run | BaseException] = SimpleQueue()
    for each in plans:
        todo.put(each)
    threads: list[Thread] = []
    with ExitStack() as stack:
        # In the end: take what waits, end the servers, await the threads.
        stack.callback(_await, threads)
        for _ in range(min(options.jobs, len(plans))):
            server = stack.enter_context(Server(preload=runner.PRELOAD))
            work = (todo, done, options, server)
            threads.append(Thread(target=_work, args=work))
        stack.callback(_drain, todo)
        for thread in threads:
            thread.start()
        for _ in plans:
            yield _next(done)


def _work(todo: SimpleQueue, done: SimpleQueue, options: Options, server: Server):
    with suppress(Empty):
        while True:
            plan = todo.get_nowait()
            try:
                done.put(_run(plan, options, server))
            except BaseException as error:
                done.put(error)


def _next(done: SimpleQueue[Run | BaseException]) -> Run:
    while True:
        # A signal that another thread received wakes nobody who waits without end.
        with suppress(Empty):
            found = done.get(timeout=_PATIENCE)
            if isinstance(found, BaseException):
                raise found
            return found


def _drain(todo: SimpleQueue[Plan]) -> None:
    with suppress(Empty):
        while True:
            todo.get_nowait()


def _await(threads: Sequence[Thread]) -> None:
    for thread in threads:
        if thread.is_alive():
            thread.join()


def _run(plan: Plan, options: Options, server: Server) -> Run:
    started = time.monotonic()
    with _folder(plan, options.keep) as root:
        trees.build(root, plan.package, plan.files)
        outcomes = runner.run(
            root, plan.selectors, timeout=options.timeout, server=server
        )
    return Run(
        release=plan.release,
        tree=plan.tree,
        outcomes={outcome.id: outcome for outcome in outcomes},
        seconds=time.monotonic() - started,
    )


@contextmanager
def _folder(plan: Plan, keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="dspark-tree-") as scratch:
            yield Path(scratch)
        return
    root = keep / plan.release / plan.tree.replace(" ", "-")
    try:
        root.mkdir(parents=True)
    except OSError as error:
        raise Precondition(
            f"{root} cannot be made to keep a tree in",
            cause=str(error),
            next_step="name an empty folder for --keep",
        ) from error
    yield root
