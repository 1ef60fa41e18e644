"""The figures: which tasks each consists of, and with which configuration.

The reported configuration is DeepSeek-V4-Flash with DSPARK block size 5, which
verifies 6 tokens a step: 778,496 full-attention tokens, a tenth as many SWA
tokens, pages of 256, a window of 128.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import msgspec

from . import cells
from .cells import LOADS_NOTE, Cell

Task = dict[str, Any]
Record = dict[str, Any]

PAGE = 256
RATIO = 0.1
REPORTED_FULL = 778_496
# Not reported: of the sizes that make v0.5.16 run 11 requests and retract at 12,
# about 371,000 to 405,000 SWA tokens, one in the lower part.
CAPACITY_FULL = 3_727_360
# What takes longest is made of the oldest release, which does not evict, and of the
# newest, which does, as all from v0.5.18 on.
FEW_RELEASES = ("v0.5.16", "v0.5.23")


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure.

    Attributes:
        title, note: of its table; ``note`` says what a reader needs to understand it.
        alt: what one who does not see its picture should know; empty for none.
        tasks: by name, given the kinds of prefix cache that the release has.
        key: what the names are: the head of their column.
        columns: the other columns.
        shown: the task that the README shows.
        few: whether it is made of :data:`FEW_RELEASES` alone.
        rounds: times that the trees of a release take turns with each task; 0 where
            they need not, since nothing is timed.
        beside: other releases that take turns with them, as released.
        join: the records of all rounds as one.
    """

    title: str
    note: str
    alt: str = ""
    tasks: Callable[[Sequence[str]], dict[str, Task]]
    key: str
    columns: Mapping[str, Cell]
    shown: str = ""
    few: bool = False
    rounds: int = 0
    beside: tuple[str, ...] = ()
    join: Callable[[list[Record]], Record] = lambda records: records[0]


def names_of(release: str) -> list[str]:
    """The figures that are made of a release unless others are asked for."""
    few = release in FEW_RELEASES
    return [name for name, figure in FIGURES.items() if few or not figure.few]


def node(full_size: int, *, page_size: int = PAGE, **options: Any) -> Task:
    """A node whose SWA pool is a tenth of its full pool, in whole pages."""
    swa_size = int(full_size * RATIO) // page_size * page_size
    sizes = dict(full_size=full_size, swa_size=swa_size, page_size=page_size)
    return sizes | options


def _growth(caches: Sequence[str]) -> dict[str, Task]:
    return {
        cache: dict(type="long_generation", node=node(REPORTED_FULL, cache=cache))
        for cache in caches
    }


def _capacity(caches: Sequence[str]) -> dict[str, Task]:
    task = dict(
        type="capacity",
        requests=(11, 12, 32, 48),
        prompt_len=1_024,
        max_new_tokens=32_768,
        node=node(CAPACITY_FULL, max_context_len=1_024 + 32_768),
    )
    return {"chunk": task}


_SMALL = dict(max_reqs=128, max_context_len=4_096)
_REPORTED = dict(max_reqs=512, max_context_len=8_192)
LOAD_STEPS = 1_000
LOADS = {
    "small pool, page 1": dict(node=node(131_072, page_size=1, **_SMALL)),
    "small pool, page 64, shared prefixes": dict(
        node=node(131_072, page_size=64, **_SMALL), shared_prefixes=8
    ),
    "reported pool, page 256": dict(
        node=node(REPORTED_FULL, **_REPORTED), prompt_len=(64, 4_096)
    ),
    "reported pool, page 256, shared prefixes": dict(
        node=node(REPORTED_FULL, **_REPORTED),
        prompt_len=(64, 4_096),
        shared_prefixes=32,
        prefix_len=2_048,
    ),
}


def _retraction(caches: Sequence[str]) -> dict[str, Task]:
    """What is shared needs a cache that shares."""
    return {
        f"{load}, {cache}": dict(type="load", decode_steps=LOAD_STEPS)
        | options
        | dict(node=options["node"] | dict(cache=cache))
        for (load, options), cache in product(LOADS.items(), caches)
        if cache != "chunk" or "shared_prefixes" not in options
    }


def _pd(caches: Sequence[str]) -> dict[str, Task]:
    sizes = dict(page_size=1, max_reqs=96, max_context_len=664)
    return {
        name: dict(
            type="overload",
            node=node(
                65_536, disaggregation="decode", host_copy=name == "with", **sizes
            ),
            requests=96,
            prompt_len=64,
            output_len=600,
        )
        for name in ("with", "without")
    }


def _steady(kind: str, page_size: int, **options: Any) -> dict[str, Task]:
    """Batches of long requests, in as large an SWA pool as the full one: v0.5.16 as
    released keeps every token."""
    tasks, context = {}, 8_192
    for requests in (1, 8, 32, 128, 256):
        size = requests * context
        pools = node(
            size, page_size=page_size, max_reqs=requests, max_context_len=context
        )
        pools["swa_size"] = size
        tasks[str(requests)] = dict(type=kind, requests=requests, node=pools, **options)
    return tasks


