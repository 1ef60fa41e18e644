"""The KV pools and allocators of a model, as small as they can be."""

from __future__ import annotations

import torch

from sglang.test.test_utils import maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.mem_cache.allocator import (  # noqa: E402
    PagedTokenToKVPoolAllocator,
    TokenToKVPoolAllocator,
)
from sglang.srt.mem_cache.allocator.swa import (  # noqa: E402
    SWATokenToKVPoolAllocator,
)
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool  # noqa: E402
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool  # noqa: E402


def make_swa_allocator(full_size: int, swa_size: int, page_size: int):
    """One full and one sliding-window layer; sizes in tokens, whole pages."""
    common = dict(page_size=page_size, dtype=torch.float16, device="cpu")
    kv_pool = SWAKVPool(
        size=full_size,
        size_swa=swa_size,
        head_num=1,
        head_dim=1,
        swa_attention_layer_ids=[0],
        full_attention_layer_ids=[1],
        token_to_kv_pool_class=MHATokenToKVPool,
        enable_memory_saver=False,
        **common,
    )
    return SWATokenToKVPoolAllocator(
        size=full_size, size_swa=swa_size, kvcache=kv_pool, need_sort=False, **common
    )


def make_full_allocator(size: int, page_size: int):
    """One full-attention layer; size in tokens, whole pages."""
    kv_pool = MHATokenToKVPool(
        size=size,
        page_size=page_size,
        dtype=torch.float16,
        head_num=1,
        head_dim=1,
        layer_num=1,
        device="cpu",
        enable_memory_saver=False,
    )
    common = dict(dtype=torch.float16, device="cpu", kvcache=kv_pool, need_sort=False)
    if page_size == 1:
        return TokenToKVPoolAllocator(size, **common)
    return PagedTokenToKVPoolAllocator(size, page_size=page_size, **common)
