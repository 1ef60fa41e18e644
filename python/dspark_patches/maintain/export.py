"""``dspark-patches export``: patches made anew, checked, or read from commits."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from .. import options
from ..errors import Exit, Usage
from ..findings import Finding
from ..model import releases, series
from ..model.releases import Release
from ..model.series import Series
from ..report import print_findings
from . import collect, pr
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
    wanted: dict[Path, bytes | None] = {}
    for one in chosen:
        loaded = series.load(one)
        if tree:
            wanted |= collect.changes(loaded, tree, releases.data_root(), _others(one))
        elif texts:
            for patch in loaded.patches:
                path = texts / one.tag / f"{patch.name}.md"
                wanted[path] = pr.render(patch).encode()
        else:
            made = regenerate(loaded, released(one).root, releases.data_root())
            wanted |= {loaded.folder / f"{name}.patch": made[name] for name in made}
    if only_check:
        failed = print_findings(form, [*_stale(wanted)], f"{len(chosen)} series")
        context.exit(Exit.FINDINGS if failed else Exit.OK)
    lock = " ".join(("dspark-patches lock", *release))
    step = f"dspark-patches export {chosen[0].tag} && {lock}" if tree else lock
    write(wanted, "paste one as a pull request's text" if texts else f"`{step}`")


def _others(one: Release) -> list[Series]:
    return [series.scan(o)[0] for o in releases.with_series() if o != one]


def _stale(wanted: Mapping[Path, bytes]) -> Iterator[Finding]:
    for path, data in wanted.items():
        if (old := path.read_bytes()) != data:
            tag = path.parent.name
            yield Finding(
                release=tag,
                patch=path.stem,
                file=path.relative_to(releases.data_root()).as_posix(),
                line=os.path.commonprefix([old, data]).count(b"\n") + 1,
                what="git writes the patch otherwise",
                hint=f"run `dspark-patches export {tag}`",
            )
