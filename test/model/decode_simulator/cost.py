"""What a decode step costs the scheduler, in CPU time of its thread.

A node is kept open between two measurements of the same configuration, so that
releases can be measured in turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Optional
from unittest.mock import patch

import msgspec

from sglang.srt.managers.schedule_batch import ScheduleBatch

from .config import NodeConfig
from .forward import Accepted, acceptance
from .node import Node

# So long that every request is past its prompt's window and has been evicted.
WARM_UP_STEPS = 300


class PrepareCost(msgspec.Struct, frozen=True, kw_only=True, tag="prepare_cost"):
    """Time ``prepare_for_decode`` of a batch of long requests.

    Attributes:
        requests: its size.
        prompt_len: in tokens.
        steps: decode steps to time.
    """

    node: NodeConfig
    requests: int
    seed: int = 0
    accepted: Accepted = None
    prompt_len: int = 256
    steps: int = 256


class PrepareCostRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Nanoseconds of each timed preparation, in order."""

    nanoseconds: tuple[int, ...]


class CheckCost(msgspec.Struct, frozen=True, kw_only=True, tag="check_cost"):
    """Time ``check_decode_mem`` of such a batch, with SWA memory and without.

    Attributes:
        rounds: how often each of both is timed, some decode steps apart.
    """

    node: NodeConfig
    requests: int
    seed: int = 0
    accepted: Accepted = None
    prompt_len: int = 256
    rounds: int = 24


class CheckCostRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Nanoseconds of each check.

    Attributes:
        fits: with memory to spare.
        short: with no free SWA slot, whatever the release then does about it.
        short_again: right after, when there is nothing left to reclaim.
        reclaimed: SWA tokens that each check of ``short`` freed.
    """

    fits: tuple[int, ...]
    short: tuple[int, ...]
    short_again: tuple[int, ...]
    reclaimed: tuple[int, ...]


class _Steady:
    """A node whose requests have all been decoding for a while."""

    def __init__(self, task) -> None:
        self._stack = ExitStack()
        self.node = self._stack.enter_context(Node(task.node, acceptance(task)))
        for i in range(task.requests):
            self.node.submit(
                rid=f"r{i}",
                prompt_len=task.prompt_len,
                max_new_tokens=task.node.max_context_len - task.prompt_len,
                first_token=i,
            )
        self.run(WARM_UP_STEPS)

    def run(self, steps: int) -> None:
        until = self.node.counters.decode_steps + steps
        while self.node.counters.decode_steps < until:
            batch = self.node.turn()
            assert batch is not None, "the requests have ended: max_context_len"

    def close(self) -> None:
        self._stack.close()


_open: Optional[tuple[object, _Steady]] = None


def prepare_cost(
    task: PrepareCost, progress: Callable[[int, int], None] = lambda done, total: None
) -> PrepareCostRecord:
    """Time the preparations of the next steps."""
    steady = _steady(task)
    times: list[int] = []
    prepare_for_decode = ScheduleBatch.prepare_for_decode

    def timed(batch: ScheduleBatch) -> None:
        started = time.thread_time_ns()
        prepare_for_decode(batch)
        times.append(time.thread_time_ns() - started)

    with patch.object(ScheduleBatch, "prepare_for_decode", timed):
        steady.run(task.steps)
    return PrepareCostRecord(nanoseconds=tuple(times))


def check_cost(
    task: CheckCost, progress: Callable[[int, int], None] = lambda done, total: None
) -> CheckCostRecord:
    """Time the memory check, between decode steps."""
    steady = _steady(task)
    allocator = steady.node.rig.allocator
    swa = allocator.swa_attn_allocator
    fits, short, again, reclaimed = [], [], [], []
    for _ in range(task.rounds):
        steady.run(7)
        batch = steady.node.scheduler.running_batch
        # The first one after a step finds cold caches.
        _time_check(batch)
        fits.append(_time_check(batch))
        held = swa.alloc(swa.available_size())
        # Free counts as none while it is held; every other token is in use.
        before = swa.available_size()
        short.append(_time_check(batch))
        reclaimed.append(swa.available_size() - before)
        more = swa.available_size()
        held_again = swa.alloc(more) if more else None
        again.append(_time_check(batch))
        for slots in (held, held_again):
            if slots is not None:
                swa.free(slots)
    return CheckCostRecord(
        fits=tuple(fits),
        short=tuple(short),
        short_again=tuple(again),
        reclaimed=tuple(reclaimed),
    )


def _time_check(batch: ScheduleBatch) -> int:
    started = time.thread_time_ns()
    batch.check_decode_mem()
    return time.thread_time_ns() - started


def _steady(task) -> _Steady:
    """The open node of this configuration, or a new one in its place."""
    global _open
    key = (task.node, task.requests, task.seed, task.prompt_len)
    if _open and _open[0] == key:
        return _open[1]
    if _open:
        _open[1].close()
        _open = None
    _open = (key, _Steady(task))
    return _open[1]
