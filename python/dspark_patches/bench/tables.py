"""Results as tables: for a terminal, and as Markdown for the docs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from ..proof import PATCHED, PRISTINE
from . import records
from .figures import CAPACITY_REQUESTS, COST_REFERENCE, COST_REQUESTS, LOADS
from .results import TREES, Results


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table; ``note`` says what a reader needs to understand it."""

    figure: str
    title: str
    note: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables(results: Results) -> tuple[Table, ...]:
    """Every table that the results have rows for."""
    made = (growth, capacity, limit, retraction, cost, check_cost)
    return tuple(table for make in made if (table := make(results)).rows)


def markdown(table: Table) -> str:
    """The table in Markdown, its note below."""
    lines = [
        _row(table.header),
        _row("---" for _ in table.header),
        *map(_row, table.rows),
    ]
    return "\n".join(lines) + f"\n\n{table.note}\n"


def growth(results: Results) -> Table:
    rows = []
    for row, found in results.of("growth", records.Growth):
        settled = [swa for tokens, swa in found.swa_samples if tokens > 2_000][:-1]
        low, high = (min(settled), max(settled)) if settled else (0, 0)
        rows.append(
            (
                row.base,
                row.tree,
                row.name,
                found.outcome,
                _number(found.output_tokens),
                _number(found.steps),
                _number(found.swa_peak),
                f"{_number(low)} to {_number(high)}",
            )
        )
    node = _node(results, "growth")
    return Table(
        figure="growth",
        title="One generation of 100,000 tokens",
        note=(
            f"One `ignore_eos` request, pools of {_number(node['full_size'])} "
            f"full-attention and {_number(node['swa_size'])} SWA tokens, page "
            f"{node['page_size']}, window {node['sliding_window']}, "
            f"{node['draft_tokens']} draft tokens, acceptance uniform on 1 to "
            f"{node['draft_tokens']}. *steady* is what the samples of every 1,000 "
            "tokens lie between, from 2,000 tokens on."
        ),
        header=(
            "base",
            "tree",
            "cache",
            "outcome",
            "tokens",
            "steps",
            "SWA peak",
            "SWA steady",
        ),
        rows=tuple(rows),
    )


def capacity(results: Results) -> Table:
    found = {
        (row.base, row.tree, *row.name.split()): record
        for row, record in results.of("capacity", records.Together)
    }
    node = _node(results, "capacity")
    rows = []
    for base, tree, cache in dict.fromkeys(key[:3] for key in found):
        shares = (
            _share(found.get((base, tree, cache, str(n))), node["swa_size"])
            for n in CAPACITY_REQUESTS
        )
        rows.append((base, tree, cache, *shares))
    return Table(
        figure="capacity",
        title="SWA peak of equal requests, 1,024 in and 32,768 out",
        note=(
            f"The part of an SWA pool of {_number(node['swa_size'])} tokens (ratio "
            "0.1, page 256, window 128) that was in use at the peak; *retracted* "
            "where not all requests ran to their ends together."
        ),
        header=("base", "tree", "cache", *(f"{n} requests" for n in CAPACITY_REQUESTS)),
        rows=tuple(rows),
    )


def limit(results: Results) -> Table:
    most: dict[tuple[str, str], dict[str, int]] = {}
    for row, found in results.of("limit", records.Together):
        if found.fit:
            cache = row.name.split()[0]
            by_tree = most.setdefault((row.base, cache), {})
            by_tree[row.tree] = row.task["requests"]
    node = _node(results, "limit")
    return Table(
        figure="limit",
        title="The most requests that run without a retraction",
        note=(
            "Equal requests, 1,024 tokens in and 32,768 out, all at once; pools of "
            f"{_number(node['full_size'])} full-attention and "
            f"{_number(node['swa_size'])} SWA tokens. One more is retracted."
        ),
        header=("base", "cache", *TREES),
        rows=tuple(
            (base, cache, *(str(by_tree.get(tree, "")) for tree in TREES))
            for (base, cache), by_tree in most.items()
        ),
    )


