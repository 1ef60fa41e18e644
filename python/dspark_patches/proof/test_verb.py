"""``dspark-patches test``: the regression tests on any tree."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from .. import options, report
from ..errors import Exit
from ..installs.locate import locate
from . import runner
from .trial import Held, Trial, trial

_MEANING = {
    "passed": ("holds", "green"),
    "failed": ("does not hold", "red"),
    "error": ("breaks", "red"),
    "skipped": ("skipped", "yellow"),
}
_WIDTH = max(len(word) for word, _ in _MEANING.values())


@click.command(name="test")
@options.target
@options.python
@options.release
@click.option(
    "--timeout",
    type=click.FloatRange(1),
    default=runner.TIMEOUT,
    show_default=True,
    metavar="SECONDS",
    help="How long all tests together may take.",
)
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
