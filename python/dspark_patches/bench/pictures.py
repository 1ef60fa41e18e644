"""Which pictures there are, and which of them results allow; see :mod:`.plots`."""

from __future__ import annotations

import msgspec

from .results import Results
from .tables.table import CACHE


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """A picture.

    Attributes:
        name: of its files, without a suffix.
        table: the figure of the table that it stands beside.
        figure: whose rows it is drawn from.
        caches: whether the rows' names begin with a prefix cache, of which one is
            drawn.
        alt: what one who does not see it should know.
    """

    name: str
    table: str
    figure: str
    caches: bool = False
    alt: str

    def allowed(self, results: Results) -> bool:
        """Whether there are rows to draw."""
        return any(
            row.figure == self.figure and (not self.caches or on_shown_cache(row.name))
            for row in results.rows
        )


def on_shown_cache(name: str) -> bool:
    """Whether a row's name begins with the prefix cache that is drawn."""
    return name.split()[0] == CACHE


PICTURES = (
    Picture(
        name="swa-growth",
        table="growth",
        figure="growth",
        caches=True,
        alt=(
            "SWA tokens in use against generated tokens, on the oldest base: as "
            "released and patched, with the pool's size"
        ),
    ),
    Picture(
        name="requests",
        table="capacity",
        figure="limit",
        caches=True,
        alt="The most requests that run without a retraction, per base",
    ),
    Picture(
        name="retractions",
        table="retraction",
        figure="retraction",
        alt=(
            "Retractions so far against decode steps, for four loads, on the oldest "
            "and the newest base"
        ),
    ),
    Picture(
        name="cost",
        table="cost",
        figure="cost",
        alt=(
            "Median CPU time of a decode preparation against requests, on the oldest "
            "and the newest base"
        ),
    ),
)
