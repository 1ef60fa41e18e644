"""Results as tables: for a terminal, and as Markdown for the docs."""

from __future__ import annotations

from ..results import Results
from . import cost, load, pools
from .table import Table, markdown

__all__ = ["HOW_TO_READ", "Table", "compact", "markdown", "tables"]

HOW_TO_READ = (
    "As released -> with the series; one value where both are alike; ? where it was "
    "not measured."
)


def tables(results: Results) -> tuple[Table, ...]:
    """Every table that the results have rows for."""
    made = (
        pools.growth,
        pools.capacity,
        load.retraction,
        load.pd,
        cost.cost,
        cost.check_cost,
    )
    return _filled(make(results) for make in made)


def compact(results: Results) -> tuple[Table, ...]:
    """The README's tables: one row per base."""
    made = (
        pools.growth_short,
        pools.capacity_short,
        load.retraction_short,
        cost.cost_short,
    )
    return _filled(make(results) for make in made)


def _filled(made) -> tuple[Table, ...]:
    return tuple(table for table in made if table.rows)
