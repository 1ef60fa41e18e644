"""What the decode bookkeeping costs the scheduler's thread."""

from __future__ import annotations

from collections.abc import Mapping

from ...proof import PATCHED, PRISTINE
from .. import records
from ..figures import COST_REFERENCE, COST_REQUESTS
from ..results import TREES, Results
from .table import Table, by_tree, number, pair

_RELEASED = "as released"
_RATIOS = (f"{PATCHED} / {_RELEASED}", f"{PATCHED} / {COST_REFERENCE}")

Trees = Mapping[str, records.Cost]


def cost(results: Results) -> Table:
    found = _found(results)
    others = [tree for trees in found.values() for tree in trees if tree not in TREES]
    columns = (*TREES, *dict.fromkeys(others))
    return Table(
        figure="cost",
        title="Decode preparation of one step, in microseconds",
        note=(
            "Median, mean and slowest step, in CPU time of the scheduler's thread on "
            "a CPU, without the Triton kernels' own; the last two columns are ratios "
            "of medians. The releases of a row took turns in one run. Columns named "
            f"by a release are that release as it came: {COST_REFERENCE} is the first "
            "with a fix of its own."
        ),
        header=("base", "requests", _RELEASED, *columns[1:], *_RATIOS),
        rows=tuple(
            (
                base,
                str(requests),
                *(_times(trees[tree]) if tree in trees else "" for tree in columns),
                *_ratios(trees),
            )
            for (base, requests), trees in found.items()
        ),
    )


def cost_short(results: Results) -> Table:
    requests = COST_REQUESTS[-1]
    return Table(
        figure="cost",
        title=f"Decode preparation of {requests} requests, in microseconds",
        note="",
        header=("base", "median", "mean", "slowest", *_RATIOS),
        rows=tuple(
            (
                base,
                pair(trees, lambda found: _us(found.nanoseconds.median)),
                pair(trees, lambda found: _us(found.nanoseconds.mean)),
                pair(trees, lambda found: _us(found.nanoseconds.max)),
                *_ratios(trees),
            )
            for (base, counted), trees in _found(results).items()
            if counted == requests
        ),
    )


def check_cost(results: Results) -> Table:
    found = by_tree(results, "check cost", records.CheckCost)
    return Table(
        figure="check cost",
        title="The memory check before a decode step, in microseconds",
        note=(
            "Medians, page 1. *fits*: memory to spare; *short*: no SWA slot free, so "
            "that the patched check reclaims and the pristine one fails; *again*: once "
            "more, with nothing left to reclaim. *reclaim* and *scan* are what these "
            "two add per request with the series, and *reclaimed* is how many SWA "
            "tokens a check freed."
        ),
        header=(
            *("base", "requests", "fits", "short", "again"),
            *("reclaim", "scan", "reclaimed"),
        ),
        rows=tuple(
            (base, requests, *_check_cells(trees, int(requests)))
            for (base, requests), trees in found.items()
        ),
    )


def _found(results: Results) -> dict[tuple[str, int], Trees]:
    """By base and requests; the reference is there on its own base as well."""
    found: dict[tuple[str, int], Trees] = {}
    for (base, name), trees in by_tree(results, "cost", records.Cost).items():
        if base == COST_REFERENCE and PRISTINE in trees:
            trees = trees | {COST_REFERENCE: trees[PRISTINE]}
        found[base, int(name)] = trees
    return found


def _times(found: records.Cost) -> str:
    times = found.nanoseconds
    return ", ".join(map(_us, (times.median, times.mean, times.max)))


def _ratios(trees: Trees) -> tuple[str, str]:
    return _ratio(trees, PRISTINE), _ratio(trees, COST_REFERENCE)


def _ratio(trees: Trees, other: str) -> str:
    if PATCHED not in trees or other not in trees:
        return "?"
    medians = [trees[tree].nanoseconds.median for tree in (PATCHED, other)]
    return f"{medians[0] / medians[1]:.2f}"


def _check_cells(
    trees: Mapping[str, records.CheckCost], requests: int
) -> tuple[str, ...]:
    patched = trees.get(PATCHED)
    times = (
        pair(trees, lambda found, name=name: _us(getattr(found, name).median))
        for name in ("fits", "short", "short_again")
    )
    return (
        *times,
        _added(patched, patched.short, requests) if patched else "?",
        _added(patched, patched.short_again, requests) if patched else "?",
        number(patched.reclaimed.mean) if patched else "?",
    )


def _added(found: records.CheckCost, check: records.Summary, requests: int) -> str:
    """What a check takes more than one that has memory to spare, per request."""
    more = max(0.0, check.median - found.fits.median)
    return f"{more / 1e3 / requests:.1f}"


def _us(nanoseconds: float) -> str:
    return number(nanoseconds / 1e3)
