"""How much of the pools is in use: by one generation, and by many requests."""

from __future__ import annotations

from collections.abc import Mapping

from .. import records
from ..figures import CAPACITY_INPUT, CAPACITY_OUTPUT, CAPACITY_REQUESTS
from ..results import Results, Row
from .table import CACHE, Table, by_tree, empty, node, number, pair

_SETTLED = 2_000


def growth(results: Results) -> Table:
    found = by_tree(results, "growth", records.Growth)
    if not found:
        return empty("growth")
    of = node(results, "growth")
    return Table(
        figure="growth",
        title="One generation of 100,000 tokens",
        note=(
            f"One `ignore_eos` request, pools of {number(of['full_size'])} "
            f"full-attention and {number(of['swa_size'])} SWA tokens, page "
            f"{of['page_size']}, window {of['sliding_window']}, "
            f"{of['draft_tokens']} draft tokens, acceptance uniform on 1 to "
            f"{of['draft_tokens']}. *SWA steady*, of a generation that finished, is "
            "what the samples of every 1,000 tokens lie between while it runs, from "
            f"{_SETTLED:,} tokens on."
        ),
        header=("base", "cache", *_GROWTH, "steps"),
        rows=tuple(
            (base, cache, *_growth_cells(trees), pair(trees, lambda f: number(f.steps)))
            for (base, cache), trees in found.items()
        ),
    )


_GROWTH = ("outcome", "SWA peak", "SWA steady")


def growth_short(results: Results) -> Table:
    found = by_tree(results, "growth", records.Growth)
    return Table(
        figure="growth",
        title="One generation of 100,000 tokens",
        note="",
        header=("base", *_GROWTH),
        rows=tuple(
            (base, *_growth_cells(trees))
            for (base, cache), trees in found.items()
            if cache == CACHE
        ),
    )


def capacity(results: Results) -> Table:
    """The SWA peaks of fixed numbers of requests, and the most that fit."""
    peaks, most = _peaks(results), _most(results)
    if not peaks and not most:
        return empty("capacity")
    of = node(results, "capacity" if peaks else "limit")
    return Table(
        figure="capacity",
        title=(
            f"Equal requests at once, {CAPACITY_INPUT:,} tokens in and "
            f"{CAPACITY_OUTPUT:,} out"
        ),
        note=_capacity_note(results, of, bool(peaks), bool(most)),
        header=("base", "cache", *_capacity_header(peaks, most)),
        rows=tuple(
            (*key, *_capacity_cells(peaks, most, key, of["swa_size"]))
            for key in dict.fromkeys([*peaks, *most])
        ),
    )


def capacity_short(results: Results) -> Table:
    whole = capacity(results)
    return Table(
        figure="capacity",
        title=whole.title,
        note="",
        header=(*whole.header[:1], *whole.header[2:]),
        rows=tuple((row[0], *row[2:]) for row in whole.rows if row[1] == CACHE),
    )


def _growth_cells(trees: Mapping[str, records.Growth]) -> tuple[str, ...]:
    return (
        pair(trees, lambda found: f"{found.outcome} at {number(found.output_tokens)}"),
        pair(trees, lambda found: number(found.swa_peak)),
        pair(trees, _steady),
    )


def _steady(found: records.Growth) -> str:
    settled = [swa for tokens, swa in found.swa_samples if tokens > _SETTLED][:-1]
    if found.outcome != "finished" or not settled:
        return "none"
    return f"{number(min(settled))} to {number(max(settled))}"


Key = tuple[str, str]
Peaks = dict[Key, dict[int, dict[str, records.Together]]]
Most = dict[Key, dict[str, int]]


def _peaks(results: Results) -> Peaks:
    peaks: Peaks = {}
    for (base, name), trees in by_tree(results, "capacity", records.Together).items():
        cache, requests = name.split()
        peaks.setdefault((base, cache), {})[int(requests)] = trees
    return peaks


def _most(results: Results) -> Most:
    most: Most = {}
    for row, found in results.of("limit", records.Together):
        if found.fit:
            key = (row.base, row.name.split()[0])
            most.setdefault(key, {})[row.tree] = row.task["requests"]
    return most


def _capacity_header(peaks: Peaks, most: Most) -> tuple[str, ...]:
    header = tuple(f"{requests} requests" for requests in CAPACITY_REQUESTS)
    return (header if peaks else ()) + (("most that fit",) if most else ())


def _capacity_cells(peaks: Peaks, most: Most, key: Key, size: int) -> tuple[str, ...]:
    def share(found: records.Together) -> str:
        return f"{found.swa_peak / size:.2f}" if found.fit else "retracted"

    shares = tuple(
        pair(peaks.get(key, {}).get(requests, {}), share)
        for requests in CAPACITY_REQUESTS
    )
    fit = pair(most.get(key, {}), str)
    return (shares if peaks else ()) + ((fit,) if most else ())


def _capacity_note(results: Results, of: dict, peaks: bool, most: bool) -> str:
    parts = [
        f"Pools of {number(of['full_size'])} full-attention and "
        f"{number(of['swa_size'])} SWA tokens, page {of['page_size']}, window "
        f"{of['sliding_window']}."
    ]
    if peaks:
        parts.append(
            "The part of the SWA pool that was in use at the peak; *retracted* where "
            "not all requests ran to their ends together."
        )
    if most:
        parts.append("*most that fit*: with one request more, one is retracted.")
        parts += _full_pool(results)
    return " ".join(parts)


def _full_pool(results: Results) -> list[str]:
    """Where it is the full-attention pool that one request more does not fit into:
    as one sentence, or none."""
    rows = [
        (row, found)
        for row, found in results.of("limit", records.Together)
        if not found.fit and found.full_peak >= row.task["node"]["full_size"]
    ]
    if not rows:
        return []
    fit = sorted({row.task["requests"] - 1 for row, _ in rows})
    shares = sorted(_swa_share(row, found) for row, found in rows)
    return [
        f"Where {' or '.join(map(str, fit))} fit, it is the full-attention pool that "
        f"the next one finds full, with {shares[0]:.0%} to {shares[-1]:.0%} of the SWA "
        "pool in use."
    ]


def _swa_share(row: Row, found: records.Together) -> float:
    return found.swa_peak / row.task["node"]["swa_size"]
