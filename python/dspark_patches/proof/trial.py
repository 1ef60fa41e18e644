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
from ..installs.status import View
from ..model import releases, series
from ..trees import make
from . import runner
from .outcomes import names


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """What one test said; ``patch`` names it, and is empty when none does."""

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
    """Run the regression tests of a release's series on a target, which is only read.

    They are those of the release ``named``, or of the target's own, or of the nearest;
    all of them may take ``timeout`` seconds.

    Raises:
        Usage: there is no such release, or it has no series.
        Precondition: no release is near, or the interpreter does not start.
    """
    identity = View(target, named).identity
    release = identity.release or identity.near
    if not release:
        raise Precondition(
            f"{target.root} is no release that we know",
            cause=identity.how,
            next_step="name the release whose tests to run with --release",
        )
    loaded = series.load(releases.find(release))
    patches = loaded.patches
    python = target.python or sys.executable
    files = make.tests(loaded)
    chosen = sorted(path for path in files if path.startswith("test/"))
    with tempfile.TemporaryDirectory(prefix="dspark-test-") as scratch:
        notify(f"copying {target.package}")
        make.build(Path(scratch), target.package, files)
        notify(f"running {len(chosen)} test files with {python}")
        outcomes = runner.run(Path(scratch), chosen, python=python, timeout=timeout)
    return Trial(
        target=str(target.root),
        release=release,
        how=identity.how,
        python=python,
        tests=tuple(
            Held(
                test=outcome.id,
                patch=next((p.name for p in patches if names(p, outcome.id)), ""),
                status=outcome.status,
                reason=str(outcome),
                detail=outcome.detail if outcome.faults else "",
            )
            for outcome in outcomes
        ),
    )
