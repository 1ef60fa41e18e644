"""A KV pool whose full and sliding-window layers share their bytes, on a CPU."""

from __future__ import annotations

from contextlib import AbstractContextManager
from unittest.mock import patch

import torch

from sglang.srt.mem_cache.unified_memory_pool import init_unified_swa_pools
from sglang.test.kits import spec_decode_kit


def with_unified_pool() -> AbstractContextManager:
    """Let rigs that are made meanwhile have one in place of two separate pools."""
    return patch.object(spec_decode_kit, "make_swa_allocator", make_unified_allocator)


def make_unified_allocator(full_size: int, swa_size: int, page_size: int):
    """One full and one sliding-window layer; sizes in tokens, whole pages."""
    bundle = init_unified_swa_pools(
        device="cpu",
        kv_cache_dtype=torch.float16,
        head_num=1,
        head_dim=8,
        v_head_dim=8,
        swa_head_num=1,
        swa_head_dim=8,
        swa_v_head_dim=8,
        page_size=page_size,
        start_layer=0,
        end_layer=2,
        swa_attention_layer_ids=[0],
        full_attention_layer_ids=[1],
        full_max_total_num_tokens=full_size,
        swa_max_total_num_tokens=swa_size,
        enable_memory_saver=False,
        need_sort=False,
    )
    return bundle.token_to_kv_pool_allocator
