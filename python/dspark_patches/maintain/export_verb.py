"""``dspark-patches export``: patches made anew, checked, or read from commits."""

from __future__ import annotations

from pathlib import Path

import click

from .. import report
from ..errors import Exit, Usage
from ..files import replace_all
from ..findings import Finding
from ..model import releases, series
from ..model.releases import Release
from ..report import FORMATS, print_findings
from ..trees import make
from ..trees.wheels import Released
from . import collect, derive, export, lint, pr

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
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="How --check reports.",
)
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

    With --check, ends with 1 when a patch would change.
    """
    if sum(map(bool, (only_check, tree, texts))) > 1:
        raise Usage("--check, --from and --pr exclude one another")
    if tree and len(release) != 1:
        raise Usage(
            "--from needs one RELEASE", next_step="name the release of the work tree"
        )
    chosen = tuple(map(releases.find, dict.fromkeys(release))) or releases.with_series()
    if not chosen:
        raise Usage(
            "no release has a series yet", next_step="add a patch below patches/"
        )
    if tree:
        write(_from(chosen[0], tree), f"`dspark-patches lock {chosen[0].tag}`")
    elif texts:
        write(_texts(chosen, texts), "paste one as a pull request's text")
    elif only_check:
        found = [finding for one in chosen for finding in _differences(one)]
        failed = print_findings(form, found, f"{len(chosen)} series")
        context.exit(Exit.FINDINGS if failed else Exit.OK)
    else:
        changes: dict[Path, bytes | None] = {}
        for one in chosen:
            changes |= _anew(one)
        write(changes, "`dspark-patches lock`")


def _written(one: Release) -> dict[str, bytes]:
    root = releases.data_root()
    return export.regenerate(series.load(one), _released(one).root, root)


def _released(one: Release) -> Released:
    return make.released(one, lambda text: report.line(text, stderr=True))


def _anew(one: Release) -> dict[Path, bytes | None]:
    loaded, written = series.load(one), _written(one)
    stale = export.first_differences(loaded, written)
    return {loaded.folder / f"{name}.patch": written[name] for name in stale}


def _differences(one: Release) -> list[Finding]:
    loaded = series.load(one)
    stale = export.first_differences(loaded, _written(one))
    hint = f"run `dspark-patches export {one.tag}`"
    return [
        lint.finding(
            loaded,
            patch,
            "git writes the patch otherwise",
            hint,
            line=stale[patch.name],
        )
        for patch in loaded.patches
        if patch.name in stale
    ]


def _from(one: Release, tree: Path) -> dict[Path, bytes | None]:
    shared: set[str] = set()
    for other in releases.with_series():
        if other != one:
            shared |= series.added_paths(series.scan(other)[0])
    root = releases.data_root()
    features = derive.features(root, _released(one).root)
    return collect.changes(series.load(one), tree, root, shared, features)


def _texts(chosen: tuple[Release, ...], folder: Path) -> dict[Path, bytes | None]:
    return {
        folder / one.tag / f"{patch.name}.md": pr.render(patch).encode()
        for one in chosen
        for patch in series.load(one).patches
    }


def write(changes: dict[Path, bytes | None], next_step: str = "") -> None:
    """Write or, for None, remove files of the clone, and tell which."""
    replace_all(changes)
    for path, content in sorted(changes.items()):
        report.line(f"{'removed' if content is None else 'wrote'} {path}")
    if next_step:
        report.line(f"next: {next_step}" if changes else "nothing changed")
