"""The simulator's records, as far as tables and pictures read them."""

from __future__ import annotations

from typing import Annotated

import msgspec

# A float holds any whole number up to this, as tables and pictures need it.
MOST = 10**15

Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
Amount = Annotated[float, msgspec.Meta(ge=0, le=MOST)]


class Growth(msgspec.Struct, frozen=True):
    """One long generation. Tokens, but for ``steps``."""

    steps: Count
    output_tokens: Count
    outcome: str
    swa_peak: Count
    full_peak: Count
    swa_samples: tuple[tuple[Count, Count], ...]


class Together(msgspec.Struct, frozen=True):
    """Equal requests at once; whether all ran to their ends."""

    steps: Count
    fit: bool
    most_running: Count
    swa_peak: Count
    full_peak: Count


class Sample(msgspec.Struct, frozen=True):
    """Totals of a load after so many decode steps."""

    decode_steps: Count
    retracted: Count
    aborted: Count
    finished: Count
    reprefilled_tokens: Count


class Dead(msgspec.Struct, frozen=True, array_like=True):
    """SWA tokens that nobody reads again, by who keeps them."""

    owned: Count
    locked: Count


class Load(msgspec.Struct, frozen=True):
    """A sustained load."""

    hit_rate: Amount
    prefilled_tokens: Count
    mean_running: Amount
    output_tokens: Count
    dead_swa: tuple[Dead, ...]
    samples: tuple[Sample, ...]

    @property
    def false_retractions(self) -> int:
        """How often a batch gave up requests while SWA tokens were dead."""
        return sum(dead.owned + dead.locked > 0 for dead in self.dead_swa)

    def mean_dead(self, kind: str) -> float:
        """How many were, on average over all batches that gave up requests."""
        found = [getattr(dead, kind) for dead in self.dead_swa]
        return sum(found) / len(found) if found else 0.0

    @property
    def total(self) -> Sample:
        return self.samples[-1]

    def per_thousand(self, name: str) -> float:
        """One of the totals, per 1,000 decode steps."""
        return getattr(self.total, name) * 1_000 / self.total.decode_steps


class Overload(msgspec.Struct, frozen=True):
    """Requests that arrived at once, more than the pools hold."""

    finished: Count
    aborted: Count
    retracted: Count
    decode_steps: Count
    died: str


class Summary(msgspec.Struct, frozen=True):
    """Of a list of nanoseconds, or of tokens."""

    count: Count
    median: Amount
    mean: Amount
    p99: Amount
    max: Amount


class Cost(msgspec.Struct, frozen=True):
    """Decode preparations."""

    nanoseconds: Summary


class CheckCost(msgspec.Struct, frozen=True):
    """Memory checks, between decode steps."""

    fits: Summary
    short: Summary
    short_again: Summary
    reclaimed: Summary
