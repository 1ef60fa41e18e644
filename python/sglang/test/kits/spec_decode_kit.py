"""Real KV bookkeeping of speculative decoding on a CPU.

Pools, allocator, prefix cache, ``Req``, ``ScheduleBatch`` and draft input are
the ones that serve; only the model's forward is simulated, and the Triton kernels
have stand-ins of the same contract.

    class TestEviction(SpecDecodeTestCase):
        def test_bounded(self):
            rig = self.make_rig(algorithm="DSPARK", sliding_window=32)
            batch = rig.start([rig.make_req(prompt_len=40)])
            for _ in range(100):
                rig.step(batch, accepted=4)
            self.assertLess(rig.swa_used(), 100)
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Optional

import torch

from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.environ import envs  # noqa: E402
from sglang.srt.managers.schedule_batch import Req, ScheduleBatch  # noqa: E402
from sglang.srt.managers.schedule_policy import PrefillAdder  # noqa: E402
from sglang.srt.mem_cache.common import (  # noqa: E402
    checkpoint_kv_cache,
    maybe_cache_unfinished_req,
    release_kv_cache,
)
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool  # noqa: E402
from sglang.srt.runtime_context import get_context  # noqa: E402
from sglang.srt.sampling.sampling_params import SamplingParams  # noqa: E402
from sglang.srt.speculative.draft_worker_common import (  # noqa: E402
    make_draft_input_v2,
)
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm  # noqa: E402
from sglang.test.kits.features import (  # noqa: E402
    HAS_CHECKPOINTS,
    HAS_LENGTHS_IN_KV,
)
from sglang.test.kits.spec_decode_caches import make_prefix_cache  # noqa: E402
from sglang.test.kits.spec_decode_kernels import cpu_stand_ins  # noqa: E402
from sglang.test.kits.spec_decode_pools import (  # noqa: E402
    make_full_allocator,
    make_swa_allocator,
)

VOCAB_SIZE = 256


class SpecDecodeRig:
    """One decode node's KV side: pools, prefix cache and a decode clock.

    Args:
        algorithm: a ``SpeculativeAlgorithm`` name.
        cache: a kind from ``prefix_cache_kinds()``.
        page_size, sliding_window: in tokens.
        hybrid_swa: whether the model has sliding-window layers beside full ones.
        full_size, swa_size: pool sizes in tokens, whole pages.
        overlap: whether a step's result lands one step later.
        draft_tokens: ``speculative_num_draft_tokens``, the block that is verified.
        max_reqs, max_context_len: the request table's rows and columns.
    """

    def __init__(
        self,
        *,
        algorithm: str = "DSPARK",
        cache: str = "chunk",
        page_size: int = 1,
        hybrid_swa: bool = True,
        sliding_window: int = 32,
        full_size: int = 8192,
        swa_size: int = 4096,
        overlap: bool = False,
        draft_tokens: int = 6,
        max_reqs: int = 8,
        max_context_len: int = 8192,
    ) -> None:
        self.algorithm = SpeculativeAlgorithm.from_string(algorithm)
        self.overlap = overlap
        self.page_size = page_size
        self.draft_tokens = draft_tokens
        self.forward_ct = 0
        self._in_flight: Optional[list[tuple[Req, int]]] = None
        self.req_to_token_pool = ReqToTokenPool(
            size=max_reqs,
            max_context_len=max_context_len,
            device="cpu",
            enable_memory_saver=False,
        )
        self.allocator = (
            make_swa_allocator(full_size, swa_size, page_size)
            if hybrid_swa
            else make_full_allocator(full_size, page_size)
        )
        self.tree_cache = make_prefix_cache(
            cache,
            self.req_to_token_pool,
            self.allocator,
            page_size=page_size,
            sliding_window=sliding_window if hybrid_swa else None,
        )

    def make_req(self, prompt_len: int, rid: str = "r0", first_token: int = 1) -> Req:
        """A request whose prompt is ``prompt_len`` tokens; equal first tokens
        give equal prompts, so that prefixes can be shared."""
        prompt = array("q", ((first_token + i) % VOCAB_SIZE for i in range(prompt_len)))
        req = Req(rid, "", prompt, SamplingParams(max_new_tokens=1))
        req.tokenizer = None
        return req

    def prefill(self, reqs: Sequence[Req]) -> ScheduleBatch:
        """Admit ``reqs`` as the scheduler does and allocate their prompts; the
        prefill forward is still in flight when this returns."""
        adder = PrefillAdder(
            self.page_size,
            self.tree_cache,
            self.allocator,
            running_batch=None,
            new_token_ratio=1.0,
            rem_input_tokens=1 << 30,
            rem_chunk_tokens=None,
        )
        for req in reqs:
            req.init_next_round_input(self.tree_cache)
            adder.add_one_req(req, has_chunked_req=False, truncation_align_size=None)
        assert adder.can_run_list == list(reqs), "the pools are too small for them"
        batch = ScheduleBatch.init_new(
            list(reqs),
            self.req_to_token_pool,
            self.allocator,
            self.tree_cache,
            _MODEL_CONFIG,
            self.overlap,
            self.algorithm,
        )
        batch.prepare_for_extend()
        self._count_forward(batch)
        self._in_flight = [(req, 0) for req in reqs]
        return batch

    def start(self, reqs: Sequence[Req]) -> ScheduleBatch:
        """:meth:`prefill`, with the first token of each request sampled unless
        overlap leaves that to the next step."""
        batch = self.prefill(reqs)
        if not self.overlap:
            self.process_result()
        self.set_draft_input(batch)
        return batch

    def step(self, batch: ScheduleBatch, accepted: int | Sequence[int] = 1) -> None:
        """One decode iteration: ``prepare_for_decode``, then :meth:`forward`."""
        batch.prepare_for_decode()
        self.forward(batch, accepted)

    def forward(self, batch: ScheduleBatch, accepted: int | Sequence[int] = 1) -> None:
        """The forward of a prepared ``batch``: it accepts ``accepted`` tokens of
        each request."""
        self._count_forward(batch)
        if self.overlap:
            self.process_result()
        lens = [accepted] * len(batch.reqs) if isinstance(accepted, int) else accepted
        self._in_flight = list(zip(batch.reqs, lens, strict=True))
        if not self.overlap:
            self.process_result()
        self.set_draft_input(batch)

    def process_result(self) -> None:
        """Apply the forward in flight: commit what it accepted. A prefill accepts
        nothing and samples the first token."""
        for req, accept_len in self._in_flight or ():
            if accept_len == 0:
                req.output_ids.append(1)
                if HAS_CHECKPOINTS:
                    checkpoint_kv_cache(req, self.tree_cache)
                else:
                    maybe_cache_unfinished_req(req, self.tree_cache)
                continue
            (req.kv if HAS_LENGTHS_IN_KV else req).kv_committed_len += accept_len
            req.output_ids.extend([1] * accept_len)
        self._in_flight = None

    def set_draft_input(self, batch: ScheduleBatch) -> None:
        """Install what the draft worker hands over: a fresh input, whose buffers
        no earlier iteration has filled."""
        bs = len(batch.reqs)
        if HAS_LENGTHS_IN_KV:
            lens = [req.kv.kv_committed_len for req in batch.reqs]
        else:
            lens = [req.kv_committed_len for req in batch.reqs]
        batch.seq_lens = torch.tensor(lens, dtype=torch.int64)
        if self.algorithm.is_dflash_family():
            batch.spec_info = make_draft_input_v2(
                bonus_tokens=torch.ones(bs, dtype=torch.int64),
                new_seq_lens=batch.seq_lens,
            )

    def release(self, req: Req) -> None:
        """Finish ``req``: its prefix stays in the cache, all else is given back."""
        if HAS_CHECKPOINTS:
            release_kv_cache(req, self.tree_cache, checkpoint=True)
        else:
            release_kv_cache(req, self.tree_cache)

    def swa_used(self) -> int:
        """SWA tokens that are allocated, whoever holds them."""
        return self.allocator.size_swa - self.allocator.swa_available_size()

    def swa_bound(self, *, accepted: int) -> int:
        """SWA tokens that one request without a shared prefix may hold: the
        window, what one eviction interval adds, the reserve of a step, and a
        page at either end."""
        interval = envs.SGLANG_SWA_EVICTION_INTERVAL.get()
        reserve = 2 * self.draft_tokens
        # A cache that shares prefixes keeps a whole page where that is more.
        window = max(self.tree_cache.sliding_window_size, self.page_size)
        return window + interval * accepted + reserve + 2 * self.page_size

    def full_used(self) -> int:
        """Full-attention tokens that are allocated, whoever holds them."""
        full = getattr(self.allocator, "full_attn_allocator", self.allocator)
        return full.size - full.available_size()

    def _count_forward(self, batch: ScheduleBatch) -> None:
        self.forward_ct += 1
        batch.forward_iter = self.forward_ct


class SpecDecodeTestCase(CustomTestCase):
    """Installs the CPU stand-ins for each test."""

    draft_tokens = 6
    eviction_interval = 8

    def setUp(self) -> None:
        super().setUp()
        for stand_in in (
            cpu_stand_ins(),
            envs.SGLANG_SWA_EVICTION_INTERVAL.override(self.eviction_interval),
        ):
            stand_in.__enter__()
            self.addCleanup(stand_in.__exit__, None, None, None)

    def make_rig(
        self,
        *,
        algorithm: str = "DSPARK",
        page_size: int = 1,
        rig_class: type[SpecDecodeRig] = SpecDecodeRig,
        server_args: Optional[Mapping] = None,
        **options,
    ) -> SpecDecodeRig:
        """A rig, and the server configuration that goes with its algorithm and
        with ``server_args``."""
        config = get_context().override_server_args(
            attention_backend="torch_native",
            speculative_algorithm=algorithm,
            speculative_num_draft_tokens=self.draft_tokens,
            speculative_num_steps=self.draft_tokens - 1,
            speculative_eagle_topk=1,
            chunked_prefill_size=-1,
            page_size=page_size,
            **(server_args or {}),
        )
        config.install()
        self.addCleanup(config.restore)
        return rig_class(algorithm=algorithm, page_size=page_size, **options)


_MODEL_CONFIG = SimpleNamespace(
    vocab_size=VOCAB_SIZE, is_encoder_decoder=False, is_multimodal=False
)
