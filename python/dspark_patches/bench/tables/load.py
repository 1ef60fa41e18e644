"""What an overload loses to retraction."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

from .. import records
from ..figures import LOADS
from ..results import Results
from .table import Table, by_tree, number, pair

# The one of LOADS that the README shows.
SHOWN = "reported pool, page 256"

_HEADER = (
    "retracted",
    "tokens prefilled again",
    "finished",
    "gave up with dead SWA",
    "dead SWA tokens then",
)
_MORE = ("aborted", "prefix hits", "running")
_NOTE = (
    "Per 1,000 decode steps: requests *retracted*, *aborted* and *finished*, and "
    "*tokens prefilled again*. *gave up with dead SWA*: of the batches that gave up "
    "requests, how many held SWA tokens at that moment that no forward would have "
    "read, a false retraction; *dead SWA tokens then*: how many, on average over all "
    "batches that gave up requests. *prefix hits*: the part of all prompt tokens that "
    "the prefix cache held; *running*: requests per step."
)
_LOADS = (
    "*small pool*: 131,072 full-attention tokens, prompts of 64 to 1,024 tokens; "
    "*reported pool*: 778,496, prompts of 64 to 4,096; SWA a tenth of it, outputs of "
    "64 to 1,024 tokens, 8 requests always waiting."
)


def retraction(results: Results) -> Table:
    found = by_tree(results, "retraction", records.Load)
    return Table(
        figure="retraction",
        title="Mixed requests, more than the pools hold",
        note=f"{_NOTE} {_LOADS}",
        header=("load", "base", *_HEADER, *_MORE),
        rows=tuple(
            (load, base, *_cells(trees), *_more(trees))
            for load in LOADS
            for (base, name), trees in found.items()
            if name == load
        ),
    )


def retraction_short(results: Results) -> Table:
    found = by_tree(results, "retraction", records.Load)
    return Table(
        figure="retraction",
        title="Mixed requests, more than the pools hold",
        note="",
        header=("base", *_HEADER),
        rows=tuple(
            (base, *_cells(trees))
            for (base, name), trees in found.items()
            if name == SHOWN
        ),
    )


Trees = Mapping[str, records.Load]


def _cells(trees: Trees) -> tuple[str, ...]:
    return (
        *(
            _per_thousand(trees, name)
            for name in ("retracted", "reprefilled_tokens", "finished")
        ),
        pair(
            trees, lambda found: f"{found.false_retractions} of {len(found.dead_swa)}"
        ),
        pair(trees, lambda found: number(fmean(found.dead_swa or (0,)))),
    )


def _more(trees: Trees) -> tuple[str, ...]:
    return (
        _per_thousand(trees, "aborted"),
        pair(trees, lambda found: f"{found.hit_rate:.3f}"),
        pair(trees, lambda found: f"{found.mean_running:.1f}"),
    )


def _per_thousand(trees: Trees, name: str) -> str:
    return pair(trees, lambda found: number(found.per_thousand(name)))
