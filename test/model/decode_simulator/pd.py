"""The decode side of a prefill/decode pair, its transfers over at once.

The release's own queues run: preallocation, transfer, resumption of what was
retracted to the host. Its ``fake`` transfer backend stands for the prefill node.
"""

from __future__ import annotations

import inspect
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

from sglang.test.kits.spec_decode_kit import SpecDecodeRig

# isort: split
from sglang.srt.disaggregation.decode import DecodePreallocQueue, DecodeTransferQueue
from sglang.srt.disaggregation.utils import (
    MetadataBuffers,
    ReqToMetadataIdxAllocator,
    TransferBackend,
)
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.runtime_context import get_parallel

RESERVED_DECODE_TOKENS = 16


def single_rank(stack: ExitStack) -> None:
    """Be the only rank of a node; a CPU tensor has no stream."""
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group(
            "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
        )
    stack.enter_context(
        patch.object(torch.Tensor, "record_stream", lambda self, stream: None)
    )
    ranks = dict.fromkeys(("tp_rank", "pp_rank", "dp_rank", "attn_tp_rank"), 0)
    sizes = dict.fromkeys(("tp_size", "pp_size", "attn_tp_size"), 1)
    fields = ranks | sizes | dict(attn_tp_group=SimpleNamespace(cpu_group=None))
    parallel = get_parallel()
    known = {name: v for name, v in fields.items() if hasattr(type(parallel), name)}
    stack.enter_context(parallel.override(**known))


def counts_whole_pages() -> bool:
    """Whether a resumption counts the pages that it takes. v0.5.16 and v0.5.17 count
    tokens, and die where two requests that resume in one step find one page."""
    counted = DecodePreallocQueue._prealloc_required_tokens
    return "page_size" in inspect.getsource(counted)


def add_decode_queues(
    scheduler: Scheduler, fixture: SpecDecodeRig, max_reqs: int
) -> None:
    """Give ``scheduler`` what ``init_disaggregation`` gives to a decode node."""
    model_runner = scheduler.tp_worker.model_runner
    model_runner.swa_max_total_num_tokens = fixture.allocator.size_swa
    model_runner.kv_cache_dtype_str = "float16"
    scheduler.tp_worker.is_hybrid_swa = scheduler.is_hybrid_swa
    scheduler.future_map = fixture.algorithm.create_future_map(
        torch.device("cpu"), fixture.req_to_token_pool
    )
    vars(scheduler).update(
        kv_checksum_computer=None,
        random_seed=0,
        running_mbs=[],
        schedule_stream=torch.cpu.current_stream(),
        forward_stream=torch.cpu.current_stream(),
    )
    known = dict(
        req_to_token_pool=fixture.req_to_token_pool,
        token_to_kv_pool_allocator=fixture.allocator,
        draft_token_to_kv_pool=None,
        req_to_metadata_buffer_idx_allocator=ReqToMetadataIdxAllocator(2 * max_reqs),
        metadata_buffers=MetadataBuffers(
            2 * max_reqs,
            hidden_size=1,
            hidden_states_dtype=torch.float16,
            max_sampling_mask_tokens=0,
        ),
        scheduler=scheduler,
        tree_cache=fixture.tree_cache,
        gloo_group=None,
        tp_rank=0,
        tp_size=1,
        dp_size=1,
        pp_rank=0,
        gpu_id=0,
        bootstrap_port=0,
        max_total_num_tokens=fixture.allocator.size_full,
        num_reserved_decode_tokens=RESERVED_DECODE_TOKENS,
        transfer_backend=TransferBackend.FAKE,
    )
    known["transfer_queue"] = _make(DecodeTransferQueue, known)
    scheduler.disagg_decode_transfer_queue = known["transfer_queue"]
    scheduler.disagg_decode_prealloc_queue = _make(DecodePreallocQueue, known)


def _make(cls: type, known: dict[str, Any]):
    wanted = inspect.signature(cls).parameters
    return cls(**{name: known[name] for name in wanted})
