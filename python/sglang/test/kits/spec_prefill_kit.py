"""Admission and chunked prefill on a CPU: the scheduler's own choice of batches.

Real is ``Scheduler.get_next_batch_to_run`` with all below it, ``PrefillAdder``
among it, on a scheduler that has only what it reads.

    class TestAdmission(PrefillTestCase):
        def test_admitted(self):
            rig = self.make_rig(chunk=256, swa_size=512)
            rig.submit(rig.make_req(prompt_len=1000))
            while rig.waiting():
                self.assertIsNotNone(rig.iterate())
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Optional

import torch

from sglang.srt.managers.schedule_batch import Req, ScheduleBatch
from sglang.srt.managers.schedule_policy import SchedulePolicy
from sglang.srt.runtime_context import get_context
from sglang.test.kits.features import HAS_BEAM_COORDINATOR
from sglang.test.kits.spec_decode_kit import VOCAB_SIZE, SpecDecodeTestCase
from sglang.test.kits.spec_retract_kit import RetractRig

# What a scheduler asks itself about features that stay off here.
_OFF = (
    "chunked_req",
    "dllm_config",
    "dynamic_chunk_sizer",
    "enable_dynamic_chunking",
    "enable_fpm",
    "enable_lora",
    "enable_priority_preemption",
    "enable_unified_cache_external_linker",
    "grammar_backend",
    "hisparse_coordinator",
    "is_mixed_chunk",
    "lora_drainer",
    "min_free_slots_delayer",
    "prefill_delayer",
    "require_mlp_sync",
    "scheduler_stage_metrics",
    "truncation_align_size",
    "_pending_chunked_abort_req",
)


class PrefillRig(RetractRig):
    """A rig that admits what is submitted, as the scheduler's event loop does. It
    asserts that no SWA slot is freed while a forward in flight reads it.

    Args:
        chunk: ``chunked_prefill_size``, in tokens.
        cache, sliding_window, options: see :class:`RetractRig`.

    Attributes:
        running_batch: the requests that decode.
    """

    def __init__(
        self, *, chunk: int, cache: str, sliding_window: int, **options
    ) -> None:
        super().__init__(cache=cache, sliding_window=sliding_window, **options)
        self.shares_prefixes = cache != "chunk"
        self.running_batch = ScheduleBatch(reqs=[], batch_is_full=False)
        self.sliding_window = sliding_window
        self._last_batch: Optional[ScheduleBatch] = None
        self._reads: list[torch.Tensor] = []
        self._let_admit(chunk)

    def submit(self, *reqs: Req) -> None:
        """Let ``reqs`` wait for their prefill."""
        self.scheduler.waiting_queue.extend(reqs)

    def waiting(self) -> list[Req]:
        """Requests that wait for their prefill, or for the next chunk of it."""
        chunked = self.scheduler.chunked_req
        return [*([chunked] if chunked else []), *self.scheduler.waiting_queue]

    def iterate(self, accepted: int = 1) -> Optional[ScheduleBatch]:
        """One turn of the event loop: returns the batch that it runs, if any. A
        decode accepts ``accepted`` tokens of each request."""
        scheduler = self.scheduler
        plan = scheduler.get_next_batch_to_run(self.running_batch, self._last_batch)
        self.running_batch = scheduler.running_batch = plan.running_batch
        batch = plan.batch_to_run
        self._assert_reads_are_kept()
        if batch is None:
            self.process_result()
        else:
            # A prefill accepts nothing.
            self.forward(batch, accepted if batch.forward_mode.is_decode() else 0)
        self._reads = self._slots_read(batch)
        self._assert_reads_are_kept()
        if not self.overlap:
            self._reads = []
        self._last_batch = batch
        return batch

    def _slots_read(self, batch: Optional[ScheduleBatch]) -> list[torch.Tensor]:
        """The slots whose SWA KV the forward of ``batch`` reads or writes."""
        if batch is None or not self.tree_cache.supports_swa():
            return []
        extends = batch.forward_mode.is_extend()
        # A tree may evict what a chunk in flight has left behind, and does.
        if extends and self.shares_prefixes:
            return []
        firsts = batch.prefix_lens if extends else batch.seq_lens.tolist()
        table, window = self.req_to_token_pool.req_to_token, self.sliding_window
        return [
            table[row, max(0, first - window) : req.kv.kv_allocated_len]
            for req, row, first in zip(batch.reqs, batch.req_pool_indices, firsts)
        ]

    def _assert_reads_are_kept(self) -> None:
        for slots in self._reads:
            mapped = self.allocator.full_to_swa_index_mapping[slots.long()] > 0
            assert mapped.all(), "freed under its forward"

    def process_result(self) -> None:
        """Apply the forward in flight; a chunk but the last has no result."""
        ended = []
        for req, accept_len in self._in_flight or ():
            if req.inflight_middle_chunks > 0:
                req.inflight_middle_chunks -= 1
            else:
                ended.append((req, accept_len))
        self._in_flight = ended
        super().process_result()

    def _let_admit(self, chunk: int) -> None:
        """Give the scheduler what it reads to choose a batch."""
        scheduler = self.scheduler

        def same(batch, *args, **kwargs):
            return batch

        if HAS_BEAM_COORDINATOR:
            scheduler.beam_coordinator.pending_member_rows = lambda batch: 0
        vars(scheduler).update(
            dict.fromkeys(_OFF),
            page_size=self.page_size,
            chunked_prefill_size=chunk,
            max_prefill_tokens=1 << 30,
            max_prefill_bs=0,
            prefill_decode_interval=0,
            _prefill_decode_interval_remaining=0,
            processed_tokens_counter=0,
            max_running_requests=self.req_to_token_pool.size,
            priority_scheduling_preemption_threshold=0,
            is_hybrid_swa=hasattr(self.allocator, "swa_available_size"),
            enable_overlap=self.overlap,
            spec_algorithm=self.algorithm,
            model_config=_MODEL_CONFIG,
            req_to_token_pool=self.req_to_token_pool,
            running_batch=self.running_batch,
            policy=SchedulePolicy("fcfs", self.tree_cache, False, False, False),
            grammar_manager=SimpleNamespace(has_waiting_grammars=lambda: False),
            dp_attn_adapter=SimpleNamespace(
                maybe_prepare_mlp_sync_batch=same, maybe_convert_decode_to_extend=same
            ),
            ngram_embedding_manager=SimpleNamespace(prepare_for_forward=same),
            load_inquirer=SimpleNamespace(_get_num_pending_tokens=lambda **kwargs: 0),
            tp_worker=SimpleNamespace(
                model_runner=SimpleNamespace(prefill_aware_swa=False, attn_backend=None)
            ),
        )


class PrefillTestCase(SpecDecodeTestCase):
    """Makes :class:`PrefillRig` rigs."""

    def make_rig(
        self,
        *,
        chunk: int,
        algorithm: str = "DSPARK",
        cache: str = "chunk",
        page_size: int = 1,
        sliding_window: int = 32,
        **options,
    ) -> PrefillRig:
        config = get_context().override_server_args(
            attention_backend="torch_native",
            speculative_algorithm=algorithm,
            speculative_num_draft_tokens=self.draft_tokens,
            speculative_num_steps=self.draft_tokens - 1,
            speculative_eagle_topk=1,
            chunked_prefill_size=chunk,
            page_size=page_size,
            pp_max_micro_batch_size=1 << 30,
        )
        config.install()
        self.addCleanup(config.restore)
        return PrefillRig(
            chunk=chunk,
            algorithm=algorithm,
            cache=cache,
            page_size=page_size,
            sliding_window=sliding_window,
            **options,
        )


_MODEL_CONFIG = SimpleNamespace(
    vocab_size=VOCAB_SIZE, is_encoder_decoder=False, is_multimodal=False
)
