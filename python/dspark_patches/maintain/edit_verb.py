"""``dspark-patches edit``: a work tree with one commit per patch."""

from __future__ import annotations

from pathlib import Path

import click

from .. import report
from ..model import releases, series
from ..trees import make as trees
from . import checkout


@click.command(name="edit")
@click.argument("release")
@click.option(
    "--checkout",
    "source",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    metavar="DIR",
    help="A full checkout of SGLang that has the release's tag; a work tree is added.",
)
@click.option(
    "--to",
    "target",
    type=click.Path(path_type=Path, resolve_path=True),
    metavar="DIR",
    help="Where to make the work tree; sglang-RELEASE in the current folder unless told.",
)
def command(release: str, source: Path | None, target: Path | None) -> None:
    """Make a work tree of RELEASE with one commit per patch, to be edited.

    Edit as with any branch: amend, rebase, add commits. `export --from` turns
    the commits back into patches. Without --checkout the work tree is a new
    repository of the files that wheels carry; the parts of patches that edit
    other files are kept aside.

    \b
    Examples:
      dspark-patches edit v0.5.16
      dspark-patches edit v0.5.16 --checkout ~/sglang --to ~/sglang-v0.5.16
      dspark-patches export --from sglang-v0.5.16 v0.5.16
    """
    one = releases.find(release)
    loaded = series.load(one)
    target = target or Path.cwd() / f"sglang-{one.tag}"
    if source:
        checkout.from_checkout(loaded, one, source, target)
        left_out: tuple[str, ...] = ()
    else:
        released = trees.released(one, lambda text: report.line(text, stderr=True))
        left_out = checkout.from_wheel(loaded, released.root, target)
    report.line(f"made {target}: {len(loaded.patches)} commits on {one.tag}")
    for path in left_out:
        report.line(f"kept aside, not in wheels: {path}")
    report.line(
        f"next: edit and commit there, then "
        f"`dspark-patches export --from {target} {one.tag}`"
    )
