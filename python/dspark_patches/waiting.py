"""Waiting for threads, so that an interruption is always noticed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import TypeVar

Result = TypeVar("Result")

_PATIENCE = 0.5


def as_completed(futures: Iterable[Future[Result]]) -> Iterator[Future[Result]]:
    """Each future when it is done, like the standard library's function."""
    pending = set(futures)
    while pending:
        # A signal that another thread received wakes nobody who waits without end.
        done, pending = wait(pending, _PATIENCE, FIRST_COMPLETED)
        yield from done
