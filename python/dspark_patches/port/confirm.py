"""What the series' own tests say of a fork with the patches merged in.

Lines that fit say little: a clock that a fork ticks elsewhere would tick twice, and
tests that only pin what a release does fit any tree. So the tests run on a copy
that has the patches, and where one fails, on a copy without them.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from ..errors import Precondition
from ..installs.locate import Target
from ..model.series import is_test
from ..model.states import Content
from ..proof import runner
from ..proof.outcomes import Outcome
from ..proof.runner_child import selects
from ..trees import make
from .fork import Fork
from .port import Porter
from .section import Verdict
from .verdicts import HELPED, Choice, PatchVerdict, Report

# Each round leaves out, or takes from elsewhere, what failed in the one before.
_ROUNDS = 6
_ABSENT = {"ImportError", "AttributeError"}


def confirmed(porter: Porter, choice: Choice, notify: Callable[[str], None]) -> Report:
    """The verdicts that the tests of the patches confirm.

    A patch whose tests fail with it and pass without it is done elsewhere; one of
    tests alone that fail lacks the fix, which is taken from another release where
    that fits. Either way the rest is judged, and tested, again.

    Args:
        porter: judges the fork.
        choice: the patches.
        notify: told before something slow begins.

    Raises:
        Precondition: the fork cannot be copied, or no test can be run with its
            interpreter.
    """
    out: dict[int, PatchVerdict] = {}
    for _ in range(_ROUNDS):
        report = porter.judge(choice)
        found = _outcomes(porter.fork, report, report.merged, notify)
        if found and all(outcome.status == "error" for outcome in found.values()):
            _cannot_run(porter.fork.target, report, found)
        failing = [one for one in report.patches if _failed(one, found)]
        if not failing:
            break
        bare = {p: c for p, c in report.merged.items() if is_test(p)}
        before = _outcomes(porter.fork, report, bare, notify)
        failing = [one for one in failing if not _lost_before(one, found, before)]
        if not failing:
            break
        taken = dict(choice.taken)
        for one in failing:
            number = one.patch.number
            tag = porter.fix_of(number, one.release) if one.patch.kind == "test" else ""
            if tag and number not in taken:
                taken[number] = tag
            else:
                out[number] = _judged(one, found, before)
        skip = choice.skip | out.keys()
        choice = msgspec.structs.replace(choice, skip=frozenset(skip), taken=taken)
    else:
        report = porter.judge(choice)
    told = (_told(one, found) for one in report.patches)
    patches = sorted([*out.values(), *told], key=lambda one: one.patch.number)
    return msgspec.structs.replace(report, patches=tuple(patches), tested=True)


def _outcomes(
    fork: Fork,
    report: Report,
    files: Mapping[str, Content],
    notify: Callable[[str], None],
) -> dict[str, Outcome]:
    """The outcomes of all patches' tests on a copy of the fork with some files."""
    selectors = [
        name
        for one in report.patches
        if one.verdict in HELPED
        for name in one.patch.tests
    ]
    target = fork.target
    python = target.python or sys.executable
    with tempfile.TemporaryDirectory(prefix="dspark-port-") as scratch:
        files = {**fork.committed, **report.tests, **files}
        make.build(Path(scratch), target.package, files)
        notify(f"running {len(selectors)} test classes with {python}")
        found = runner.run(Path(scratch), selectors, python=python)
    return {outcome.id: outcome for outcome in found}


def _own(one: PatchVerdict, found: Mapping[str, Outcome]) -> list[Outcome]:
    """The outcomes of a patch's tests, or of a file of them that was not loaded."""
    files = {selector.partition("::")[0] for selector in one.patch.tests}
    return [
        outcome
        for name, outcome in found.items()
        if name in files or any(selects(each, name) for each in one.patch.tests)
    ]


def _failed(one: PatchVerdict, found: Mapping[str, Outcome]) -> list[Outcome]:
    """A patch's tests that speak against it; what cannot run here says nothing."""
    own = _own(one, found) if one.verdict in HELPED else []
    return [o for o in own if o.status in ("failed", "error") and not _absent(o)]


def _absent(outcome: Outcome) -> bool:
    """Whether a test's own code, or the kit's, asks for what the fork lacks."""
    return all(
        _ABSENT.intersection(fault.bases)
        and (is_test(fault.frame) or fault.fixture == "collection")
        for fault in outcome.faults
    )


def _lost_before(
    one: PatchVerdict, found: Mapping[str, Outcome], before: Mapping[str, Outcome]
) -> bool:
    """Whether a patch's tests meet the same want of an attribute without patches.

    The fork's code then asks a test's stand-in for what the release does not ask.
    """
    return all(
        o.id in before
        and [(f.type, f.message) for f in o.faults]
        == [(f.type, f.message) for f in before[o.id].faults]
        and all(_ABSENT.intersection(f.bases) for f in o.faults)
        for o in _failed(one, found)
    )


def _judged(
    one: PatchVerdict, found: Mapping[str, Outcome], before: Mapping[str, Outcome]
) -> PatchVerdict:
    """The verdict on a patch whose tests fail on the merged tree."""
    failed = _failed(one, found)
    held = {name for name, outcome in before.items() if outcome.status == "passed"}
    twice = [o for o in failed if o.id in held]
    if one.patch.kind == "test":
        verdict = Verdict.LACKS_THE_FIX
    else:
        verdict = Verdict.DONE_ELSEWHERE if twice else Verdict.CONFLICT
    evidence = [
        f"test {o.id} fails"
        + (" with it, and passes without: skip it" if o.id in held else "")
        + f": {o}"
        + (f" ({frame})" if (frame := _innermost(o)) else "")
        for o in failed
    ]
    return msgspec.structs.replace(
        one, verdict=verdict, evidence=tuple(evidence), tests="failed"
    )


def _innermost(outcome: Outcome) -> str:
    return next((f.frame for f in outcome.faults if not is_test(f.frame)), "")


def _told(one: PatchVerdict, found: Mapping[str, Outcome]) -> PatchVerdict:
    """A verdict with what its tests said."""
    own = _own(one, found)
    lost = [outcome for outcome in own if outcome.faults]
    if one.verdict not in HELPED or not own:
        return one
    if not lost:
        return msgspec.structs.replace(one, tests="passed")
    evidence = (f"test {o.id} cannot run here: {o}" for o in lost)
    return msgspec.structs.replace(
        one, tests="cannot run here", evidence=(*one.evidence, *evidence)
    )


def _cannot_run(target: Target, report: Report, found: Mapping[str, Outcome]) -> None:
    raise Precondition(
        f"the tests of {report.release} cannot be run on {target.root}",
        cause=str(next(iter(found.values()))),
        next_step="name an interpreter that has SGLang's packages with --python, "
        "or judge the lines alone with --no-test",
    )
