"""Whether a fork does already, in its own way, what a series would add.

Lines that fit say nothing of that: a clock that a fork ticks elsewhere would tick
twice. The series' own tests do, on a copy of the fork with the patches merged in.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from ..errors import Precondition
from ..installs.locate import Target
from ..proof.trial import Held, Trial, trial
from ..trees import make
from .port import PatchVerdict, Report
from .section import Verdict


def tested(report: Report, target: Target, notify: Callable[[str], None]) -> Report:
    """A report whose patches also passed the series' tests, merged into a target.

    Args:
        report: what :func:`dspark_patches.port.port.port` said; every patch fits or
            is in already.
        target: its target; the copy's tests run with its interpreter.
        notify: told before something slow begins.

    Raises:
        Precondition: the target cannot be copied, or the tests not be run.
    """
    with tempfile.TemporaryDirectory(prefix="dspark-port-") as scratch:
        root = Path(scratch)
        make.build(root, target.package, report.merged)
        merged = Target(kind="tree", root=root, python=target.python)
        after = trial(merged, named=report.release, notify=notify)
    failed = [held for held in after.tests if held.status in ("failed", "error")]
    if failed and all(held.status == "error" for held in after.tests):
        raise Precondition(
            f"the tests of {report.release} cannot be run with {after.python}",
            cause=failed[0].reason,
            next_step="name an interpreter that has SGLang's packages with --python, "
            "or judge the lines alone with --no-test",
        )
    before = trial(target, named=report.release, notify=notify) if failed else after
    return msgspec.structs.replace(
        report,
        tested=True,
        patches=tuple(_judged(one, failed, before) for one in report.patches),
    )


def _judged(one: PatchVerdict, failed: list[Held], before: Trial) -> PatchVerdict:
    """The verdict after the tests that a patch names, or whose files it adds."""
    added = {section.path for section in one.patch.file.sections}
    own = [
        held
        for held in failed
        if held.patch == one.patch.name
        or (not held.patch and held.test.partition("::")[0] in added)
    ]
    if not own:
        return one
    held_before = {held.test for held in before.tests if held.status == "passed"}
    twice = any(held.test in held_before for held in own)
    return msgspec.structs.replace(
        one,
        verdict=Verdict.DOUBLE_FIX if twice else Verdict.CONFLICT,
        evidence=tuple(
            f"test {held.test} fails on the merged tree"
            + (", and passes without the patches" if held.test in held_before else "")
            + f": {held.reason}"
            for held in own
        ),
    )
