"""Measure what is asked for, tell of it as it goes, and judge it in the end."""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from . import hand, table
from .exempt import Exemptions
from .measure import Subject, measure
from .mutant import Mutant


def run(subject: Subject, options: argparse.Namespace) -> dict[str, Any]:
    """Measure a subject, as the options of ``run.py`` tell."""
    mutants = _chosen(subject, options)
    exemptions, judged = Exemptions(options.exempt, subject.name), []
    say = partial(print, subject.name, flush=True)
    for number, result in enumerate(measure(subject, mutants, say), 1):
        reason = exemptions.reason(result.mutant) if result.verdict == "alive" else ""
        judged.append(table.Judged(result=result, exempt=reason))
        if result.verdict != "same":
            say(table.line(number, len(mutants), judged[-1]))
    whole = not (options.sample or options.patch or options.by_hand)
    stale = list(exemptions.stale()) if whole else []
    print(table.text(subject, table.patches(subject, judged)))
    for gone in subject.gone:
        print(f"not separable: {gone}")
    return table.data(subject, judged, stale)


def findings(found: dict[str, Any]) -> Iterator[str]:
    """What must not be in the data of a subject."""
    for each in found["mutants"]:
        if each["verdict"] == "alive":
            one = each["mutant"]
            change = f"{one['before']!r} -> {one['after']!r}"
            yield f"alive: {one['path']}:{one['line']}: {change}"
    for entry in found["stale"]:
        yield f"stale exemption: {entry}"


def _chosen(subject: Subject, options: argparse.Namespace) -> list[Mutant]:
    mutants = list(subject.mutants)
    if options.by_hand:
        with tempfile.TemporaryDirectory(prefix="dspark-mutants-") as scratch:
            tree = Path(scratch, "tree")
            subject.build(tree)
            mutants = list(hand.read(options.by_hand, subject, tree))
    if options.patch:
        mutants = [m for m in mutants if int(m.patch[:4]) in options.patch]
    if options.sample:
        count = min(options.sample, len(mutants))
        numbers = random.Random(options.seed).sample(range(len(mutants)), count)
        mutants = [mutants[number] for number in sorted(numbers)]
    return mutants
