"""What counts as proof: red for the right reason, then green."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from ..findings import Finding
from ..model.series import Patch, Series, added_paths, in_wheels, is_test
from ..trees.make import PATCHED, PRISTINE, tree_of
from .outcomes import Fault, Outcome, names

# A test that cannot even be loaded says nothing about the code under test.
_NEVER = {"ImportError", "SyntaxError"}


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The tests' outcomes by test id in one tree, and what building and running took."""

    release: str
    tree: str
    outcomes: dict[str, Outcome]
    seconds: float = 0.0

    def outcome(self, test: str) -> Outcome:
        """A test's outcome, or that of its file when that did not load."""
        path = test.split("::")[0]
        missing = Outcome(id=test, skipped="it does not exist in this tree")
        return self.outcomes.get(test) or self.outcomes.get(path, missing)


class TestProof(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of one test that a patch names.

    It is ``red_on`` trees where it failed for the right reason; the ``reason`` is that
    on the first of them, or else what became of it on each tree.
    """

    id: str
    red: bool
    red_on: tuple[str, ...]
    reason: str
    green: bool


class PatchProof(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of one patch; ``left_out`` are files that no wheel carries."""

    release: str
    patch: str
    kind: Literal["fix", "test"]
    red: bool
    green: bool
    tests: tuple[TestProof, ...]
    left_out: tuple[str, ...]


Judgement = tuple[tuple[PatchProof, ...], tuple[Finding, ...]]


def right_reason(outcome: Outcome) -> bool:
    """Whether a test failed because of the code that was released.

    Every fault must be an assertion of the test, or an exception that arose
    in released code; never one of loading, nor of a class's or module's setup.
    """

    def right(fault: Fault) -> bool:
        if fault.fixture or _NEVER.intersection(fault.bases):
            return False
        released = fault.frame.startswith("python/sglang/") and not is_test(fault.frame)
        return released or "AssertionError" in fault.bases

    return bool(outcome.faults) and all(map(right, outcome.faults))


def judge(loaded: Series, runs: Mapping[str, Run]) -> Judgement:
    """Judge a series by the runs of its trees, given by tree name."""
    proofs, findings = [], []
    added, patched = added_paths(loaded), runs[PATCHED]
    unnamed = dict(patched.outcomes)
    for patch in loaded.patches:
        evidence = [runs[PRISTINE], *(runs[tree_of(c)] for c in patch.controls)]
        own = {name: o for name, o in patched.outcomes.items() if names(patch, name)}
        tests = tuple(_test(name, evidence, own[name]) for name in own)
        paths = (s.path for s in patch.file.sections)
        proofs.append(
            PatchProof(
                release=loaded.release,
                patch=patch.name,
                kind=patch.kind,
                red=_is_red(patch, tests),
                green=bool(tests) and all(test.green for test in tests),
                tests=tests,
                left_out=tuple(p for p in paths if not (in_wheels(p) or p in added)),
            )
        )
        file = f"patches/{loaded.release}/{patch.name}.patch"
        about = dict(release=loaded.release, patch=patch.name, file=file)
        for what, hint, detail in _amiss(patch, tests, evidence, patched):
            findings.append(Finding(what=what, hint=hint, detail=detail, **about))
        for name in own:
            unnamed.pop(name, None)
    for name, outcome in unnamed.items():
        about = dict(file=name.split("::")[0], detail=outcome.detail)
        hint = "name it in the Regression-Test trailer of the patch that it proves"
        what = f"no patch names {name}"
        findings.append(Finding(release=loaded.release, what=what, hint=hint, **about))
    return tuple(proofs), tuple(findings)


def _test(name: str, evidence: list[Run], patched: Outcome) -> TestProof:
    seen = {run.tree: run.outcome(name) for run in evidence}
    red_on = tuple(tree for tree, outcome in seen.items() if right_reason(outcome))
    everywhere = "; ".join(f"{tree}: {outcome}" for tree, outcome in seen.items())
    return TestProof(
        id=name,
        red=bool(red_on),
        red_on=red_on,
        reason=str(seen[red_on[0]]) if red_on else everywhere,
        green=patched.status == "passed",
    )


def _is_red(patch: Patch, tests: tuple[TestProof, ...]) -> bool:
    if not tests or not all(test.red for test in tests):
        return False
    if patch.kind == "test":
        return bool(patch.controls)
    return any(PRISTINE in test.red_on for test in tests)


def _amiss(
    patch: Patch, tests: tuple[TestProof, ...], evidence: list[Run], patched: Run
) -> Iterable[tuple[str, str, str]]:
    """What keeps a patch from being proven, what helps, and what was seen."""
    red_on = {tree for test in tests for tree in test.red_on}
    if not patch.tests:
        yield "the patch names no test", "add a Regression-Test trailer", ""
    if patch.kind == "test" and not patch.controls:
        what = "a test-only patch needs a control"
        yield what, "add a diff below controls/ that brings the defect back", ""
    if patch.kind == "fix" and PRISTINE not in red_on:
        what = "none of its tests fails on the pristine tree"
        yield what, "name a test that the released code fails", ""
    for control in patch.controls:
        if tree_of(control) not in red_on:
            what = f"control {control.name} makes none of its tests fail"
            yield what, "drop the control, or add the test that it calls for", ""
    for test in tests:
        if not test.red:
            seen = ((run.tree, run.outcome(test.id)) for run in evidence)
            faulty = "\n\n".join(f"{t}:\n{o.detail}" for t, o in seen if o.faults)
            what = f"{test.id} is not red for the right reason: {test.reason}"
            hint = "it must fail by assertion, or in released code, without the patch"
            yield what, hint, faulty
        if not test.green:
            outcome = patched.outcomes[test.id]
            what = f"{test.id} is not green: {outcome}"
            yield what, "keep the trees with --keep, then use `exec`", outcome.detail
