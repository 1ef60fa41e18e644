"""``dspark-patches lock``: write what a series stands on and results in."""

from __future__ import annotations

import click

from .. import report
from ..errors import Usage
from ..files import replace_all
from ..model import lock, releases, series
from ..trees import make
from . import derive


@click.command(name="lock")
@click.argument("release", nargs=-1)
def command(release: tuple[str, ...]) -> None:
    """Write lock.toml of every RELEASE, from its patches and its released wheel.

    The wheel that an earlier lock names stays the one: a wheel with another
    hash is refused. With no RELEASE, every release that has a series is locked.

    \b
    Examples:
      dspark-patches lock
      dspark-patches lock v0.5.16
    """
    chosen = tuple(map(releases.find, dict.fromkeys(release))) or releases.with_series()
    if not chosen:
        raise Usage(
            "no release has a series yet", next_step="add a patch below patches/"
        )
    written = {}
    for one in chosen:
        loaded = series.load(one)
        released = make.released(one, lambda text: report.line(text, stderr=True))
        carried = lock.carried_blobs(loaded, released.root)
        known = derive.features(releases.data_root(), released.root)
        built = lock.build(one, loaded, released.sha256, carried, known)
        written[lock.path_of(one)] = lock.render(built)
    replace_all(written)
    for path in written:
        report.line(f"wrote {path}")
    report.line("next: `dspark-patches check`")
