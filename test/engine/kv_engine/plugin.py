"""The KV worker as a plugin of SGLang, which each process of a server loads."""

from __future__ import annotations

from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.mem_cache.memory_pool import KVCache
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool

from . import stand_ins
from .boot import size_by_ratio
from .connect import connect
from .plain import PlainWorker
from .worker import KVWorker

_SEED = 0


def install() -> None:
    """Put the stand-ins in, and the worker into the scheduler that will run."""
    stand_ins.install(KVWorker)
    size_by_ratio()
    run = Scheduler.run_event_loop

    def run_event_loop(scheduler: Scheduler) -> None:
        worker = scheduler.draft_worker
        draft_tokens = 1
        if worker is None:
            worker = PlainWorker(target_worker=scheduler.tp_worker)
            forward = worker.forward_batch_generation
            scheduler.tp_worker.forward_batch_generation = forward
        else:
            draft_tokens = scheduler.server_args.speculative_num_draft_tokens
        connect(scheduler, worker, draft_tokens=draft_tokens, seed=_SEED)
        run(scheduler)

    Scheduler.run_event_loop = run_event_loop


def no_host_copy() -> None:
    """Leave the KV pool without a copy to the host, as DeepSeek-V4's is."""
    SWAKVPool.get_cpu_copy = KVCache.get_cpu_copy
