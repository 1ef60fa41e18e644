"""``dspark-patches readme``: the README's tables, from their sources."""

from __future__ import annotations

import click

from .. import options
from ..errors import Exit
from ..files import replace_all
from ..model import releases
from ..report import line, print_findings
from . import readme as job


@click.command(name="readme")
@click.option("--check", is_flag=True, help="Compare only; write nothing.")
@options.form
@click.pass_context
def command(context: click.Context, check: bool, form: str) -> None:
    """Write the generated parts of the clone's README anew.

    The table of patches comes from the patches; figures come from the files below
    docs that `scripts/bench` and the tests write.

    \b
    Examples:
      dspark-patches readme
      dspark-patches readme --check --format github

    With --check, ends with 1 when a part is out of date.
    """
    root = releases.data_root()
    path = root / "README.md"
    text = path.read_text(encoding="utf-8")
    known = releases.with_series()
    if check:
        found = job.check(text, known, root / "docs")
        failed = print_findings(form, found, "README.md")
        context.exit(Exit.FINDINGS if failed else Exit.OK)
    replace_all({path: job.fill(text, known, root / "docs").encode()})
    line("README.md is up to date")
