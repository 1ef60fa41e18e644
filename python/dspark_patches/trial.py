"""``test``: what the regression tests say of any tree, patched or not.

The tests run on a copy of the target's package, into which the series' tests
and test kit are laid; the target itself stays as it is.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from . import bases, runner, series
from .diff import ZEROS
from .errors import Precondition
from .installs.identify import Identity
from .installs.locate import Target
from .installs.status import View
from .outcomes import Outcome
from .patching import forward
from .proof import detail
from .runner_child import selects
from .series import Series, is_test

_PACKAGE = "python/sglang"
_RUN = "test/"


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
    """What the tests of a base's series said of a target."""

    target: str
    base: str
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
    """Run the regression tests of a base's series on a target.

    Args:
        target: the target; it is only read.
        named: the base whose tests to run; found out unless told, and on a
            tree that is no known base, those of the nearest.
        timeout: seconds for all of them.
        notify: told before something slow begins.

    Raises:
        Usage: there is no such base, or it has no series.
        Precondition: no base is near, or the interpreter does not start.
    """
    identity = View(target, named).identity
    loaded = series.load(bases.find(_base(target, identity)))
    python = target.python or sys.executable
    with tempfile.TemporaryDirectory(prefix="dspark-test-") as scratch:
        root = Path(scratch)
        notify(f"copying {target.package}")
        _copy(target.package, root / _PACKAGE)
        files = tests(loaded)
        _lay(root, files)
        chosen = sorted(path for path in files if path.startswith(_RUN))
        notify(f"running {len(chosen)} test files with {python}")
        outcomes = runner.run(root, chosen, python=python, timeout=timeout)
    return Trial(
        target=str(target.root),
        base=loaded.base,
        how=identity.how,
        python=python,
        tests=tuple(_held(loaded, outcome) for outcome in outcomes),
    )


def tests(loaded: Series) -> dict[str, bytes]:
    """The tests and the test kit that a series adds, as it leaves them."""
    found: dict[str, bytes | None] = {}
    for patch in loaded.patches:
        for section in patch.mail.sections:
            path = section.path
            if is_test(path) and (section.old == ZEROS or path in found):
                found[path] = forward(found.get(path), section)
    return {path: content for path, content in found.items() if content is not None}


def _base(target: Target, identity: Identity) -> str:
    base = identity.base or identity.near
    if not base:
        raise Precondition(
            f"{target.root} is no release that we know",
            cause=identity.how,
            next_step="name the base whose tests to run with --base",
        )
    return base


def _copy(package: Path, to: Path) -> None:
    try:
        shutil.copytree(
            package,
            to,
            symlinks=True,
            ignore=shutil.ignore_patterns("__pycache__", ".dspark-patches-*"),
        )
    except (OSError, shutil.Error) as error:
        raise Precondition(
            f"{package} cannot be copied",
            cause=str(error)[:500],
            next_step="free some space, or set TMPDIR to another folder",
        ) from error


def _lay(root: Path, files: dict[str, bytes]) -> None:
    for path, content in files.items():
        file = root / path
        # A link in the copy must not lead the test out of it.
        for folder in (file, *file.parents):
            if folder.is_symlink():
                folder.unlink()
            if folder == root:
                break
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def _held(loaded: Series, outcome: Outcome) -> Held:
    names: Iterable[str] = (
        patch.name
        for patch in loaded.patches
        if any(selects(selector, outcome.id) for selector in patch.tests)
    )
    return Held(
        test=outcome.id,
        patch=next(iter(names), ""),
        status=outcome.status,
        reason=str(outcome),
        detail=detail(outcome) if outcome.faults else "",
    )
