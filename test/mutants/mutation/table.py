"""What was seen, as lines, as a table and as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from .measure import Result, Subject

_COLUMNS = ("hunks", "mutants", "killed", "timeout", "exempt", "alive")


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A result, and the reason why its mutant may live."""

    result: Result
    exempt: str = ""

    @property
    def verdict(self) -> str:
        """The result's verdict, or that it is exempt."""
        return "exempt" if self.exempt else self.result.verdict


def line(number: int, count: int, judged: Judged) -> str:
    """What became of one mutant, on a line."""
    result = judged.result
    head = f"{number}/{count} {judged.verdict} {result.seconds:.1f}s {result.mutant}"
    reason = " / ".join(result.reason.splitlines())[:160]
    return f"{head} {result.by} {reason}".rstrip()


def patches(subject: Subject, judged: Sequence[Judged]) -> dict[str, dict[str, int]]:
    """By patch, how many there were of each kind."""
    rows = {}
    for patch in subject.tests:
        own = [each for each in judged if each.result.mutant.patch == patch]
        own = [each for each in own if each.verdict != "same"]
        found = Counter(each.verdict for each in own)
        hunks = sum(each.result.mutant.is_hunk for each in own)
        found.update(hunks=hunks, mutants=len(own) - hunks, killed=found["timeout"])
        rows[patch] = {column: found[column] for column in _COLUMNS}
    return rows


def text(subject: Subject, rows: dict[str, dict[str, int]]) -> str:
    """The table of a release."""
    width = max(map(len, rows))
    made = [f"{subject.name:{width}} " + " ".join(f"{c:>8}" for c in _COLUMNS)]
    total = Counter()
    for patch, row in rows.items():
        total.update(row)
        cells = " ".join(f"{row[column]:>8}" for column in _COLUMNS)
        made.append(f"{patch:{width}} {cells}")
    cells = " ".join(f"{total[column]:>8}" for column in _COLUMNS)
    return "\n".join([*made, f"{'all':{width}} {cells}"])


def data(subject: Subject, judged: Sequence[Judged], stale: Sequence[str]) -> Any:
    """All of it, for JSON."""
    mutants = [
        msgspec.to_builtins(each.result)
        | {"verdict": each.verdict, "exempt": each.exempt}
        for each in judged
    ]
    return {
        "patches": patches(subject, judged),
        "not_separable": list(subject.gone),
        "stale": list(stale),
        "mutants": mutants,
    }
