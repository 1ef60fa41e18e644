"""Defects put in on purpose: each must end the scheduler with wrong KV."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from sglang.srt.environ import envs
from sglang.srt.managers.schedule_batch import ScheduleBatch
from sglang.srt.managers.scheduler import Scheduler

from .reqs import row_of
from .watch import before

_TOO_MANY = 2


def short_window(scheduler: Scheduler) -> None:
    """Eviction takes some of the last tokens that a window reaches."""
    evict = ScheduleBatch._evict_swa

    def _evict_swa(batch: ScheduleBatch, req: Any, pre_len: int, *args, **kwargs):
        return evict(batch, req, pre_len + _TOO_MANY, *args, **kwargs)

    ScheduleBatch._evict_swa = _evict_swa


def free_in_flight(scheduler: Scheduler) -> None:
    """The lowest slot of a window is freed while the forward that reads it, and
    no later one, is in flight."""
    _after_decode(scheduler, scheduler.token_to_kv_pool_allocator.free_swa)


def free_in_group(scheduler: Scheduler) -> None:
    """The same, by way of a free group."""
    allocator = scheduler.token_to_kv_pool_allocator

    def free(slots: torch.Tensor) -> None:
        allocator.free_group_begin()
        allocator.free_swa(slots)
        allocator.free_group_end()

    _after_decode(scheduler, free)


def swapped_slots(scheduler: Scheduler) -> None:
    """Two tokens of a window trade their sliding-window slots."""
    mapping = scheduler.token_to_kv_pool_allocator.full_to_swa_index_mapping

    def swap(batch: ScheduleBatch, *_: Any) -> None:
        if batch.forward_mode.is_decode():
            row = row_of(batch.reqs[0])
            end = int(batch.seq_lens[0])
            pair = scheduler.req_to_token_pool.req_to_token[row, end - 2 : end].long()
            mapping[pair] = mapping[pair.flip(0)]

    before(scheduler, "run_batch", swap)


SABOTAGES: dict[str, Callable[[Scheduler], None]] = {
    sabotage.__name__.replace("_", "-"): sabotage
    for sabotage in (short_window, free_in_flight, free_in_group, swapped_slots)
}


def _after_decode(scheduler: Scheduler, free: Callable[[torch.Tensor], None]) -> None:
    # Upstream's own check would see it sooner.
    envs.SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY.set(0)
    run, worker = scheduler.run_batch, scheduler.draft_worker
    done: list[bool] = []

    def run_batch(batch: ScheduleBatch, *args: Any) -> Any:
        decode = batch.forward_mode.is_decode()
        result = run(batch, *args)
        if decode and not done:
            read = worker.in_flight[id(result)][0]
            if read.window_from:
                done.append(True)
                free(torch.from_numpy(read.full[read.window_from :][:1]))
        return result

    scheduler.run_batch = run_batch
