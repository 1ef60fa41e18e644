"""``dspark-patches bench``: the reported figures, before and after."""

from __future__ import annotations

from pathlib import Path

import click

from .. import bases
from ..bench import docs, figures, job, results
from ..errors import Usage
from ..files import replace_all
from ..report import line
from ..report_bench import bench_reporter
from . import options as shared


@click.command(name="bench")
@click.argument("base", nargs=-1)
@click.option(
    "--figure",
    "names",
    multiple=True,
    type=click.Choice(figures.NAMES),
    help="Only this one; may be given more than once.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option(
    "--jobs",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Processes at a time; the cost is always measured by itself.",
)
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Run nothing; take the results in FILE.",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Draw the figures into DIR, as SVG and PNG.",
)
@click.option(
    "--readme",
    is_flag=True,
    help="Write the clone's docs/figures anew, old results of other tasks kept.",
)
@shared.form
def command(
    base: tuple[str, ...],
    names: tuple[str, ...],
    seed: int,
    jobs: int,
    source: Path | None,
    plot: Path | None,
    readme: bool,
    form: str,
) -> None:
    """Make the reported figures again, as released and patched, on a CPU.

    A decode node is simulated on each BASE's own scheduler, pools and prefix
    caches: how SWA memory grows with one generation, how many requests fit, what
    an overload loses to retraction, and what a decode step costs. All bases and
    figures take an hour or two on one core; the same seed gives the same figures,
    the cost apart.

    \b
    Examples:
      dspark-patches bench v0.5.16 --figure growth        half a minute
      dspark-patches bench v0.5.16 v0.5.23 --plot plots
      dspark-patches bench --format json > results.json
      dspark-patches bench --from results.json --plot plots
      dspark-patches bench --readme                       all that the docs show
    """
    with bench_reporter(form) as reporter:
        if source:
            found = results.load(source)
        else:
            chosen = tuple(map(bases.find, dict.fromkeys(base))) or bases.with_series()
            if not chosen:
                raise Usage("no base has a series", next_step="see patches/")
            options = job.Options(
                figures=tuple(dict.fromkeys(names)) or figures.NAMES,
                seed=seed,
                jobs=jobs,
            )
            found = job.bench(chosen, options, reporter)
        if readme:
            found = docs.merge_into_clone(found)
            replace_all(docs.files(found))
            line(
                f"{docs.folder()} is written; next: dspark-patches readme", stderr=True
            )
        if plot:
            replace_all(docs.pictures(found, plot))
            line(f"pictures are in {plot}", stderr=True)
        reporter.finish(found)
