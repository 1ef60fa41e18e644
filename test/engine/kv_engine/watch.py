"""What an onlooker sees of the memory: dead slots, peaks, and pools at the end."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import torch

from sglang.srt.managers.schedule_batch import Req, ScheduleBatch
from sglang.srt.managers.scheduler import Scheduler

from .reqs import allocated_of, committed_of, row_of
from .worker import KVWorker


class Retraction(msgspec.Struct, frozen=True, kw_only=True):
    """The SWA pool at the moment when a request is taken out.

    Attributes:
        running: requests of the batch, the one taken out among them.
        free: slots that nobody holds.
        evictable: slots of the tree that it could give back at once.
        owned: dead slots that a request holds: below every window, and in no tree.
        locked: dead slots that the tree holds: below every window, and only locks
            keep them. What a forward in flight reads is not dead.
    """

    turn: int
    rid: str
    running: int
    free: int
    evictable: int
    owned: int
    locked: int

    @property
    def dead(self) -> int:
        return self.owned + self.locked


class Watch:
    """Looks on while a scheduler runs; changes nothing.

    Args:
        turn: asks for the turn of the event loop.
    """

    def __init__(self, scheduler: Scheduler, worker: KVWorker, turn: Any) -> None:
        self._scheduler = scheduler
        self._worker = worker
        self._cells = worker.cells
        self._turn = turn
        self._retracting = False
        self.retractions: list[Retraction] = []
        self.swa_peak = self.swa_held_peak = 0
        _before(scheduler, "run_batch", self._sample)
        self._watch_retraction()

    def free(self) -> dict[str, tuple[int, int]]:
        """Free or evictable slots of each pool, and its size."""
        allocator, tree = self._allocator, self._scheduler.tree_cache
        return dict(
            full=(
                allocator.full_available_size() + tree.full_evictable_size(),
                allocator.size_full,
            ),
            swa=(
                allocator.swa_available_size() + tree.swa_evictable_size(),
                allocator.size_swa,
            ),
            rows=(
                self._scheduler.req_to_token_pool.available_size(),
                self._scheduler.req_to_token_pool.size,
            ),
        )

    @property
    def _allocator(self) -> Any:
        return self._scheduler.token_to_kv_pool_allocator

    def _sample(self, *_: Any, **__: Any) -> None:
        used = self._allocator.size_swa - self._allocator.swa_available_size()
        self.swa_peak = max(self.swa_peak, used)
        held = used - self._scheduler.tree_cache.swa_evictable_size()
        self.swa_held_peak = max(self.swa_held_peak, held)

    def _watch_retraction(self) -> None:
        watch, retract, release = (
            self,
            ScheduleBatch.retract_decode,
            ScheduleBatch.release_req,
        )

        def retract_decode(batch: ScheduleBatch, *args: Any, **kwargs: Any) -> Any:
            watch._retracting = True
            watch._out = set()
            try:
                return retract(batch, *args, **kwargs)
            finally:
                watch._retracting = False

        def release_req(batch: ScheduleBatch, idx: int, *args: Any, **kwargs: Any):
            if watch._retracting:
                running = [r for r in batch.reqs if r.rid not in watch._out]
                watch.retractions.append(watch._look(batch.reqs[idx], running))
                watch._out.add(batch.reqs[idx].rid)
            return release(batch, idx, *args, **kwargs)

        ScheduleBatch.retract_decode = retract_decode
        ScheduleBatch.release_req = release_req

    def _look(self, req: Req, running: list[Req]) -> Retraction:
        free = set(self._cells.swa.free_slots().tolist())
        size = self._allocator.size_swa
        page_size = self._allocator.page_size
        # The first page is padding.
        taken = set(range(page_size, size + page_size)) - free
        if page_size == 1:
            taken = set(range(1, size + 1)) - free
        live = {
            slot
            for reads in self._worker.in_flight.values()
            for read in reads
            for slot in read.swa.tolist()
            if read.req in running
        }
        for other in running:
            live |= self._live(other)
        tree = self._tree()
        dead = taken - live
        return Retraction(
            turn=self._turn(),
            rid=req.rid,
            running=len(running),
            free=len(free),
            evictable=sum(1 for slot, locked in tree.items() if not locked),
            owned=sum(1 for slot in dead if slot not in tree),
            locked=sum(1 for slot in dead if tree.get(slot)),
        )

    def _live(self, req: Req) -> set[int]:
        """SWA slots that the request will read, or write and then read."""
        first = max(0, committed_of(req) - self._scheduler.sliding_window_size)
        table = self._scheduler.req_to_token_pool.req_to_token
        slots = table[row_of(req), first : allocated_of(req)]
        slots = slots.numpy().astype(np.int64)
        return set(self._cells.translate(slots).tolist()) - {0}

    def _tree(self) -> dict[int, bool]:
        """The SWA slots that the prefix cache holds, and whether they are locked."""
        tree = self._scheduler.tree_cache
        core = getattr(tree, "tree_core", tree)
        root = getattr(core, "root_node", None)
        if root is None:
            return {}
        slots: dict[int, bool] = {}
        stack = list(root.children.values())
        while stack:
            node = stack.pop()
            stack.extend(node.children.values())
            value, locks = self._swa_of(node)
            if value is not None:
                slots |= dict.fromkeys(value.tolist(), locks > 0)
        return slots

    def _swa_of(self, node: Any) -> tuple[torch.Tensor | None, int]:
        if hasattr(node, "component_data"):
            from sglang.srt.mem_cache.unified_radix_cache import ComponentType

            data = node.component_data[ComponentType.SWA]
            return data.value, data.lock_ref
        if node.swa_tombstone:
            return None, 0
        slots = node.value.numpy().astype(np.int64)
        return torch.from_numpy(self._cells.translate(slots)), node.swa_lock_ref


def _before(target: Any, name: str, look: Any) -> None:
    method = getattr(target, name)

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        look(*args, **kwargs)
        return method(*args, **kwargs)

    setattr(target, name, wrapper)