def retraction(results: Results) -> Table:
    rows = []
    found = {
        (row.name, row.base, row.tree): record
        for row, record in results.of("retraction", records.Load)
    }
    for name in LOADS:
        for (_, base, tree), record in found.items():
            if _ != name:
                continue
            rows.append(
                (
                    name,
                    base,
                    tree,
                    *(
                        _number(round(record.per_thousand(each)))
                        for each in (
                            "retracted",
                            "aborted",
                            "reprefilled_tokens",
                            "finished",
                        )
                    ),
                    f"{record.hit_rate:.3f}",
                    f"{record.mean_running:.1f}",
                )
            )
    return Table(
        figure="retraction",
        title="Mixed requests, more than the pools hold",
        note=(
            "Per 1,000 decode steps, but for the last two columns: the part of all "
            "prompt tokens that the prefix cache held, and requests per step. *small "
            "pool*: 131,072 full-attention tokens, prompts of 64 to 1,024 tokens; "
            "*reported pool*: 778,496, prompts of 64 to 4,096; SWA a tenth of it, "
            "outputs of 64 to 1,024 tokens, 8 requests always waiting."
        ),
        header=(
            "load",
            "base",
            "tree",
            "retracted",
            "aborted",
            "tokens prefilled again",
            "finished",
            "prefix hits",
            "running",
        ),
        rows=tuple(rows),
    )


def cost(results: Results) -> Table:
    found = {
        (row.base, int(row.name), row.tree): record.nanoseconds
        for row, record in results.of("cost", records.Cost)
    }
    others = [tree for _, _, tree in found if tree not in TREES]
    trees = (*TREES, *dict.fromkeys(others))
    rows = []
    for base in dict.fromkeys(base for base, _, _ in found):
        for requests in COST_REQUESTS:
            times = [found.get((base, requests, tree)) for tree in trees]
            rows.append((base, str(requests), *map(_microseconds, times)))
    return Table(
        figure="cost",
        title="Decode preparation of one step, in microseconds",
        note=(
            "Median, mean and slowest of 512 steps, CPU time of the scheduler's "
            "thread on a CPU, without the Triton kernels' own; the releases of a row "
            "took turns in one run. Columns named by a release are that release as "
            f"it came: {COST_REFERENCE} is the first with a fix of its own."
        ),
        header=("base", "requests", *trees),
        rows=tuple(rows),
    )


def check_cost(results: Results) -> Table:
    rows = []
    for row, found in results.of("check cost", records.CheckCost):
        if row.tree not in (PRISTINE, PATCHED):
            continue
        requests = int(row.name)
        fits, short, again = (
            time.median / 1e3 for time in (found.fits, found.short, found.short_again)
        )
        rows.append(
            (
                row.base,
                row.name,
                row.tree,
                *(f"{time:.0f}" for time in (fits, short, again)),
                f"{max(0.0, short - fits) / requests:.1f}",
                f"{max(0.0, again - fits) / requests:.1f}",
                _number(round(found.reclaimed.mean)),
            )
        )
    return Table(
        figure="check cost",
        title="The memory check before a decode step, in microseconds",
        note=(
            "Medians, page 1. *fits*: memory to spare; *short*: no SWA slot free, so "
            "that the patched check reclaims and the pristine one fails; *again*: once "
            "more, with nothing left to reclaim. *reclaim* and *scan* are what these "
            "two add per request."
        ),
        header=(
            "base",
            "requests",
            "tree",
            "fits",
            "short",
            "again",
            "reclaim",
            "scan",
            "SWA tokens reclaimed",
        ),
        rows=tuple(rows),
    )


def _microseconds(time: records.Summary | None) -> str:
    if time is None:
        return ""
    return f"{time.median / 1e3:.0f}, {time.mean / 1e3:.0f}, {time.max / 1e3:,.0f}"


def _share(found: records.Together | None, size: int) -> str:
    if found is None:
        return ""
    return f"{found.swa_peak / size:.2f}" if found.fit else "retracted"


def _number(value: int) -> str:
    return f"{value:,}"


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _node(results: Results, figure: str) -> dict:
    """The pools of a figure, with what the simulator takes by default."""
    defaults = dict(full_size=0, swa_size=0, page_size=256)
    defaults |= dict(sliding_window=128, draft_tokens=6)
    return defaults | next(_tasks(results, figure), {}).get("node", {})


def _tasks(results: Results, figure: str) -> Iterator[dict]:
    return (row.task for row in results.rows if row.figure == figure)
