"""``dspark-patches export``: patches made anew, checked, or read from commits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import click

from .. import options
from ..errors import Exit, Usage
from ..findings import Finding
from ..model import releases, series
from ..model.releases import Release
from ..report_findings import print_findings
from . import collect, lint, pr
from .clone import released, write
from .restack import regenerate

_FOLDER = click.Path(path_type=Path, file_okay=False, resolve_path=True)


@click.command(name="export")
@click.argument("release", nargs=-1)
@click.option("--check", "only_check", is_flag=True, help="Compare, write nothing.")
@click.option(
    "--from", "tree", type=_FOLDER, metavar="DIR", help="Read DIR, which `edit` made."
)
@click.option(
    "--pr", "texts", type=_FOLDER, metavar="DIR", help="Write pull-request texts there."
)
@options.form
@click.pass_context
def command(
    context: click.Context,
    release: tuple[str, ...],
    only_check: bool,
    tree: Path | None,
    texts: Path | None,
    form: str,
) -> None:
    """Write the patches of every RELEASE anew, byte-equal on every machine.

    Messages and edits come from the patches, added files from python/sglang and
    test/registered, as far as the release needs them: see
    python/sglang/test/kits/features.py. With no RELEASE, every release that has a series
    is exported.

    \b
    Examples:
      dspark-patches export                         all releases
      dspark-patches export --check                 would anything change?
      dspark-patches export --from sglang-v0.5.16 v0.5.16
      dspark-patches export --pr texts v0.5.23

    With --check, ends with 1 when a patch would change; --format says how.
    """
    if sum(map(bool, (only_check, tree, texts))) > 1:
        raise Usage("--check, --from and --pr exclude one another")
    if tree and len(release) != 1:
        raise Usage(
            "--from needs one RELEASE", next_step="name the release of the work tree"
        )
    chosen = releases.chosen(release)
    if only_check:
        found = [finding for one in chosen for finding in _differences(one)]
        failed = print_findings(form, found, f"{len(chosen)} series")
        context.exit(Exit.FINDINGS if failed else Exit.OK)
    wanted: dict[Path, bytes | None] = {}
    for one in chosen:
        if tree:
            wanted |= _from(one, tree)
        elif texts:
            wanted |= _texts(one, texts)
        else:
            folder = releases.series_dir(one)
            wanted |= {folder / f"{n}.patch": data for n, data in _anew(one).items()}
    lock = " ".join(("dspark-patches lock", *release))
    write(wanted, "paste one as a pull request's text" if texts else f"`{lock}`")


def _anew(one: Release) -> dict[str, bytes]:
    loaded = series.load(one)
    return regenerate(loaded, released(one).root, releases.data_root())


def _differences(one: Release) -> Iterator[Finding]:
    loaded, written = series.load(one), _anew(one)
    for patch in loaded.patches:
        old, new = loaded.path(patch).read_bytes(), written[patch.name]
        if old != new:
            what = "git writes the patch otherwise"
            hint = f"run `dspark-patches export {one.tag}`"
            line = os.path.commonprefix([old, new]).count(b"\n") + 1
            yield lint.finding(loaded, patch, what, hint, line=line)


def _from(one: Release, tree: Path) -> dict[Path, bytes | None]:
    others = (other for other in releases.with_series() if other != one)
    shared = {p for other in others for p in series.added_paths(series.scan(other)[0])}
    return collect.changes(series.load(one), tree, releases.data_root(), shared)


def _texts(one: Release, folder: Path) -> dict[Path, bytes]:
    patches = series.load(one).patches
    return {folder / one.tag / f"{p.name}.md": pr.render(p).encode() for p in patches}
