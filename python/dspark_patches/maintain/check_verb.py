"""``dspark-patches check``: all that can be known offline, at once."""

from __future__ import annotations

import click

from .. import options
from ..errors import Exit
from ..model import releases
from ..report import print_findings
from . import check as job


@click.command(name="check")
@click.argument("release", nargs=-1)
@options.form
@click.pass_context
def command(context: click.Context, release: tuple[str, ...], form: str) -> None:
    """Check the series of every RELEASE, offline and in a second.

    Every patch must be what git writes, say why and name its tests; every hunk
    must land where it was written for; every added file must be the clone's;
    every lock must be up to date. All findings are reported at once. With no
    RELEASE, every release that has a series is checked, and every file below
    python/sglang and test/registered must belong to one.

    \b
    Examples:
      dspark-patches check
      dspark-patches check v0.5.16 --format json

    Ends with 0 when there is nothing to mend, warnings aside, else with 1.
    """
    named = tuple(map(releases.find, dict.fromkeys(release)))
    chosen = named or releases.with_series()
    found = job.check(chosen, releases.data_root(), whole=not named)
    failed = print_findings(form, found, f"{len(chosen)} series")
    context.exit(Exit.FINDINGS if failed else Exit.OK)
