"""``dspark-patches lock``: write what a series stands on and results in."""

from __future__ import annotations

from pathlib import Path

import click

from ..model import lock, releases, series
from . import added, derive
from .clone import released, write


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
    texts = added.read(releases.data_root())
    written: dict[Path, bytes | None] = {}
    for one in releases.chosen(release):
        loaded, tree = series.load(one), released(one)
        carried = lock.carried_blobs(loaded, tree.root)
        known = derive.answers(texts, tree.root)
        built = lock.build(one, loaded, tree.sha256, carried, known)
        written[lock.path_of(one)] = lock.render(built)
    write(written, "`dspark-patches check`")
