"""The figures: which tasks each consists of, and with which configuration.

The reported configuration is DeepSeek-V4-Flash with DSPARK block size 5, which
verifies 6 tokens a step: 778,496 full-attention tokens, a tenth as many SWA
tokens, pages of 256, a window of 128.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from .results import Row
from .worker import Worker

Task = dict[str, Any]
Progress = Callable[[int, int], None]

PAGE = 256
RATIO = 0.1
REPORTED_FULL = 778_496
# Not reported: of the sizes that make v0.5.16 run 11 requests and retract at 12,
# about 371,000 to 405,000 SWA tokens, one in the lower part.
CAPACITY_FULL = 3_727_360
CAPACITY_INPUT, CAPACITY_OUTPUT = 1_024, 32_768
CAPACITY_REQUESTS = (11, 12, 32, 48)
COST_REQUESTS = (1, 8, 32, 128, 256)
COST_ROUNDS, COST_STEPS, COST_CONTEXT = 8, 64, 8_192
COST_REFERENCE = "v0.5.18"
CACHES = ("chunk", "radix", "unified")
# What takes longest is made of the oldest release, which does not evict, and of the
# newest, which does, as all from v0.5.18 on.
FEW = {"capacity", "limit", "cost"}
FEW_BASES = ("v0.5.16", "v0.5.23")


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """Where a figure's tasks run.

    Attributes:
        base: the base's tag.
        tree: ``pristine`` or ``patched``.
        seed: of every task.
        worker: the process.
        progress: told how far a task is.
    """

    base: str
    tree: str
    seed: int
    worker: Worker
    progress: Progress

    def row(self, figure: str, name: str, task: Task) -> Row:
        """Run one task."""
        task = task | {"seed": self.seed}
        outcome = self.worker.run(task, self.progress)
        return Row(
            figure=figure,
            base=self.base,
            tree=self.tree,
            name=name,
            task=task,
            record=outcome.record,
            cpu_seconds=outcome.cpu_seconds,
        )


def node(full_size: int, *, page_size: int = PAGE, **options: Any) -> Task:
    """A node whose SWA pool is a tenth of its full pool, in whole pages."""
    swa_size = int(full_size * RATIO) // page_size * page_size
    sizes = dict(full_size=full_size, swa_size=swa_size, page_size=page_size)
    return sizes | options


def growth(setting: Setting) -> Iterator[Row]:
    """One generation of 100,000 tokens, with each prefix cache."""
    for cache in setting.worker.ready.caches:
        task = dict(type="long_generation", node=node(REPORTED_FULL, cache=cache))
        yield setting.row("growth", cache, task)


def capacity(setting: Setting) -> Iterator[Row]:
    """So many equal requests at once, until one is retracted."""
    for requests in CAPACITY_REQUESTS:
        task = _together("chunk", requests)
        yield setting.row("capacity", f"chunk {requests}", task)


def limit(setting: Setting) -> Iterator[Row]:
    """The most requests that run without a retraction: the last row that fits and
    the first that does not."""
    probe = setting.row("limit", "chunk", _together("chunk", CAPACITY_REQUESTS[0]))
    rows = {CAPACITY_REQUESTS[0]: probe}
    requests = _guess(probe)
    while True:
        if requests not in rows:
            task = _together("chunk", requests)
            rows[requests] = setting.row("limit", "chunk", task)
        if not rows[requests].record["fit"]:
            requests -= 1
        elif requests + 1 in rows:
            break
        else:
            requests += 1
    yield msgspec.structs.replace(rows[requests], name="chunk fits")
    yield msgspec.structs.replace(rows[requests + 1], name="chunk fails")


SMALL = dict(max_reqs=128, max_context_len=4_096)
REPORTED = dict(max_reqs=512, max_context_len=8_192)
LOADS = {
    "small pool, page 1": dict(node=node(131_072, page_size=1, **SMALL)),
    "small pool, page 64, shared prefixes": dict(
        node=node(131_072, page_size=64, **SMALL), shared_prefixes=8
    ),
    "reported pool, page 256": dict(
        node=node(REPORTED_FULL, **REPORTED), prompt_len=(64, 4_096)
    ),
    "reported pool, page 256, shared prefixes": dict(
        node=node(REPORTED_FULL, **REPORTED),
        prompt_len=(64, 4_096),
        shared_prefixes=32,
        prefix_len=2_048,
    ),
}
LOAD_STEPS = 1_000


def load_names() -> Iterator[str]:
    """The loads with the caches that they are run with, where a release has them:
    what is shared needs a cache that shares."""
    for load, options in LOADS.items():
        for cache in CACHES:
            if cache != "chunk" or not options.get("shared_prefixes"):
                yield f"{load}, {cache}"


def retraction(setting: Setting) -> Iterator[Row]:
    """Mixed requests, more than the pools hold."""
    for name in load_names():
        load, _, cache = name.rpartition(", ")
        if cache in setting.worker.ready.caches:
            options = LOADS[load] | dict(node=LOADS[load]["node"] | dict(cache=cache))
            task = dict(type="load", decode_steps=LOAD_STEPS) | options
            yield setting.row("retraction", name, task)


PD_FULL = 65_536
PD_REQUESTS, PD_PROMPT, PD_OUTPUT = 96, 64, 600


def pd(setting: Setting) -> Iterator[Row]:
    """The decode side of a prefill/decode pair, with more requests than it holds:
    whether a pool can copy a retracted request to the host, or not."""
    for name, host_copy in (("with", True), ("without", False)):
        options = node(
            PD_FULL,
            page_size=1,
            max_reqs=PD_REQUESTS,
            max_context_len=PD_PROMPT + PD_OUTPUT,
            disaggregation="decode",
            host_copy=host_copy,
        )
        task = dict(
            type="overload",
            node=options,
            requests=PD_REQUESTS,
            prompt_len=PD_PROMPT,
            output_len=PD_OUTPUT,
        )
        yield setting.row("pd", name, task)


def cost(settings: Sequence[Setting]) -> Iterator[Row]:
    """The decode preparation and the memory check, release by release in turns, so
    that a busy machine slows all of them."""
    for requests in COST_REQUESTS:
        for figure, task in _costs(requests):
            rounds = COST_ROUNDS if figure == "cost" else 1
            rows: list[list[Row]] = [[] for _ in settings]
            for _ in range(rounds):
                for setting, measured in zip(settings, rows):
                    measured.append(setting.row(figure, str(requests), task))
            yield from map(_joined, rows)


SINGLE = {
    "growth": growth,
    "capacity": capacity,
    "limit": limit,
    "retraction": retraction,
    "pd": pd,
}
NAMES = (*SINGLE, "cost")


def names_of(base: str) -> tuple[str, ...]:
    """The figures that are made of a base unless others are asked for."""
    few = FEW if base not in FEW_BASES else ()
    return tuple(name for name in NAMES if name not in few)


def _together(cache: str, requests: int) -> Task:
    return dict(
        type="together",
        requests=requests,
        prompt_len=CAPACITY_INPUT,
        max_new_tokens=CAPACITY_OUTPUT,
        node=node(
            CAPACITY_FULL,
            cache=cache,
            max_reqs=requests,
            max_context_len=CAPACITY_INPUT + CAPACITY_OUTPUT,
        ),
    )


def _guess(probe: Row) -> int:
    """How many would fill the fuller pool, by the peaks of a few."""
    pools = probe.task["node"]
    record = probe.record
    shares = [
        record[f"{pool}_peak"] / pools[f"{pool}_size"] for pool in ("full", "swa")
    ]
    return int(probe.task["requests"] / max(shares))


def _costs(requests: int) -> Iterator[tuple[str, Task]]:
    yield "cost", dict(type="prepare_cost", steps=COST_STEPS, **_steady(requests))
    # With pages of one token every step needs memory, so that every check can fail.
    yield "check cost", dict(type="check_cost", **_steady(requests, page_size=1))


def _steady(requests: int, page_size: int = PAGE) -> Task:
    # As large an SWA pool as the full one: a pristine base keeps every token.
    size = requests * COST_CONTEXT
    options = node(
        size, page_size=page_size, max_reqs=requests, max_context_len=COST_CONTEXT
    )
    return dict(node=options | {"swa_size": size}, requests=requests)


def _joined(rows: list[Row]) -> Row:
    """The rounds of one tree as one row: of each list of numbers what it says."""
    record = {
        name: _summary([value for row in rows for value in row.record[name]])
        for name in rows[0].record
    }
    seconds = sum(row.cpu_seconds for row in rows)
    return msgspec.structs.replace(rows[0], record=record, cpu_seconds=seconds)


def _summary(values: list[int]) -> dict[str, float]:
    ordered = sorted(values)
    return dict(
        count=len(ordered),
        median=statistics.median(ordered),
        mean=round(statistics.fmean(ordered), 1),
        p99=ordered[len(ordered) * 99 // 100],
        max=ordered[-1],
    )
