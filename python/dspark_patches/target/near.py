"""Whether the files that stand near to a series' own are as it expects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..confined import Confined, Look
from ..guard import effects, guards
from ..lock import Lock
from .locate import Target


def surprises(
    target: Target, locked: Lock, looks: Mapping[str, Look]
) -> dict[str, tuple[str, ...]]:
    """By patch, what watched files do that the base's do not.

    Args:
        target: the target.
        locked: the series' lock.
        looks: what the target has of the watched files.
    """
    changed = [p for p, look in looks.items() if look.blob != locked.watched[p]]
    if not changed:
        return {}
    found = effects.sites(_sources(target, changed), guards.wanted(locked))
    return guards.surprises(locked, found)


def _sources(target: Target, paths: list[str]) -> Iterator[tuple[str, bytes]]:
    with Confined(target.root) as files:
        for path in paths:
            try:
                yield path, files.read(target.place(path))
            except OSError:
                # Gone, or a link: then what Python imports is elsewhere.
                continue
