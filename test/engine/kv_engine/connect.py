"""Give a scheduler's worker the memory, and what happens around its forwards."""

from __future__ import annotations

from sglang.srt.managers.scheduler import Scheduler

from . import pd
from .cells import Cells
from .watch import before
from .worker import KVWorker


def connect(
    scheduler: Scheduler, worker: KVWorker, *, draft_tokens: int, seed: int
) -> None:
    """Let the worker serve a scheduler that has been built.

    Args:
        draft_tokens: tokens that a verify takes, the bonus among them.
        seed: of how many it accepts.
    """
    worker.attach(
        Cells(scheduler.token_to_kv_pool_allocator),
        window=scheduler.sliding_window_size,
        draft_tokens=draft_tokens,
        seed=seed,
    )
    before(scheduler, "process_batch_result", lambda _, result: worker.finish(result))
    if scheduler.disaggregation_mode.value == "decode":
        pd.connect(scheduler, worker)
