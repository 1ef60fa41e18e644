"""The loads that are served, as what a run of ``kv_engine`` is told."""

from __future__ import annotations

from typing import Any

Task = dict[str, Any]

# The verify takes as many tokens, the bonus among them.
ALGORITHMS = dict(DSPARK=6, DFLASH=4)
CACHES = ("unified", "radix", "chunk")
SEEDS = (0, 1)
SABOTAGES = ("short-window", "free-in-flight", "free-in-group", "swapped-slots")

_OF_A_TASK = ("seed", "requests", "shared", "gap", "sabotage")
_PAGE_64 = dict(page_size=64, swa_size=832, full_size=2560)
_DECODE = dict(disaggregation="decode", cache="chunk", swa_size=200)


def task(name: str, algorithm: str = "DSPARK", **fields: Any) -> Task:
    """One load; a field is the engine's unless it is the task's own."""
    own = {key: fields.pop(key) for key in _OF_A_TASK if key in fields}
    engine = dict(algorithm=algorithm, draft_tokens=ALGORITHMS[algorithm]) | fields
    return dict(name=name, engine=engine) | own


def overload() -> list[Task]:
    """All requests at once, more than the sliding-window pool holds."""
    return _each(gap=0)


def arrivals() -> list[Task]:
    """The same requests, one every other turn of the event loop."""
    return _each(gap=2)


def _each(gap: int) -> list[Task]:
    return [
        task(f"{algorithm} {cache}", algorithm, cache=cache, seed=seed, gap=gap)
        for algorithm in ALGORITHMS
        for cache in CACHES
        for seed in SEEDS
    ]


def modes() -> list[Task]:
    """The same in other modes."""
    kinds = {
        "no pressure": dict(swa_size=1600),
        "no overlap": dict(overlap=False),
        "page 16": dict(page_size=16),
        "page 64": _PAGE_64,
        "shared prefix": dict(shared=64),
        "no chunked prefill": dict(chunked_prefill_size=-1),
        "chunks of 32": dict(chunked_prefill_size=32),
        "no overlap, page 16": dict(overlap=False, page_size=16),
        "decode node": _DECODE,
        "decode node, page 16": _DECODE | dict(page_size=16, swa_size=256),
        "decode node, no overlap": _DECODE | dict(overlap=False),
    }
    return [
        task(f"{algorithm} {kind}", algorithm, seed=seed, **fields)
        for kind, fields in kinds.items()
        for seed, algorithm in enumerate(ALGORITHMS)
    ]


def sabotage() -> list[Task]:
    """Defects, each of which must be noticed."""
    places = {
        "unified": dict(cache="unified"),
        "chunk": dict(cache="chunk"),
        "decode node": _DECODE | dict(swa_size=400),
    }
    return [
        task(f"{place}: {defect}", sabotage=defect, **fields)
        for place, fields in places.items()
        for defect in SABOTAGES
    ]


def sample() -> list[Task]:
    """A few of all these, of some seconds."""
    return [
        task("at once", gap=0),
        task("one by one", "DFLASH", gap=2, seed=1),
        task("no prefix cache", cache="chunk", seed=1),
        task("decode node", **_DECODE),
        *(task(defect, sabotage=defect) for defect in SABOTAGES[:2]),
    ]


LOADS = dict(overload=overload, arrivals=arrivals, modes=modes, sabotage=sabotage)
