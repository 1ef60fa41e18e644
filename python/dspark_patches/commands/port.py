"""``dspark-patches port``: a verdict per patch on a tree that differs."""

from __future__ import annotations

from pathlib import Path

import click

from .. import bases, report
from ..errors import Conflict, Exit, Usage
from ..files import replace_all
from ..installs.locate import locate
from ..port.port import Report, port
from ..report_port import print_port
from . import options


@click.command(name="port")
@click.argument("base")
@click.argument("target", type=click.Path(path_type=Path))
@click.option(
    "--write",
    "folder",
    type=click.Path(path_type=Path, file_okay=False, resolve_path=True),
    metavar="DIR",
    help="Write the ported mails there, when all are clean or moved.",
)
@options.form
@click.pass_context
def command(
    context: click.Context, base: str, target: Path, folder: Path | None, form: str
) -> None:
    """Say what each patch of BASE would do on TARGET, which is no known base.

    \b
    clean             every file is the base's, or every hunk stands at its line
    moved             the same lines, each in the same function or class
    upstreamed        TARGET has all of it already
    partly upstreamed TARGET has some of it
    gone              a file that it edits is not there
    conflict          none of these; also when it fits and TARGET does in another
                      place what the patch adds or takes away

    TARGET is only read. What is clean or moved still has to be tested.

    \b
    Examples:
      dspark-patches port v0.5.16 ~/my-fork
      dspark-patches port v0.5.16 ~/my-fork --write /tmp/ported
      git -C ~/my-fork am /tmp/ported/*.patch
      dspark-patches test ~/my-fork

    Ends with 0 when every patch is clean, moved or upstreamed, with 1 when
    not, with 4 when --write asks for mails that there cannot be.
    """
    one = bases.find(base)
    found = port(one, locate(target), lambda text: report.line(text, stderr=True))
    good = print_port(form, found)
    if folder:
        _write(found, folder)
        report.line(f"wrote {len(found.mails)} mails into {folder}", stderr=True)
        report.line(f"next: git -C {found.target} am {folder}/*.patch", stderr=True)
    context.exit(Exit.OK if good else Exit.FINDINGS)


def _write(found: Report, folder: Path) -> None:
    if not found.fits:
        raise Conflict(
            "no mails were written",
            cause="a patch is neither clean nor moved",
            next_step="carry that patch over by hand, or leave it out",
        )
    if left_out := [p for p in found.left_out if not p.startswith("python/")]:
        raise Usage(
            "no mails were written",
            cause=f"{found.target} does not carry {left_out[0]}",
            next_step="name a full checkout as TARGET",
        )
    if folder.exists() and any(folder.iterdir()):
        raise Usage(f"{folder} is not empty", next_step="name a new folder")
    replace_all({folder / f"{n}.patch": data for n, data in found.mails.items()})
