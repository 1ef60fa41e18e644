"""Arguments and options that several verbs share."""

from __future__ import annotations

from pathlib import Path

import click

from .report import FORMATS

target = click.argument("target", required=False, type=click.Path(path_type=Path))
python = click.option(
    "--python",
    metavar="PYTHON",
    help="The interpreter that SGLang runs with; the one that runs this unless told.",
)
release = click.option(
    "--release",
    "named",
    default="",
    metavar="RELEASE",
    help="Take TARGET for this release, or for the fork whose patches lie in ./DIR.",
)
branch = click.option(
    "--branch",
    default="",
    metavar="NAME",
    help="Make this branch; the work tree, and so what runs, stays as it is.",
)
commit = click.option(
    "--commit/--no-commit",
    default=True,
    help="On a git checkout, commit; or change the files in the work tree alone.",
)
timeout = click.option(
    "--timeout",
    type=click.FloatRange(1),
    default=900.0,
    show_default=True,
    metavar="SECONDS",
    help="How long the tests of one tree may take.",
)
form = click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="json prints one object; github prints annotations.",
)
