"""What a table is, and what its cells look like."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from ...proof import PATCHED, PRISTINE
from ..results import Results

Record = TypeVar("Record", bound=msgspec.Struct)

# The prefix cache that every release has: the README shows no other.
CACHE = "chunk"

# The columns that hold words; all others hold numbers.
_WORDS = ("base", "cache", "load", "outcome", "host copy", "scheduler")


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table; ``note`` says what a reader needs to understand it."""

    figure: str
    title: str
    note: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def markdown(table: Table) -> str:
    """The table in Markdown, its note below; numbers to the right."""
    rulers = [":--" if name in _WORDS else "--:" for name in table.header]
    lines = [_row(table.header), _row(rulers), *map(_row, table.rows)]
    return "\n".join(lines) + (f"\n\n{table.note}\n" if table.note else "\n")


def by_tree(
    results: Results, figure: str, record: type[Record]
) -> dict[tuple[str, str], dict[str, Record]]:
    """A figure's records by base and name, then by tree."""
    found: dict[tuple[str, str], dict[str, Record]] = {}
    for row, each in results.of(figure, record):
        found.setdefault((row.base, row.name), {})[row.tree] = each
    return found


def pair(trees: Mapping[str, Any], cell: Callable[[Any], str]) -> str:
    """A cell that says what became of a value: ``pristine -> patched``."""
    before, after = (
        cell(trees[tree]) if tree in trees else "?" for tree in (PRISTINE, PATCHED)
    )
    return before if before == after else f"{before} -> {after}"


def number(value: float) -> str:
    """A count, rounded."""
    return f"{round(value):,}"


def node(results: Results, figure: str) -> dict[str, Any]:
    """The pools of a figure, with what the simulator takes by default."""
    defaults = dict(page_size=256, sliding_window=128, draft_tokens=6)
    tasks = (row.task for row in results.rows if row.figure == figure)
    return defaults | next(tasks, {}).get("node", {})


def empty(figure: str) -> Table:
    """What stands for a table that has no rows."""
    return Table(figure=figure, title="", note="", header=(), rows=())


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"
