"""``dspark-patches test``: what the regression tests say of any tree.

They run on a copy of the target's package, over which the series' tests and test kit
are laid; the target itself stays as it is.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import click
import msgspec

from .. import options, report
from ..errors import Exit, Precondition
from ..installs.locate import Target, locate
from ..installs.status import Status
from ..model import releases, series
from ..trees import make
from . import runner
from .outcomes import names

_MEANING = {
    "passed": ("holds", "green"),
    "failed": ("does not hold", "red"),
    "error": ("breaks", "red"),
    "skipped": ("skipped", "yellow"),
}
_WIDTH = max(len(word) for word, _ in _MEANING.values())


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
    status = Status(target, named)
    release = status.release or status.near
    if not release:
        raise Precondition(
            f"{target.root} is no release that we know",
            cause=status.how,
            next_step="name the release whose tests to run with --release",
        )
    loaded = series.load(releases.named(release))
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
        how=status.how,
        python=python,
        tests=tuple(
            Held(
                test=outcome.id,
                patch=next(
                    (p.name for p in loaded.patches if names(p, outcome.id)), ""
                ),
                status=outcome.status,
                reason=str(outcome),
                detail=outcome.detail if outcome.faults else "",
            )
            for outcome in outcomes
        ),
    )


@click.command(name="test")
@options.target
@options.python
@options.release
@options.timeout
@options.form
@click.pass_context
def command(
    context: click.Context,
    target: Path | None,
    python: str | None,
    named: str,
    timeout: float,
    form: str,
) -> None:
    """Run the regression tests on TARGET, patched or not, on a CPU.

    The tests are those of TARGET's release, or of the nearest one. They run on a
    copy, with --python, whose packages SGLang's modules need; TARGET stays as
    it is, but its code is run.

    \b
    Examples:
      dspark-patches test --python /opt/venv/bin/python
      dspark-patches test ~/my-fork --release v0.5.16

    Ends with 0 when every test holds, else with 1.
    """
    found = trial(
        locate(target, python),
        named=named,
        timeout=timeout,
        notify=lambda text: report.line(text, stderr=True),
    )
    if form == "json":
        report.json({"ok": found.holds, **msgspec.to_builtins(found)})
    else:
        _print(form, found)
    context.exit(Exit.OK if found.holds else Exit.FINDINGS)


def _print(form: str, found: Trial) -> None:
    """Print what every test said, patch by patch."""
    report.line(f"the tests of {found.release} on {found.target}, with {found.python}")
    patch = None
    for held in sorted(found.tests, key=lambda held: held.patch):
        if held.patch != patch:
            patch = held.patch
            report.line(f"{patch or 'named by no patch'}:")
        _print_test(held)
        if form == "github" and held.status in ("failed", "error"):
            message = f"{held.test}: {held.reason}"
            report.annotation("error", message, title=f"test {found.release}")
    told = report.counts(held.status for held in found.tests)
    report.line(f"ok: {told}" if found.holds else f"not all hold: {told}")
    if {held.status for held in found.tests} == {"error"}:
        report.line("next: name an interpreter that has SGLang's packages: --python")
    elif not found.holds:
        report.line(f"next: dspark-patches status {found.target}")


def _print_test(held: Held) -> None:
    word, style = _MEANING[held.status]
    file, _, name = held.test.partition("::")
    report.line(f"  {word:{_WIDTH}}  {name or file}", style=style)
    if held.status != "passed":
        reasons = "; ".join(dict.fromkeys(held.reason.split("; ")))
        report.line(f"  {'':{_WIDTH}}    {reasons}")
