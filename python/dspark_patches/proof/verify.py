"""Show every patch of a series red, then green, in the trees that prove it."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from queue import SimpleQueue

import msgspec

from .. import report
from ..errors import Precondition
from ..findings import Finding
from ..model import series
from ..model.releases import Release
from ..model.series import Series
from ..trees import make as trees
from ..trees.make import PATCHED, PRISTINE
from . import runner
from .judgement import Judgement, PatchProof, Run, judge
from .runner import Server

_PATIENCE = 0.5
_TEST_FILE = re.compile(r"test/(?:.*/)?test_[^/]*\.py")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How many trees to test at once, for how long each, and where to keep them."""

    jobs: int = 2
    timeout: float = runner.TIMEOUT
    keep: Path | None = None


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
    notify: Callable[[str], None],
    judged: Callable[[Judgement], None] = lambda judgement: None,
    load: Callable[[Release], Series] = series.load,
) -> Report:
    """Verify the series of these releases.

    Args:
        notify: told what begins and what became of each tree.
        judged: told of a release that is done.
        load: reads a release's series; may add tests to its patches.

    Raises:
        Usage: a release has no series.
        BadInput: a patch, control, lock or wheel is broken.
        Precondition: a wheel cannot be had, or a tree not be written.
        Conflict: a patch or control does not fit its release.
    """
    loaded = {release.tag: load(release) for release in releases}
    plans = {
        release.tag: plan(loaded[release.tag], trees.released(release, notify))
        for release in releases
    }
    everything = [each for planned in plans.values() for each in planned]
    runs: dict[str, dict[str, Run]] = {tag: {} for tag in plans}
    done: dict[str, Judgement] = {}
    with closing(_run_all(everything, options)) as finished:
        for number, run in enumerate(finished, 1):
            told = report.counts(each.status for each in run.outcomes.values())
            notify(
                f"{run.release}: {run.tree}: {told} ({run.seconds:.0f} s; "
                f"{number} of {len(everything)})"
            )
            tag, own = run.release, runs[run.release]
            own[run.tree] = run
            if len(own) == len(plans[tag]):
                done[tag] = judge(loaded[tag], own)
                judged(done[tag])
    results = tuple(proof for tag in plans for proof in done[tag][0])
    findings = tuple(finding for tag in plans for finding in done[tag][1])
    return Report(ok=not findings, results=results, findings=findings)


def plan(loaded: Series, released: trees.Released) -> tuple[Plan, ...]:
    """The trees that prove a series, the longest first."""
    named = tuple(test for patch in loaded.patches for test in patch.tests)
    files = tuple(sorted(filter(_TEST_FILE.fullmatch, trees.tests(loaded))))
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


def _run_all(plans: Sequence[Plan], options: Options) -> Iterator[Run]:
    """Run the plans, a few at a time; the first failure calls off the rest."""
    servers: SimpleQueue[Server] = SimpleQueue()
    with ExitStack() as stack:
        # In the end: drop what waits, end the servers, await the threads.
        pool = stack.enter_context(ThreadPoolExecutor(options.jobs))
        for _ in range(min(options.jobs, len(plans))):
            servers.put(stack.enter_context(Server(preload=runner.PRELOAD)))
        stack.callback(pool.shutdown, wait=False, cancel_futures=True)
        waiting = {pool.submit(_run, each, options, servers) for each in plans}
        while waiting:
            # A signal that another thread received wakes nobody who waits without end.
            done, waiting = wait(waiting, _PATIENCE, FIRST_COMPLETED)
            yield from (each.result() for each in done)


def _run(plan: Plan, options: Options, servers: SimpleQueue[Server]) -> Run:
    started = time.monotonic()
    with _folder(plan, options.keep) as root:
        trees.build(root, plan.package, plan.files)
        server = servers.get()
        try:
            outcomes = runner.run(
                root, plan.selectors, timeout=options.timeout, server=server
            )
        finally:
            servers.put(server)
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
    if root.exists():
        raise Precondition(
            f"{root} is there already", next_step="name an empty folder for --keep"
        )
    yield root
