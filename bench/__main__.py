"""``scripts/bench``: the reported figures, before and after."""

from __future__ import annotations

import signal
from contextlib import nullcontext

import click

from dspark_patches.errors import Exit, Failure
from dspark_patches.model.releases import find, load, with_series

from . import docs
from .figures import FIGURES
from .place import say
from .results import Results, load
from .run import run
from .tables import HOW_TO_READ, table


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("releases", nargs=-1, metavar="[RELEASE]...")
@click.option(
    "--figure",
    "figures",
    multiple=True,
    type=click.Choice(list(FIGURES)),
    help="Only this one; may be given more than once.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Processes at a time; what is timed is always run by itself.",
)
@click.option("--readme", is_flag=True, help="Keep what is found in docs/figures.")
@click.option("--redraw", is_flag=True, help="Run nothing; write docs/figures anew.")
@click.pass_context
def command(context, releases, figures, jobs, readme, redraw) -> None:
    """Make the reported figures again, as released and patched, on a CPU.

    A decode node is simulated on each RELEASE's own scheduler, pools and prefix
    caches. Tables go to standard output; with --readme each row is also saved in
    docs/figures/results.json as soon as it is there, beside what was known of other
    figures and releases, and tables and pictures are made of all.

    \b
    Examples:
      scripts/bench v0.5.16 --figure growth    about a minute
      scripts/bench --jobs 2 --readme          all that the docs show

    Ends with 130 when interrupted; what was found by then is shown and kept.
    """
    try:
        _bench(releases, figures, jobs, readme, redraw)
    except Failure as failure:
        say(f"error: {failure.message}")
        for name, text in (("cause", failure.cause), ("next", failure.next_step)):
            if text:
                say(f"  {name}: {text}")
        context.exit(failure.exit_code)
    except KeyboardInterrupt:
        say("error: interrupted")
        context.exit(Exit.INTERRUPTED)


def _bench(releases, figures, jobs: int, readme: bool, redraw: bool) -> None:
    if redraw:
        docs.write(load(docs.FOLDER / docs.RESULTS))
        return
    tags = [find(name).tag for name in dict.fromkeys(releases)]
    tags = tags or [release.tag for release in with_series()]
    figures = tuple(dict.fromkeys(figures))
    with docs.alone() if readme else nullcontext():
        known = load(docs.FOLDER / docs.RESULTS) if readme else Results()
        try:
            run(known, tags, figures, jobs, docs.save if readme else lambda found: None)
        finally:
            if readme:
                docs.write(known)
                say(f"{docs.FOLDER} is written; next: dspark-patches readme")
            _print(known)


def _print(results: Results) -> None:
    click.echo(HOW_TO_READ)
    for name, figure in FIGURES.items():
        if rows := table(results, name):
            click.echo(f"\n{figure.title}\n\n{rows}\n{figure.note}")


def _interrupt(number, frame) -> None:
    raise KeyboardInterrupt


def main() -> None:
    # Let SIGTERM and SIGHUP end a run as Ctrl-C does: no process, no tree left.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    command(prog_name="scripts/bench")


if __name__ == "__main__":
    main()
