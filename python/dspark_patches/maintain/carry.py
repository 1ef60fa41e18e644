"""``dspark-patches carry``: an edit of one release's series, on the others too."""

from __future__ import annotations

from collections.abc import Collection

import click
import msgspec

from .. import report
from ..errors import Exit
from ..model import releases
from ..model import series as all_series
from ..model.releases import Release
from ..model.series import Series
from ..port.merging import Clash
from . import beside
from .carrying import Carrying
from .clone import earlier, files, released, write
from .restack import States


@click.command(name="carry")
@click.argument("release")
@click.option(
    "--to",
    multiple=True,
    metavar="RELEASE",
    help="Carry to this release; to every release that has a series unless told.",
)
@click.option(
    "--since",
    default="HEAD",
    show_default=True,
    metavar="COMMIT",
    help="The clone's commit that holds the series of RELEASE before the edit.",
)
@click.option(
    "--skip",
    multiple=True,
    type=int,
    metavar="NUMBER",
    help="Leave this patch out where there is no series yet; may be given again.",
)
@click.option(
    "--controls",
    is_flag=True,
    help="Also the controls that another series lacks, or that do not fit it.",
)
@click.pass_context
def command(
    context: click.Context,
    release: str,
    to: tuple[str, ...],
    since: str,
    skip: tuple[int, ...],
    controls: bool,
) -> None:
    """Carry what was edited in the patches of RELEASE to the series of other releases.

    The edit is what the patches of RELEASE say otherwise than at --since: changed
    messages and lines, patches that are new or gone. git merges it into every
    other release's files, and the patches that follow are restacked, those of RELEASE
    as well. A release for which something conflicts is shown and left as it is.
    Controls are restacked, and new ones carried; an edit of a control is not.
    Commit what was carried before the next edit. A release that has no series yet
    gets all patches of RELEASE, but for --skip. Names of their lines that it has in
    other places than RELEASE are told: a patch may merge there and be wrong.

    \b
    Examples:
      dspark-patches edit v0.5.23                  edit one release, and commit
      dspark-patches export --from sglang-v0.5.23 v0.5.23
      dspark-patches carry v0.5.23                 then all others
      dspark-patches lock && dspark-patches check
      dspark-patches carry v0.5.22 --to v0.5.23 --skip 20

    Ends with 4 when a release conflicts.
    """
    one, clone = releases.find(release), releases.data_root()
    before = States(earlier(one, since), released(one).root)
    after = States(all_series.load(one), before.root, before.known())
    failed = False
    for other in dict.fromkeys((one, *releases.chosen(to))):
        if other == one or other in releases.with_series():
            here = before.series if other == one else all_series.load(other)
            anew = controls and other != one
            carrying = Carrying(before, after, here, released(other).root, anew)
        else:
            carrying = _first(after, other, skip)
        carried = carrying.carried(clone)
        if not carrying.clashes:
            report.line(f"{other.tag}: merged")
            if not carrying.series.patches:
                for line in beside.changed(after.series, after.root, carrying.root):
                    report.line(f"  look at {line}")
            write(files(other, carried), "`dspark-patches lock`, then `check`")
            continue
        failed = True
        _show(carrying.clashes, one, other, skip)
    context.exit(Exit.CONFLICT if failed else Exit.OK)


def _show(
    clashes: Collection[Clash], one: Release, other: Release, skip: Collection[int]
) -> None:
    """Tell what conflicts, and how to go on."""
    report.line(f"{other.tag}: not written, there are conflicts", style="red")
    for clash in clashes:
        report.line(f"  {clash.patch}: {clash.what}")
        for line in clash.text.splitlines():
            report.line(f"    {line}")
    if other == one or other in releases.with_series():
        report.line(f"next: carry it by hand, in what `edit {other.tag}` makes")
        return
    left = sorted({*skip, *(int(clash.patch[:4]) for clash in clashes)})
    options = " ".join(f"--skip {number}" for number in left)
    command = f"dspark-patches carry {one.tag} --to {other.tag} {options}"
    report.line(f"next: `{command}`, and docs/next-release.md for what is left out")


def _first(after: States, release: Release, skip: Collection[int]) -> Carrying:
    """The first series of a release: to it, all patches of another's are an edit."""
    wanted = tuple(p for p in after.series.patches if p.number not in skip)
    none, some = (
        States(
            msgspec.structs.replace(after.series, patches=patches),
            after.root,
            after.known(),
        )
        for patches in ((), wanted)
    )
    folder = releases.series_dir(release)
    here = Series(release=release.tag, folder=folder, patches=())
    return Carrying(none, some, here, released(release).root)
