"""The event loop of an aggregated node, turn by turn."""

from __future__ import annotations

from array import array
from contextlib import ExitStack
from typing import Optional

from sglang.srt.disaggregation.utils import FAKE_BOOTSTRAP_HOST
from sglang.srt.environ import envs
from sglang.srt.managers.io_struct import AbortReq
from sglang.srt.managers.schedule_batch import Req, ScheduleBatch
from sglang.srt.runtime_context import get_context
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.server_args import ServerArgs
from sglang.test.kits.spec_decode_kit import (
    VOCAB_SIZE,
    SpecDecodeRig,
    cpu_stand_ins,
)

from . import pd
from .config import NodeConfig
from .counters import Counters
from .forward import STOP_TOKEN, Acceptance, Forward
from .kv import KV
from .scheduler import make_scheduler
from .state import without_host_copy


class Node:
    """A node that is a context: its configuration is the process's while open.

    Args:
        config: what it is made of.
        accept: what its forwards accept.
        reads_kv: whether forwards write and read KV, which takes time.

    Attributes:
        fixture: the pools and the prefix cache.
        scheduler: the release's scheduler.
        forward: the simulated forward.
        counters: what was reported outward.
    """

    def __init__(
        self, config: NodeConfig, accept: Acceptance, *, reads_kv: bool = False
    ) -> None:
        self.config = config
        self._accept, self._reads_kv = accept, reads_kv
        self._stack = ExitStack()

    def __enter__(self) -> Node:
        config = self.config
        if self._decodes_only and config.cache != "chunk":
            raise ValueError("with speculation a decode node shares no prefixes")
        with ExitStack() as stack:
            stack.enter_context(cpu_stand_ins())
            stack.enter_context(
                envs.SGLANG_SWA_EVICTION_INTERVAL.override(config.eviction_interval)
            )
            if not config.host_copy:
                stack.enter_context(without_host_copy())
            server_args = get_context().override_server_args(**self._server_args())
            server_args.install()
            stack.callback(server_args.restore)
            self.counters = Counters()
            self.fixture = SpecDecodeRig(
                algorithm=config.algorithm,
                cache=config.cache,
                page_size=config.page_size,
                sliding_window=config.sliding_window,
                full_size=config.full_size,
                swa_size=config.swa_size,
                overlap=config.overlap,
                draft_tokens=config.draft_tokens,
                max_reqs=config.max_reqs,
                max_context_len=config.row_len,
            )
            self.scheduler = make_scheduler(self.fixture, config, self.counters)
            if self._decodes_only:
                pd.single_rank(stack)
                pd.add_decode_queues(self.scheduler, self.fixture, config.max_reqs)
            kv = KV(self.fixture, config.draft_tokens) if self._reads_kv else None
            self.forward = Forward(self._accept, config, kv)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def submit(
        self,
        *,
        prompt_len: int,
        max_new_tokens: int,
        rid: str = "r0",
        first_token: int = 1,
        prefix: Optional[tuple[int, int]] = None,
        ignore_eos: bool = True,
    ) -> Req:
        """Queue a request.

        Args:
            prompt_len, max_new_tokens: in tokens.
            rid: its id.
            first_token: equal ones give equal prompts.
            prefix: number and length of a prefix to put before the prompt; equal
                numbers give equal prefixes.
            ignore_eos: whether a stop token does not end it.
        """
        tokens = _prompt(first_token, prompt_len)
        if prefix:
            tokens = _prompt(*prefix) + tokens
        req = Req(
            rid,
            "",
            tokens,
            SamplingParams(
                max_new_tokens=max_new_tokens,
                ignore_eos=ignore_eos,
                stop_token_ids=[STOP_TOKEN],
            ),
            vocab_size=VOCAB_SIZE,
            bootstrap_host=FAKE_BOOTSTRAP_HOST if self._decodes_only else None,
            bootstrap_room=0,
        )
        # For the release only warm-up requests come from this host.
        req.skip_radix_cache_insert = False
        req.sampling_params.normalize(None)
        req.tokenizer = None
        self.scheduler._add_request_to_queue(req)
        return req

    def abort(self, rid: str) -> None:
        """Abort a request, wherever it is, as its client would."""
        self.scheduler.abort_request(AbortReq(rid=rid))

    def turn(self) -> Optional[ScheduleBatch]:
        """One iteration of the event loop; the batch that ran, if any."""
        scheduler = self.scheduler
        self.counters.turns += 1
        plan = self._plan()
        scheduler.running_batch = plan.running_batch
        batch = plan.batch_to_run
        if not self.config.overlap:
            if batch:
                self._process(batch, self._run(batch))
            scheduler.last_batch = batch
            return batch
        wait = scheduler.is_disable_overlap_for_batch(
            batch, last_batch=scheduler.last_batch
        )
        if wait:
            self._process(*scheduler.result_queue.popleft())
        if batch:
            result = self._run(batch)
            scheduler.result_queue.append((batch.copy(), result))
        if scheduler.last_batch and not wait:
            self._process(*scheduler.result_queue.popleft())
        scheduler.last_batch = batch
        return batch

    @property
    def idle(self) -> bool:
        """Whether nothing waits, runs or has its result pending."""
        scheduler = self.scheduler
        if self._decodes_only and (
            scheduler.disagg_decode_prealloc_queue.queue
            or scheduler.disagg_decode_prealloc_queue.retracted_queue
            or scheduler.disagg_decode_transfer_queue.queue
        ):
            return False
        return (
            not scheduler.waiting_queue
            and scheduler.running_batch.is_empty()
            and not scheduler.last_batch
            and scheduler.chunked_req is None
        )

    def swa_used(self) -> int:
        """SWA tokens that are allocated, the prefix cache's among them."""
        return self.fixture.swa_used()

    def full_used(self) -> int:
        """Full-attention tokens that are allocated, likewise."""
        return self.fixture.full_used()

    @property
    def _decodes_only(self) -> bool:
        return self.config.disaggregation == "decode"

    def _plan(self):
        scheduler = self.scheduler
        if self._decodes_only:
            scheduler.process_decode_queue()
            return scheduler.get_next_disagg_decode_batch_to_run(
                running_batch=scheduler.running_batch
            )
        return scheduler.get_next_batch_to_run(
            running_batch=scheduler.running_batch, last_batch=scheduler.last_batch
        )

    def _run(self, batch: ScheduleBatch):
        if batch.forward_mode.is_decode():
            self.counters.decode_steps += 1
        else:
            self.counters.prefill(batch)
        result = self.forward.run(batch)
        self.scheduler.forward_ct = self.forward.count
        return result

    def _process(self, batch: ScheduleBatch, result) -> None:
        if self.forward.kv:
            self.forward.kv.land()
        processor = self.scheduler.batch_result_processor
        if batch.forward_mode.is_decode():
            processor.process_batch_result_decode(batch, result)
        else:
            processor.process_batch_result_prefill(batch, result)

    def _server_args(self) -> dict:
        config = self.config
        fields = dict(
            attention_backend="torch_native",
            speculative_algorithm=config.algorithm,
            speculative_num_draft_tokens=config.draft_tokens,
            speculative_num_steps=config.draft_tokens - 1,
            speculative_eagle_topk=1,
            chunked_prefill_size=config.chunked_prefill_size or -1,
            page_size=config.page_size,
            disable_overlap_schedule=not config.overlap,
            pp_max_micro_batch_size=config.max_reqs,
            disable_radix_cache=config.cache == "chunk",
            disaggregation_mode=config.disaggregation,
            disaggregation_transfer_backend="fake",
        )
        # Elsewhere a host copy is the only way; the pinned host pool wants a GPU.
        if hasattr(ServerArgs, "disaggregation_decode_retraction_backup"):
            fields["disaggregation_decode_retraction_backup"] = "cpu_tensor"
        return fields


def _prompt(first_token: int, length: int) -> array[int]:
    """Tokens that count on from the first, with a stride of its own: prompts of
    different first tokens part early and stay apart."""
    stop = VOCAB_SIZE - 1
    start, stride = first_token % stop, 1 + first_token // stop
    return array("q", ((start + i * stride) % stop for i in range(length)))
