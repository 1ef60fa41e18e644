"""What an onlooker sees of the memory: dead slots, peaks, and pools at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from sglang.srt.managers.schedule_batch import Req, ScheduleBatch
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.mem_cache.unified_radix_cache import ComponentType

from .reqs import allocated_of, committed_of, row_of
from .worker import KVWorker

# A node's component data is a list in this order.
_SWA = ComponentType.SWA


class Retraction(msgspec.Struct, frozen=True, kw_only=True):
    """The SWA pool at the moment when a request is taken out.

    Slots count by whole pages, as they can be given back.

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
        self._turn = turn
        self._running: list[Req] = []
        self.retractions: list[Retraction] = []
        self.swa_peak = self.swa_held_peak = 0
        self._at_first = self._free()
        before(scheduler, "run_batch", self._sample)
        self._watch_retraction()

    def missing(self) -> dict[str, int]:
        """Of each pool, what is neither free nor evictable but was at first."""
        now = self._free()
        return {pool: free - now[pool] for pool, free in self._at_first.items()}

    def _free(self) -> dict[str, int]:
        allocator, tree = self._allocator, self._scheduler.tree_cache
        return dict(
            full=allocator.full_available_size() + tree.full_evictable_size(),
            swa=allocator.swa_available_size() + tree.swa_evictable_size(),
            rows=self._scheduler.req_to_token_pool.available_size(),
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
        watch = self
        retract, release = ScheduleBatch.retract_decode, ScheduleBatch.release_req

        def retract_decode(batch: ScheduleBatch, *args: Any, **kwargs: Any) -> Any:
            watch._running = list(batch.reqs)
            try:
                return retract(batch, *args, **kwargs)
            finally:
                watch._running = []

        def release_req(batch: ScheduleBatch, idx: int, *args: Any, **kwargs: Any):
            req = batch.reqs[idx]
            # Elsewhere it takes out what is aborted or paused.
            if req in watch._running:
                watch.retractions.append(watch._look(req, watch._running))
                watch._running.remove(req)
            return release(batch, idx, *args, **kwargs)

        ScheduleBatch.retract_decode = retract_decode
        ScheduleBatch.release_req = release_req

    def _look(self, req: Req, running: list[Req]) -> Retraction:
        page_size = self._allocator.page_size
        free = self._pages(self._worker.cells.swa.free_slots())
        # The page of slot 0 is padding, also when pages are single slots.
        taken = set(range(1, self._allocator.size_swa // page_size + 1)) - free
        dead = taken - self._live(running)
        tree = self._tree()
        return Retraction(
            turn=self._turn(),
            rid=req.rid,
            running=len(running),
            free=len(free) * page_size,
            evictable=sum(not locked for locked in tree.values()) * page_size,
            owned=sum(page not in tree for page in dead) * page_size,
            locked=sum(tree.get(page, False) for page in dead) * page_size,
        )

    def _live(self, running: list[Req]) -> set[int]:
        """SWA pages that a request will read, or write and then read, or that a
        forward in flight reads."""
        table = self._scheduler.req_to_token_pool.req_to_token
        live: set[int] = set()
        for req in running:
            first = max(0, committed_of(req) - self._scheduler.sliding_window_size)
            slots = table[row_of(req), first : allocated_of(req)]
            live |= self._pages(
                self._worker.cells.translate(slots.numpy().astype(np.int64))
            )
        for reads in self._worker.in_flight.values():
            for read in reads:
                if read.req in running:
                    live |= self._pages(read.swa)
        return live

    def _pages(self, slots: np.ndarray) -> set[int]:
        return set((slots // self._allocator.page_size).tolist())

    def _tree(self) -> dict[int, bool]:
        """The SWA pages that the prefix cache holds, and whether they are locked."""
        tree = self._scheduler.tree_cache
        core = getattr(tree, "tree_core", tree)
        root = getattr(core, "root_node", None)
        if root is None:
            return {}
        pages: dict[int, bool] = {}
        stack = list(root.children.values())
        while stack:
            node = stack.pop()
            stack.extend(node.children.values())
            value, locks = self._swa_of(node)
            if value is not None:
                pages |= dict.fromkeys(self._pages(value), locks > 0)
        return pages

    def _swa_of(self, node: Any) -> tuple[np.ndarray | None, int]:
        if hasattr(node, "component_data"):
            data = node.component_data[_SWA]
            slots = None if data.value is None else data.value.numpy()
            return slots, data.lock_ref
        if node.swa_tombstone:
            return None, 0
        slots = node.value.numpy().astype(np.int64)
        return self._worker.cells.translate(slots), node.swa_lock_ref


def before(target: Any, name: str, look: Callable[..., None]) -> None:
    """Look whenever a method is about to run."""
    method = getattr(target, name)

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        look(*args, **kwargs)
        return method(*args, **kwargs)

    setattr(target, name, wrapper)
