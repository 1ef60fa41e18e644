"""The decode side of a prefill/decode handoff on a CPU.

A request whose KV arrives from a prefill node goes through the real decode loop:
preallocation, the prebuilt batch and its draft input, output
processing, filter, merge, and the first decode preparation, with the real
``FutureMap``. Only the transfer and the model's forward are simulated.

    class TestHandoff(PDHandoffTestCase):
        def test_first_step(self):
            rig = self.make_pd_rig(algorithm="DFLASH", overlap=True)
            rig.arrive([rig.make_req(prompt_len=40)], bonus_tokens=[7])
            batch = rig.schedule()
            self.assertEqual(rig.forward(batch, accepted=[3]), [7])
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Optional
from unittest.mock import patch

import torch

from sglang.test.kits.features import (
    HAS_LENGTHS_IN_KV,
    HAS_SKIP_FINISHING,
    HAS_STAGE_METRICS,
)
from sglang.test.kits.spec_decode_kit import (
    VOCAB_SIZE,
    SpecDecodeRig,
    SpecDecodeTestCase,
)

# isort: split
from sglang.srt.disaggregation.decode import DecodePreallocQueue
from sglang.srt.disaggregation.utils import DisaggregationMode
from sglang.srt.managers.overlap_utils import RelayPayload, resolve_forward_inputs
from sglang.srt.managers.schedule_batch import Req, ScheduleBatch
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.managers.scheduler_components.batch_result_processor import (
    SchedulerBatchResultProcessor,
)
from sglang.srt.runtime_context import get_server_args
from sglang.srt.speculative.draft_worker_common import make_draft_input_v2


class PDHandoffRig(SpecDecodeRig):
    """A decode node whose requests arrive from a prefill node."""

    def __init__(self, **options) -> None:
        super().__init__(**options)
        self.future_map = self.algorithm.create_future_map(
            torch.device("cpu"), self.req_to_token_pool
        )
        self.scheduler = self._make_scheduler()
        self.prealloc_queue = self._make_prealloc_queue()
        self.running_batch = ScheduleBatch(reqs=[], batch_is_full=False)

    def arrive(self, reqs: Sequence[Req], bonus_tokens: Sequence[int]) -> None:
        """Put ``reqs`` into the waiting queue with their KV transferred and the
        token that the prefill node sampled for each."""
        for req, token in zip(reqs, bonus_tokens, strict=True):
            req.vocab_size = VOCAB_SIZE
            req.sampling_params.normalize(None)
            req.sampling_params.max_new_tokens = 1 << 20
            self.prealloc_queue._pre_alloc(req)
            req.output_ids.append(token)
            self.scheduler.waiting_queue.append(req)

    def build_prebuilt(self) -> ScheduleBatch:
        """The batch of what has arrived, as ``process_prebuilt`` leaves it."""
        return self.scheduler.get_new_prebuilt_batch(self.running_batch)

    def schedule(self) -> Optional[ScheduleBatch]:
        """One turn of the decode loop up to the forward: take in what has
        arrived, and prepare the running batch for its next decode."""
        plan = self.scheduler.get_next_disagg_decode_batch_to_run(self.running_batch)
        self.running_batch = plan.running_batch
        return plan.batch_to_run

    def forward(self, batch: ScheduleBatch, accepted: Sequence[int]) -> list[int]:
        """A forward that accepts so many tokens of each request, surrounded as
        ``run_batch`` surrounds it: the accepted tokens count on from the bonus
        token that it starts from. Returns those bonus tokens."""
        self._count_forward(batch)
        if self.overlap:
            self.future_map.resolve_seq_lens_cpu(batch)
        resolve_forward_inputs(batch, self.future_map)
        bonus_tokens = batch.spec_info.bonus_tokens
        accept_lens = torch.tensor(accepted)
        next_input = make_draft_input_v2(
            bonus_tokens=bonus_tokens + accept_lens,
            new_seq_lens=batch.seq_lens + accept_lens,
        )
        if self.overlap:
            next_input.future_indices = batch.req_pool_indices
            self.future_map.publish(next_input.future_indices, next_input.new_seq_lens)
            self.future_map.stash(
                next_input.future_indices, RelayPayload.from_draft_input(next_input)
            )
            self.process_result()
        else:
            batch.seq_lens = next_input.new_seq_lens
            batch.seq_lens_cpu = next_input.new_seq_lens
        batch.spec_info = next_input
        batch.input_ids = None
        self._in_flight = list(zip(batch.reqs, bonus_tokens.tolist(), accepted))
        if not self.overlap:
            self.process_result()
        return bonus_tokens.tolist()

    def process_result(self) -> None:
        """Apply the forward in flight: commit and append what it accepted."""
        for req, bonus_token, accept_len in self._in_flight or ():
            (req.kv if HAS_LENGTHS_IN_KV else req).kv_committed_len += accept_len
            req.output_ids.extend(range(bonus_token + 1, bonus_token + accept_len + 1))
        self._in_flight = None

    def _make_scheduler(self) -> Scheduler:
        """A scheduler that has only what its decode loop reads."""
        result_processor = SimpleNamespace(
            disaggregation_mode=DisaggregationMode.DECODE,
            server_args=get_server_args(),
            tree_cache=self.tree_cache,
            output_streamer=SimpleNamespace(stream_output=lambda *args: None),
        )
        scheduler = Scheduler.__new__(Scheduler)
        vars(scheduler).update(
            server_args=get_server_args(),
            model_config=SimpleNamespace(
                vocab_size=VOCAB_SIZE, is_encoder_decoder=False
            ),
            req_to_token_pool=self.req_to_token_pool,
            token_to_kv_pool_allocator=self.allocator,
            tree_cache=self.tree_cache,
            future_map=self.future_map,
            spec_algorithm=self.algorithm,
            enable_overlap=self.overlap,
            enable_hisparse=False,
            enable_hierarchical_cache=False,
            enable_priority_scheduling=False,
            sliding_window_size=getattr(self.tree_cache, "sliding_window_size", None),
            max_running_requests=self.req_to_token_pool.size,
            waiting_queue=[],
            chunked_req=None,
            forward_ct=0,
            schedule_stream=torch.cpu.current_stream(),
            forward_stream=torch.cpu.current_stream(),
            grammar_manager=SimpleNamespace(has_waiting_grammars=lambda: False),
            ngram_embedding_manager=SimpleNamespace(
                prepare_for_forward=lambda batch, chunked_req: batch
            ),
            new_token_ratio_tracker=SimpleNamespace(decay_step=lambda: None),
            dp_attn_adapter=SimpleNamespace(
                maybe_prepare_mlp_sync_batch=lambda batch: batch
            ),
            batch_result_processor=SimpleNamespace(
                process_batch_result_prebuilt=partial(
                    SchedulerBatchResultProcessor.process_batch_result_prebuilt,
                    result_processor,
                )
            ),
        )
        if HAS_SKIP_FINISHING:
            scheduler.enable_skip_finishing_decode = False
        if HAS_STAGE_METRICS:
            scheduler.scheduler_stage_metrics = None
        return scheduler

    def _make_prealloc_queue(self) -> DecodePreallocQueue:
        """A preallocation queue that has only what ``_pre_alloc`` reads."""
        queue = DecodePreallocQueue.__new__(DecodePreallocQueue)
        queue.req_to_token_pool = self.req_to_token_pool
        queue.token_to_kv_pool_allocator = self.allocator
        queue.token_to_kv_pool = self.allocator.get_kvcache()
        queue.tree_cache = self.tree_cache
        queue.scheduler = self.scheduler
        return queue


class PDHandoffTestCase(SpecDecodeTestCase):
    """Installs the CPU stand-ins that the relay needs beside the kit's."""

    def setUp(self) -> None:
        super().setUp()
        # A CPU tensor has no stream to be recorded on.
        no_op = patch.object(torch.Tensor, "record_stream", lambda self, stream: None)
        no_op.__enter__()
        self.addCleanup(no_op.__exit__, None, None, None)

    def make_pd_rig(self, **options) -> PDHandoffRig:
        """A rig of a decode node."""
        return self.make_rig(
            rig_class=PDHandoffRig,
            server_args={"disaggregation_mode": "decode"},
            **options,
        )
