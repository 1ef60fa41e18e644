"""The main job: show every patch of a series red, then green.

For each base a pristine tree, a patched one and one per control are built and
the regression tests run in each; :mod:`dspark_patches.proof` judges.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path, PurePosixPath
from queue import SimpleQueue
from typing import Protocol

import msgspec

from . import proof, runner, series, trees
from .bases import Base
from .diff import Section
from .errors import Precondition
from .findings import Finding
from .proof import PATCHED, PRISTINE, PatchProof, Run
from .series import Patch, Series
from .waiting import as_completed
from .wheels import Released


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


class Observer(Protocol):
    """Told what happens, as it happens, from one thread at a time."""

    def note(self, message: str) -> None:
        """Something slow begins."""

    def planned(self, count: int) -> None:
        """So many trees will be tested."""

    def ran(self, run: Run) -> None:
        """A tree was tested."""

    def judged(
        self, proofs: tuple[PatchProof, ...], findings: tuple[Finding, ...]
    ) -> None:
        """A base is done."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of every base; ``ok`` when nothing is amiss."""

    ok: bool
    results: tuple[PatchProof, ...]
    findings: tuple[Finding, ...]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One tree to build, ``steps`` in order, and the tests to run in it."""

    base: str
    tree: str
    released: Released
    steps: tuple[tuple[str, tuple[Section, ...]], ...]
    selectors: tuple[str, ...]


def verify(
    bases: Sequence[Base],
    options: Options,
    observer: Observer,
    load: Callable[[Base], Series] = series.load,
) -> Report:
    """Verify the series of these bases.

    Args:
        bases: the bases.
        options: how to run.
        observer: told what happens.
        load: reads a base's series; may add tests to its patches.

    Raises:
        Usage: a base has no series.
        BadInput: a mail, control, lock or wheel is broken.
        Precondition: a wheel cannot be had, or a tree not be written.
        Conflict: a patch or control does not fit its base.
    """
    loaded = {base.tag: load(base) for base in bases}
    plans: list[Plan] = []
    for base in bases:
        released = trees.released(base, observer.note)
        plans.extend(plan(loaded[base.tag], released))
    observer.planned(len(plans))
    results: list[PatchProof] = []
    findings: list[Finding] = []
    runs: dict[str, dict[str, Run]] = {base.tag: {} for base in bases}
    with closing(_run_all(plans, options)) as finished:
        for run in finished:
            observer.ran(run)
            runs[run.base][run.tree] = run
            if len(runs[run.base]) == sum(p.base == run.base for p in plans):
                proofs, found = _judge(loaded[run.base], runs[run.base])
                observer.judged(proofs, found)
                results.extend(proofs)
                findings.extend(found)
    order = [base.tag for base in bases]
    results.sort(key=lambda result: order.index(result.base))
    findings.sort(key=lambda finding: order.index(finding.base))
    return Report(ok=not findings, results=tuple(results), findings=tuple(findings))


def plan(loaded: Series, released: Released) -> tuple[Plan, ...]:
    """The trees that prove a series, the longest first."""
    patches = loaded.patches
    added = _added_tests(patches)
    named = tuple(selector for patch in patches for selector in patch.tests)
    files = tuple(sorted(path for path in added if _is_test_file(path)))
    whole = tuple((patch.name, patch.mail.sections) for patch in patches)
    kit = tuple(
        (name, tuple(section for section in sections if section.path in added))
        for name, sections in whole
    )
    base = loaded.base

    def tree(name: str, steps, selectors) -> Plan:
        return Plan(
            base=base,
            tree=name,
            released=released,
            steps=steps,
            selectors=tuple(dict.fromkeys(selectors)),
        )

    return (
        tree(PATCHED, whole, files + named),
        tree(PRISTINE, kit, named),
        *(
            tree(
                proof.tree_of(control),
                (*whole[:position], (control.name, control.sections)),
                patch.tests,
            )
            for position, patch in enumerate(patches, 1)
            for control in patch.controls
        ),
    )


def _added_tests(patches: Sequence[Patch]) -> set[str]:
    """The tests and kit files that a series adds."""
    return {
        section.path
        for patch in patches
        for section in patch.mail.sections
        if section.kind == "add" and series.is_test(section.path)
    }


def _is_test_file(path: str) -> bool:
    name = PurePosixPath(path).name
    return (
        path.startswith("test/") and name.startswith("test_") and name.endswith(".py")
    )


def _run_all(plans: Sequence[Plan], options: Options) -> Generator[Run]:
    """Run the plans, a few at a time; the first failure calls off the rest."""
    cancel = threading.Event()
    with (
        _parents(min(options.jobs, len(plans))) as idle,
        ThreadPoolExecutor(options.jobs) as pool,
    ):
        futures = [pool.submit(_run, plan, options, cancel, idle) for plan in plans]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            cancel.set()
            pool.shutdown(cancel_futures=True)
            raise


@contextmanager
def _parents(count: int) -> Iterator[SimpleQueue[runner.Parent]]:
    """Processes to fork the tests' own from, one for each tree at a time."""
    idle: SimpleQueue[runner.Parent] = SimpleQueue()
    with ExitStack() as stack:
        for _ in range(count):
            parent = runner.start_parent(preload=runner.PRELOAD)
            idle.put(stack.enter_context(parent))
        yield idle


def _run(
    plan: Plan,
    options: Options,
    cancel: threading.Event,
    idle: SimpleQueue[runner.Parent],
) -> Run:
    started = time.monotonic()
    with _folder(plan, options.keep) as root:
        trees.copy(plan.released, root)
        left_out = {
            source: trees.apply(root, sections, f"{plan.base}/{source}")
            for source, sections in plan.steps
        }
        parent = idle.get()
        try:
            outcomes = runner.run(
                root,
                plan.selectors,
                timeout=options.timeout,
                cancel=cancel,
                parent=parent,
            )
        finally:
            idle.put(parent)
    return Run(
        base=plan.base,
        tree=plan.tree,
        outcomes={outcome.id: outcome for outcome in outcomes},
        left_out=left_out,
        seconds=time.monotonic() - started,
    )


@contextmanager
def _folder(plan: Plan, keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="dspark-tree-") as scratch:
            yield Path(scratch)
        return
    root = keep / plan.base / plan.tree.replace(" ", "-")
    try:
        root.mkdir(parents=True)
    except OSError as error:
        raise Precondition(
            f"{root} cannot be made to keep a tree in",
            cause=str(error),
            next_step="name an empty folder for --keep",
        ) from error
    yield root


def _judge(
    loaded: Series, runs: dict[str, Run]
) -> tuple[tuple[PatchProof, ...], tuple[Finding, ...]]:
    tag = loaded.base
    judged = [proof.judge(tag, patch, runs) for patch in loaded.patches]
    findings = [finding for _, found in judged for finding in found]
    findings.extend(proof.unnamed(tag, loaded.patches, runs[PATCHED]))
    return tuple(result for result, _ in judged), tuple(findings)
