"""What an overload loses to retraction."""

from __future__ import annotations

from collections.abc import Mapping

from .. import records
from ..figures import PD_REQUESTS, load_names
from ..results import Results
from .table import Table, by_tree, number, pair

# The one of LOADS that the README shows.
SHOWN = "reported pool, page 256, shared prefixes, unified"

_HEADER = (
    "retracted",
    "tokens prefilled again",
    "finished",
    "gave up with dead SWA",
    "owned",
    "locked",
)
_MORE = ("aborted", "prefix hits", "running")
_NOTE = (
    "Per 1,000 decode steps: requests *retracted*, *aborted* and *finished*, and "
    "*tokens prefilled again*. *gave up with dead SWA*: of the batches that gave up "
    "requests, how many did so while SWA tokens were dead: not free, read by no "
    "running request again, and not for the prefix cache to give back at once. "
    "*owned*, *locked*: how many of them requests owned, or held a lock on in the "
    "prefix cache, on average over all batches that gave up requests. *prefix hits*: "
    "the part of all prompt tokens that the prefix cache held; *running*: requests "
    "per step."
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
            for load in load_names()
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


def pd(results: Results) -> Table:
    """The decode side of a prefill/decode pair."""
    found = by_tree(results, "pd", records.Overload)
    return Table(
        figure="pd",
        title="An overloaded decode node behind a prefill node",
        note=(
            f"{PD_REQUESTS} requests at once. *host copy*: whether the pool can copy "
            "a retracted request's KV to the host. *scheduler*: the exception that "
            "ended its loop and, with it, every request that had not finished."
        ),
        header=("base", "host copy", "scheduler", "finished", "aborted", "retracted"),
        rows=tuple(
            (
                base,
                name,
                pair(trees, lambda found: found.died.split(":")[0] or "runs on"),
                pair(trees, lambda found: number(found.finished)),
                pair(trees, lambda found: number(found.aborted)),
                pair(trees, lambda found: number(found.retracted)),
            )
            for (base, name), trees in found.items()
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
        pair(trees, lambda found: number(found.mean_dead("owned"))),
        pair(trees, lambda found: number(found.mean_dead("locked"))),
    )


def _more(trees: Trees) -> tuple[str, ...]:
    return (
        _per_thousand(trees, "aborted"),
        pair(trees, lambda found: f"{found.hit_rate:.3f}"),
        pair(trees, lambda found: f"{found.mean_running:.1f}"),
    )


def _per_thousand(trees: Trees, name: str) -> str:
    return pair(trees, lambda found: number(found.per_thousand(name)))
