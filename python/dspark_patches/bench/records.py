"""The simulator's records, as far as tables and pictures read them."""

from __future__ import annotations

import msgspec


class Growth(msgspec.Struct, frozen=True):
    """One long generation. Tokens, but for ``steps``."""

    steps: int
    output_tokens: int
    outcome: str
    swa_peak: int
    full_peak: int
    swa_samples: tuple[tuple[int, int], ...]


class Together(msgspec.Struct, frozen=True):
    """Equal requests at once; whether all ran to their ends."""

    steps: int
    fit: bool
    most_running: int
    swa_peak: int
    full_peak: int


class Sample(msgspec.Struct, frozen=True):
    """Totals of a load after so many decode steps."""

    decode_steps: int
    retracted: int
    aborted: int
    finished: int
    reprefilled_tokens: int


class Load(msgspec.Struct, frozen=True):
    """A sustained load."""

    hit_rate: float
    prefilled_tokens: int
    mean_running: float
    output_tokens: int
    dead_swa: tuple[int, ...]
    samples: tuple[Sample, ...]

    @property
    def false_retractions(self) -> int:
        """How often a batch gave up requests while its SWA tokens were dead."""
        return sum(dead > 0 for dead in self.dead_swa)

    @property
    def total(self) -> Sample:
        return self.samples[-1]

    def per_thousand(self, name: str) -> float:
        """One of the totals, per 1,000 decode steps."""
        return getattr(self.total, name) * 1_000 / self.total.decode_steps


class Overload(msgspec.Struct, frozen=True):
    """Requests that arrived at once, more than the pools hold."""

    finished: int
    aborted: int
    retracted: int
    decode_steps: int
    died: str


class Summary(msgspec.Struct, frozen=True):
    """Of a list of nanoseconds, or of tokens."""

    count: int
    median: float
    mean: float
    p99: float
    max: float


class Cost(msgspec.Struct, frozen=True):
    """Decode preparations."""

    nanoseconds: Summary


class CheckCost(msgspec.Struct, frozen=True):
    """Memory checks, between decode steps."""

    fits: Summary
    short: Summary
    short_again: Summary
    reclaimed: Summary
