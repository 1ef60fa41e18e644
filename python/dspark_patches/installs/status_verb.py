"""``dspark-patches status``: which patches are in."""

from __future__ import annotations

from pathlib import Path

import click

from .. import options
from .locate import locate
from .report import print_status
from .status import status


@click.command(name="status")
@options.target
@options.python
@options.release
@click.option(
    "--require", is_flag=True, help="End with 0 only when every needed patch is in."
)
@click.option(
    "--same-as",
    default="",
    metavar="FINGERPRINT",
    help="End with 0 only when TARGET has this fingerprint.",
)
@options.form
@click.pass_context
def command(
    context: click.Context,
    target: Path | None,
    python: str | None,
    named: str,
    require: bool,
    same_as: str,
    form: str,
) -> None:
    """Say which patches TARGET has, offline and in a second.

    TARGET is a git checkout, a source tree, a site-packages folder or a
    virtual environment; with none, the sglang that --python imports, which is
    found without importing it. A patch is needed when the release has the
    fault that it fixes; the tests of a series are not. Files are told by
    their content: one that was changed or cut short makes a patch "unclear".
    Of a checkout the work tree counts, which is what runs.

    \b
    Examples:
      dspark-patches status
      dspark-patches status --python /opt/venv/bin/python
      dspark-patches status ~/sglang --format json
      dspark-patches status --require && python -m sglang.launch_server ...

    Ends with 0 when all is plain (with --require: and in), 1 when a patch is
    partly applied or unclear (with --require: or a needed patch is not in; with
    --same-as: or the fingerprint differs), 3 when TARGET is no known release.
    """
    found = status(locate(target, python), named)
    context.exit(print_status(form, found, require, same_as))
