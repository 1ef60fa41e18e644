"""``dspark-patches apply``: put a series in."""

from __future__ import annotations

from pathlib import Path

import click

from .. import options
from .apply import change
from .locate import locate
from .report import print_outcome


@click.command(name="apply")
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
    """Put the whole series of its release into TARGET, or nothing.

    Every file that the series touches must be as released or as patched;
    other files do not matter. An installed package gets the files below
    python/sglang, its test kit among them; tests under test/ are left out. A
    git checkout also gets one commit per patch, with the same ids for
    everybody, on the current branch. After an interruption a second `apply`
    finishes it, and `revert` takes it back.

    \b
    Examples:
      dspark-patches apply
      dspark-patches apply --python /opt/venv/bin/python
      dspark-patches apply ~/sglang --branch v0.5.16-dspark

    Ends with 0 also when there is nothing to do, 3 when TARGET is not ready
    or no known release, 4 when one of its files is in no known state.
    """
    outcome = change(locate(target, python), "apply", named, branch, commit)
    print_outcome(form, outcome)
