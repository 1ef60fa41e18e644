"""``test``: what the regression tests say of any tree, patched or not.

The tests run on a copy of the target's package, over which the series' tests
and test kit are laid; the target itself stays as it is.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from ..errors import Precondition
from ..installs.locate import Target
from ..installs.status import Status
from ..model import releases, series
from ..model.series import Series
from ..trees import make
from . import runner
from .outcomes import Outcome
from .runner_child import selects


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """What one test said.

    Attributes:
        patch: the patch that names the test; empty when none does.
        status: ``failed`` is the test's own assertion; ``error`` anything else.
    """

    test: str
    patch: str
    status: str
    reason: str
    detail: str = ""


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """What the tests of a release's series said of a target."""

    target: str
    release: str
    how: str
    python: str
    tests: tuple[Held, ...]

    @property
    def holds(self) -> bool:
        """Whether something was tested, and nothing spoke against it."""
        statuses = {held.status for held in self.tests}
        return "passed" in statuses and not statuses & {"failed", "error"}


def trial(
    target: Target,
    *,
    named: str = "",
    timeout: float = runner.TIMEOUT,
    notify: Callable[[str], None] = lambda message: None,
) -> Trial:
    """Run the regression tests of a release's series on a target.

    Args:
        target: the target; it is only read.
        named: the release whose tests to run; found out unless told, and on a
            tree that is no known release, those of the nearest.
        timeout: seconds for all of them.
        notify: told before something slow begins.

    Raises:
        Usage: there is no such release, or it has no series.
        Precondition: no release is near, or the interpreter does not start.
    """
    status = Status(target, named)
    release = status.release or status.near
    if not release:
        raise Precondition(
            f"{target.root} is no release that we know",
            cause=status.how,
            next_step="name the release whose tests to run with --release",
        )
    loaded = series.load(releases.find(release))
    python = target.python or sys.executable
    files = make.tests(loaded)
    chosen = sorted(path for path in files if path.startswith("test/"))
    with tempfile.TemporaryDirectory(prefix="dspark-test-") as scratch:
        notify(f"copying {target.package}")
        make.build(Path(scratch), target.package, files)
        notify(f"running {len(chosen)} test files with {python}")
        outcomes = runner.run(Path(scratch), chosen, python=python, timeout=timeout)
    held = tuple(_held(loaded, outcome) for outcome in outcomes)
    where, how = str(target.root), status.how
    return Trial(target=where, release=release, how=how, python=python, tests=held)


def _held(loaded: Series, outcome: Outcome) -> Held:
    names = (
        patch.name
        for patch in loaded.patches
        if any(selects(selector, outcome.id) for selector in patch.tests)
    )
    return Held(
        test=outcome.id,
        patch=next(names, ""),
        status=outcome.status,
        reason=str(outcome),
        detail=outcome.detail if outcome.faults else "",
    )
