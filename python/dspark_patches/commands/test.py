"""``dspark-patches test``: the regression tests on any tree."""

from __future__ import annotations

from pathlib import Path

import click

from .. import report, runner
from ..errors import Exit
from ..installs.locate import locate
from ..report_trial import print_trial
from ..trial import trial
from . import options


@click.command(name="test")
@options.target
@options.python
@options.base
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

    The tests are those of TARGET's base, or of the nearest one. They run on a
    copy, with --python, whose packages SGLang's modules need; TARGET stays as
    it is, but its code is run.

    \b
    Examples:
      dspark-patches test --python /opt/venv/bin/python
      dspark-patches test ~/my-fork --base v0.5.16

    Ends with 0 when every test holds, else with 1.
    """
    found = trial(
        locate(target, python),
        named=named,
        timeout=timeout,
        notify=lambda text: report.line(text, stderr=True),
    )
    print_trial(form, found)
    context.exit(Exit.OK if found.holds else Exit.FINDINGS)
