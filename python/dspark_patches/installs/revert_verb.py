"""``dspark-patches revert``: take a series out."""

from __future__ import annotations

from pathlib import Path

import click

from .. import options
from .apply import change
from .locate import locate
from .report import print_outcome


@click.command(name="revert")
@options.target
@options.python
@options.release
@options.branch
@options.commit
@options.form
def command(
    target: Path | None,
    python: str | None,
    named: str,
    branch: str,
    commit: bool,
    form: str,
) -> None:
    """Take the whole series out of TARGET: every byte as released.

    On a git checkout whose newest commits are those that `apply` made, the
    branch goes back to where it was; otherwise one commit on top takes the
    series out. The blob ids of the release prove the result.

    \b
    Examples:
      dspark-patches revert
      dspark-patches revert ~/sglang

    Ends with 0 also when there is nothing to do, 3 when TARGET is not ready
    or no known release, 4 when one of its files is in no known state.
    """
    outcome = change(locate(target, python), "revert", named, branch, commit)
    print_outcome(form, outcome)
