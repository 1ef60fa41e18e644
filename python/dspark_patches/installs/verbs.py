"""``dspark-patches status``, ``apply`` and ``revert``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from .. import options, report
from .apply import change
from .locate import locate
from .report import done, print_outcome, print_status
from .states import Verb
from .status import Status


@click.command()
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
def status(
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
    found = Status(locate(target, python), named)
    context.exit(print_status(form, found, require, same_as))


_APPLY = """\
Put the whole series of its release into TARGET, or nothing.

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
_REVERT = """\
Take the whole series out of TARGET: every byte as released.

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


def _changing(verb: Verb, text: str) -> click.Command:
    @click.command(name=verb, help=text)
    @options.target
    @options.python
    @options.release
    @options.branch
    @options.commit
    @options.form
    def command(
        target: Path | None, python: str | None, form: str, **asked: Any
    ) -> None:
        outcome = change(locate(target, python), verb, **asked)
        try:
            print_outcome(form, outcome)
            sys.stdout.flush()
        except OSError as error:
            # What is done stays done, and must not look like a failure.
            told = f"{done(outcome)}; it could not be told: {error.strerror}"
            report.line(told, stderr=True)
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    return command


apply = _changing("apply", _APPLY)
revert = _changing("revert", _REVERT)
