"""Decoding under memory pressure on a CPU: the scheduler's own step on a rig.

Real are ``Scheduler.update_running_batch``, on a scheduler that has only what it
reads, and the queues that it fills. The socket to the tokenizer is a list.

    class TestPressure(RetractTestCase):
        def test_retracted(self):
            rig = self.make_rig(cache="chunk")
            batch = rig.start([rig.make_req(prompt_len=40, rid=r) for r in "ab"])
            leave_swa(rig, 4)
            batch = rig.decode(batch)
            self.assertEqual([req.rid for req in rig.retracted], ["b"])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Optional

import torch

from sglang.srt.disaggregation.decode import DecodePreallocQueue
from sglang.srt.disaggregation.utils import DisaggregationMode
from sglang.srt.managers.io_struct import AbortReq
from sglang.srt.managers.schedule_batch import Req, ScheduleBatch
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.runtime_context import get_server_args
from sglang.test.kits.features import (
    HAS_BEAM_COORDINATOR,
    HAS_RETRACTION_BACKUP,
    HAS_RUST_SERVER,
    HAS_SKIP_FINISHING,
)
from sglang.test.kits.spec_decode_kit import SpecDecodeRig, SpecDecodeTestCase


class RetractRig(SpecDecodeRig):
    """A rig whose decode iteration is the scheduler's.

    Args:
        disaggregation: ``null`` or ``decode``, the scheduler's own words.
        options: see :class:`SpecDecodeRig`.

    Attributes:
        aborts: what was sent to the tokenizer.
    """

    def __init__(self, *, disaggregation: str = "null", **options) -> None:
        super().__init__(**options)
        self.aborts: list[AbortReq] = []
        self.scheduler = self._make_scheduler(DisaggregationMode(disaggregation))

    @property
    def retracted(self) -> Sequence[Req]:
        """Requests that wait to be resumed."""
        prealloc_queue = self.scheduler.disagg_decode_prealloc_queue
        return [*self.scheduler.waiting_queue, *prealloc_queue.retracted_queue]

    def decode(
        self, batch: ScheduleBatch, accepted: int | Sequence[int] = 1
    ) -> ScheduleBatch:
        """One iteration as the scheduler runs it: the memory check, whatever
        retraction it asks for, and the forward of those that remain."""
        batch = Scheduler.update_running_batch(self.scheduler, batch)
        if not batch.is_empty():
            self.forward(batch, accepted)
        return batch

    def free_counts(self) -> tuple[int, int, int]:
        """Free full tokens, free SWA tokens and free rows."""
        return (
            self.allocator.full_available_size(),
            self.allocator.swa_available_size(),
            self.req_to_token_pool.available_size(),
        )

    def _make_scheduler(self, mode: DisaggregationMode) -> Scheduler:
        scheduler = Scheduler.__new__(Scheduler)
        outbox = SimpleNamespace(
            send_output=lambda abort, req=None: self.aborts.append(abort)
        )
        vars(scheduler).update(
            disaggregation_mode=mode,
            server_args=get_server_args(),
            # Caches for full attention alone have none.
            sliding_window_size=getattr(self.tree_cache, "sliding_window_size", None),
            tree_cache=self.tree_cache,
            token_to_kv_pool_allocator=self.allocator,
            new_token_ratio_tracker=SimpleNamespace(
                current=0.5, decay_step=lambda: None
            ),
            metrics_reporter=SimpleNamespace(enable_metrics=False),
            ipc_channels=SimpleNamespace(send_to_tokenizer=outbox),
            waiting_queue=[],
            max_queued_requests=None,
            forward_ct=0,
            processed_tokens_counter=0,
            decode_offload_manager=None,
            enable_hierarchical_cache=False,
            enable_hicache_storage=False,
            enable_lmcache=False,
            enable_hisparse=False,
            enable_priority_scheduling=False,
            abort_on_priority_when_disabled=False,
        )
        if HAS_BEAM_COORDINATOR:
            scheduler.beam_coordinator = SimpleNamespace(retire_group=lambda req: None)
        if HAS_RUST_SERVER:
            scheduler.rust_server = None
        if HAS_SKIP_FINISHING:
            scheduler.enable_skip_finishing_decode = False
        scheduler.disagg_decode_prealloc_queue = self._make_prealloc_queue(scheduler)
        return scheduler

    def _make_prealloc_queue(self, scheduler: Scheduler) -> DecodePreallocQueue:
        queue = DecodePreallocQueue.__new__(DecodePreallocQueue)
        vars(queue).update(
            scheduler=scheduler,
            retracted_queue=[],
            tree_cache=self.tree_cache,
            token_to_kv_pool_allocator=self.allocator,
            token_to_kv_pool=self.allocator.get_kvcache(),
            max_total_num_tokens=self.allocator.size,
            num_reserved_decode_tokens=0,
        )
        return queue


class RetractTestCase(SpecDecodeTestCase):
    """Makes :class:`RetractRig` rigs."""

    def make_rig(
        self,
        *,
        disaggregation: str = "null",
        server_args: Optional[Mapping] = None,
        **options,
    ) -> RetractRig:
        """A rig; as a decode node it backs up what it retracts."""
        server_args = dict(server_args or {}, disaggregation_mode=disaggregation)
        if HAS_RETRACTION_BACKUP:
            backup = options.pop("backup", "cpu_tensor")
            server_args["disaggregation_decode_retraction_backup"] = backup
        return super().make_rig(
            rig_class=RetractRig,
            server_args=server_args,
            disaggregation=disaggregation,
            **options,
        )

    def assert_idle(self, rig: RetractRig, idle: tuple[int, int, int]) -> None:
        """All slots are free as in ``idle``, or in the tree, and no lock is left."""
        cache = rig.tree_cache
        full, swa, rows = rig.free_counts()
        free = (full + cache.full_evictable_size(), swa + cache.swa_evictable_size())
        self.assertEqual((*free, rows), idle)
        self.assertEqual(cache.full_protected_size(), 0)
        self.assertEqual(cache.swa_protected_size(), 0)


def leave_swa(rig: SpecDecodeRig, tokens: int) -> torch.Tensor:
    """Take all free SWA slots but ``tokens``, as other requests would."""
    allocator = rig.allocator.swa_attn_allocator
    return allocator.alloc(allocator.available_size() - tokens)
