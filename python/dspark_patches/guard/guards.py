"""A series' guards: what must be so on a target besides the files that it edits.

A patch that fits, line by line, may still do a thing a second time: upstream
or a fork may have mended the same fault in another place. So the lock says,
for every rare effect that a patch adds or takes away, where the base has it.
A target that has it in one more place is not the base, whatever it is called.

``apply`` and ``port`` look all over the package. ``status``, which has no time
for that, looks at the files that stand nearest, and only where they differ
from the base's: those that have such an effect, and those that define what the
edited functions call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ..diff import ZEROS, blob_id
from ..lock import Guard, Lock
from ..patching import forward
from ..series import Series, in_wheels
from . import effects
from .effects import Change, Effect, Site

Found = Mapping[Effect, Sequence[Site]]


def build(series: Series, released: Path) -> tuple[tuple[Guard, ...], dict[str, str]]:
    """The guards of a series, and the blob ids of the files to watch.

    Args:
        series: the series.
        released: the folder that holds its base's released ``python/sglang``.

    Raises:
        Conflict: a released file is not what the series was written for.
    """
    changes = _changes(series, released)
    called = {name for change in changes.values() for name in change.calls}
    asked = {effect for change in changes.values() for effect in change.effects}
    asked |= {Effect("defines", name) for name in called}
    package = tuple(effects.sources(released / effects.PACKAGE))
    found = effects.sites(package, effects.not_common(package, asked))
    rare = {effect: places for effect, places in found.items() if effects.rare(places)}
    guards = tuple(
        Guard(patch=name, effect=str(effect), sites=_keys(rare[effect]))
        for name, change in changes.items()
        for effect in sorted(change.effects & rare.keys())
    )
    touched = {s.path for patch in series.patches for s in patch.mail.sections}
    paths = {site.path for places in rare.values() for site in places} - touched
    return guards, {p: blob_id((released / p).read_bytes()) for p in sorted(paths)}


def wanted(locked: Lock) -> set[Effect]:
    """The effects that a lock has guards for."""
    return {_effect(guard) for guard in locked.guards}


def surprises(
    locked: Lock, found: Found, also: Mapping[Effect, Counter[str]] | None = None
) -> dict[str, tuple[str, ...]]:
    """By patch, what a target does in places in which its base does not.

    Args:
        locked: the series' lock.
        found: where the target has the :func:`wanted` effects; files that are
            known to be as the series knows them may be left aside.
        also: how often an effect is no surprise in other places.
    """
    told = {}
    for patch in dict.fromkeys(guard.patch for guard in locked.guards):
        known: dict[Effect, Counter[str]] = {}
        for guard in locked.guards:
            if guard.patch == patch:
                effect = _effect(guard)
                more = (also or {}).get(effect, Counter())
                known[effect] = Counter(guard.sites) | more
        if here := effects.elsewhere(known, found):
            told[patch] = here
    return told


def _changes(series: Series, released: Path) -> dict[str, Change]:
    """What every patch changes in the package."""
    now: dict[str, bytes | None] = {}
    found: dict[str, Change] = {}
    for patch in series.patches:
        change = Change()
        for section in patch.mail.sections:
            path = section.path
            if not in_wheels(path):
                continue
            if path not in now and section.old != ZEROS:
                now[path] = (released / path).read_bytes()
            before, now[path] = now.get(path), forward(now.get(path), section)
            change |= effects.of_edit(path, before or b"", now[path] or b"")
        found[patch.name] = change
    return found


def _keys(places: Iterable[Site]) -> tuple[str, ...]:
    return tuple(sorted(site.key for site in places))


def _effect(guard: Guard) -> Effect:
    verb, _, name = guard.effect.partition(" ")
    return Effect(verb, name)