def _cost(caches: Sequence[str]) -> dict[str, Task]:
    return _steady("prepare_cost", PAGE, steps=64)


def _check(caches: Sequence[str]) -> dict[str, Task]:
    # With pages of one token every step needs memory, so that every check can fail.
    return _steady("check_cost", page_size=1)


def _retract_loop(caches: Sequence[str]) -> dict[str, Task]:
    return {
        f"page {page_size}, {cache}": dict(
            type="retract_loop", cache=cache, page_size=page_size, requests=256
        )
        for page_size, cache in product((1, 64), ("chunk", "unified"))
    }


def _summaries(records: list[Record]) -> Record:
    """The rounds of one tree as one: of each list of numbers what it says."""
    summaries = {}
    for name in records[0]:
        values = [value for record in records for value in record[name]]
        summaries[name] = dict(
            count=len(values),
            median=statistics.median(values),
            mean=round(statistics.fmean(values), 1),
            max=max(values),
        )
    return summaries


def _lists(records: list[Record]) -> Record:
    """The rounds of one tree, each value of a record as a list."""
    return {name: [record[name] for record in records] for name in records[0]}


FIGURES = {
    "growth": Figure(
        title="One generation of 100,000 tokens",
        note=(
            "Pools of 778,496 full-attention and 77,824 SWA tokens, page 256, window "
            "128, 6 draft tokens, acceptance uniform on 1 to 6. *SWA steady*: what the "
            "samples of every 1,000 tokens lie between, from 2,000 tokens on."
        ),
        alt=(
            "SWA tokens in use against generated tokens, on the oldest release: as "
            "released and patched, with the pool's size"
        ),
        tasks=_growth,
        key="cache",
        columns=cells.GROWTH,
        shown="chunk",
    ),
    "capacity": Figure(
        title="Equal requests at once, 1,024 tokens in and 32,768 out",
        note=(
            "Pools of 3,727,360 full-attention and 372,736 SWA tokens, page 256, "
            "window 128. The part of the SWA pool in use at the peak; *retracted* where "
            "not all requests ran to their ends together. *most that fit*: with one "
            "more, one is retracted; *full then*: the pool that this one finds full."
        ),
        alt="The most requests that run without a retraction, per release",
        tasks=_capacity,
        key="cache",
        columns=cells.CAPACITY,
        shown="chunk",
        few=True,
    ),
    "retraction": Figure(
        title="Mixed requests, more than the pools hold",
        note=LOADS_NOTE,
        alt=(
            "Retractions so far against decode steps, for four loads, on the oldest "
            "and the newest release"
        ),
        tasks=_retraction,
        key="load",
        columns=cells.RETRACTION,
        shown="reported pool, page 256, shared prefixes, unified",
    ),
    "pd": Figure(
        title="An overloaded decode node behind a prefill node",
        note=(
            "96 requests at once. *host copy*: whether the pool can copy a retracted "
            "request's KV to the host. *scheduler*: the exception that ended its loop "
            "and, with it, every request that had not finished."
        ),
        tasks=_pd,
        key="host copy",
        columns=cells.PD,
    ),
    "cost": Figure(
        title="Decode preparation of one step, in microseconds",
        note=(
            "CPU time of the scheduler's thread on a CPU, without the Triton kernels' "
            "own. Columns named by a release are the median of that release as it "
            "came, and the last two are ratios of medians; v0.5.18 is the first with "
            "a fix of its own. The releases of a row took turns in one run."
        ),
        alt=(
            "Median CPU time of a decode preparation against requests, on the oldest "
            "and the newest release"
        ),
        tasks=_cost,
        key="requests",
        columns=cells.COST,
        shown="256",
        few=True,
        rounds=8,
        beside=cells.REFERENCES,
        join=_summaries,
    ),
    "check": Figure(
        title="The memory check before a decode step, in microseconds",
        note=(
            "Medians, page 1. *fits*: memory to spare; *short*: no SWA slot free, so "
            "that the patched check reclaims and the released one fails; *again*: once "
            "more, with nothing left to reclaim. *reclaim* and *scan* are what these "
            "two add per request with the series, and *reclaimed* is how many SWA "
            "tokens a check freed."
        ),
        tasks=_check,
        key="requests",
        columns=cells.CHECK,
        few=True,
        rounds=1,
        join=_summaries,
    ),
    "retract_loop": Figure(
        title="A retraction without a dead slot, in milliseconds",
        note=(
            "The memory check and the retractions until the rest fits: 256 requests "
            "within their window, no slot free in either pool. Both trees retract the "
            "same requests, and took turns in one run; the ratio, the median of the "
            "rounds' ratios, is the price of looking, and must not pass the bound."
        ),
        tasks=_retract_loop,
        key="page, cache",
        columns=cells.RETRACT_LOOP,
        few=True,
        rounds=9,
        join=_lists,
    ),
}
