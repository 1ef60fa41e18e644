"""``dspark-patches bench``: the reported figures, before and after."""

from __future__ import annotations

from pathlib import Path

import click
from click.core import ParameterSource

from .. import bases, crash
from ..bench import docs, figures
from ..bench import form as results_form
from ..bench import job
from ..bench.results import MOST_SEED, Results, save
from ..bench.uninterrupted import uninterrupted
from ..errors import Exit, Usage
from ..files import replace_all, writable
from ..report import line
from ..report_bench import BenchReporter, bench_reporter
from . import options as shared

_ANOTHER = "name another file; `dspark-patches bench --format json` prints one"
_OF_A_RUN = {"base": "BASE", "names": "--figure", "seed": "--seed", "jobs": "--jobs"}


@click.command(name="bench")
@click.argument("base", nargs=-1)
@click.option(
    "--figure",
    "names",
    multiple=True,
    type=click.Choice(figures.NAMES),
    help="Only this one; may be given more than once.",
)
@click.option("--seed", type=click.IntRange(0, MOST_SEED), default=0, show_default=True)
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
@click.pass_context
def command(
    context: click.Context,
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
    figures take half an hour on one core; the same seed gives the same figures,
    the cost apart. Interrupted, it ends with 130 and still writes what --readme,
    --plot or --format json asked for, of the tasks that were done; what nobody
    asked for, or an error leaves, is kept in a file that it names.

    \b
    Examples:
      dspark-patches bench v0.5.16 --figure growth        about a minute
      dspark-patches bench v0.5.16 v0.5.23 --plot plots
      dspark-patches bench --format json > results.json
      dspark-patches bench --from results.json --plot plots
      dspark-patches bench --readme                       all that the docs show
    """
    with bench_reporter(form) as reporter:
        if source:
            _refuse_options_of_a_run(context)
            found = results_form.load(source, _ANOTHER)
            _prepare(plot, readme)
            _write(found, plot, readme)
        else:
            options = job.Options(
                figures=tuple(dict.fromkeys(names)),
                seed=seed,
                jobs=jobs,
            )
            run = job.Run(_chosen(base), options, reporter)
            _prepare(plot, readme)
            found = _finish(run, reporter, plot, readme, form)
        reporter.finish(found)


def _refuse_options_of_a_run(context: click.Context) -> None:
    given = [
        shown
        for name, shown in _OF_A_RUN.items()
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    if given:
        raise Usage(
            f"--from runs nothing, and {' and '.join(given)} would say what to run",
            next_step="leave one of them out",
        )


def _prepare(plot: Path | None, readme: bool) -> None:
    """What cannot be written after an hour is told now."""
    if plot or readme:
        docs.need_plots()
    if plot:
        writable(plot)
    if readme:
        writable(docs.folder())
        docs.in_clone()


def _chosen(names: tuple[str, ...]) -> tuple[bases.Base, ...]:
    chosen = tuple(map(bases.find, dict.fromkeys(names))) or bases.with_series()
    if not chosen:
        raise Usage("no base has a series", next_step="see patches/")
    return chosen


def _finish(
    run: job.Run, reporter: BenchReporter, plot: Path | None, readme: bool, form: str
) -> Results:
    """Run to the end, or write what was found until then.

    Raises:
        Exit: it was interrupted, and JSON is wanted: one object, not two.
    """
    try:
        run.run()
    except BaseException as error:
        found = run.results()
        if found is None:
            raise
        line(f"{len(found.rows)} tasks were done before", stderr=True)
        _write(found, plot, readme)
        if form == "json" and isinstance(error, KeyboardInterrupt):
            reporter.finish(found)
            raise click.exceptions.Exit(Exit.INTERRUPTED) from error
        if not readme and (kept := crash.keep("bench-", ".json", save(found))):
            line(f"they are kept, for --from: {kept}", stderr=True)
        raise
    found = run.results()
    _write(found, plot, readme)
    return found


def _write(found: Results, plot: Path | None, readme: bool) -> None:
    if readme:
        with docs.in_turn():
            made = docs.files(docs.merged_into_clone(found))
            with uninterrupted():
                replace_all(made)
        line(f"{docs.folder()} is written; next: dspark-patches readme", stderr=True)
    if plot:
        drawn = docs.pictures(found, plot)
        replace_all(drawn)
        done = "pictures are in" if drawn else "there is nothing to draw, none are in"
        line(f"{done} {plot}", stderr=True)
