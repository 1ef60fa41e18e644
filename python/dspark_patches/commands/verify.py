"""``dspark-patches verify``: every patch red, then green."""

from __future__ import annotations

from pathlib import Path

import click

from .. import bases, runner
from .. import verify as job
from ..errors import Exit, Usage
from ..report_verify import verify_reporter
from . import options as shared


@click.command(name="verify")
@click.argument("base", nargs=-1)
@shared.form
@click.option(
    "--jobs",
    type=click.IntRange(1, 64),
    default=2,
    show_default=True,
    help="How many trees to test at once; each needs about 1 GiB of memory.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(1),
    default=runner.TIMEOUT,
    show_default=True,
    metavar="SECONDS",
    help="How long the tests of one tree may take.",
)
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False, resolve_path=True),
    metavar="DIR",
    help="Keep the trees below DIR, as DIR/BASE/pristine and so on.",
)
@click.pass_context
def command(
    context: click.Context,
    base: tuple[str, ...],
    form: str,
    jobs: int,
    timeout: float,
    keep: Path | None,
) -> None:
    """Show that every patch of a BASE is needed and works.

    Each base's released wheel is downloaded once. Its regression tests must
    fail on the released code, for the right reason, and pass on the patched
    code. With no BASE, every base that has a series is verified.

    \b
    Examples:
      dspark-patches verify                      all bases
      dspark-patches verify v0.5.16              one base
      dspark-patches verify --format json        for a program
      dspark-patches verify v0.5.16 --keep /tmp/trees
      dspark-patches exec /tmp/trees/v0.5.16/patched test/.../test_x.py -f

    Ends with 0 when all is proven, 1 when not, 3 when it could not be tried.
    """
    chosen = tuple(map(bases.find, dict.fromkeys(base))) or bases.with_series()
    if not chosen:
        raise Usage("no base has a series yet", next_step="add a mail below patches/")
    options = job.Options(jobs=jobs, timeout=timeout, keep=keep)
    with verify_reporter(form) as reporter:
        seen = job.verify(chosen, options, reporter)
        reporter.finish(seen)
    context.exit(Exit.OK if seen.ok else Exit.FINDINGS)
