"""The prefix caches that serve a hybrid-SWA model."""

from __future__ import annotations

from typing import Optional

from sglang.srt.managers.schedule_batch import Req
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.chunk_cache import ChunkCache, SWAChunkCache
from sglang.srt.mem_cache.swa_radix_cache import SWARadixCache
from sglang.srt.mem_cache.unified_radix_cache import ComponentType, UnifiedRadixCache
from sglang.test.kits.features import (
    HAS_CHUNK_CACHES,
    HAS_COMPONENT_CURSORS,
    HAS_SWA_RADIX_CACHE,
    HAS_TREE_CORE_OPTION,
)


def prefix_cache_kinds() -> tuple[str, ...]:
    """What :func:`make_prefix_cache` makes. Only ``chunk`` shares no prefix."""
    if HAS_SWA_RADIX_CACHE:
        return ("chunk", "radix", "unified")
    else:
        return ("chunk", "unified")


def make_prefix_cache(
    kind: str,
    req_to_token_pool,
    allocator,
    *,
    page_size: int,
    sliding_window: Optional[int],
):
    """A prefix cache of ``kind`` over the given pools; without a sliding window,
    the one for full attention alone."""
    has_swa = sliding_window is not None
    params = CacheInitParams(
        disable=kind == "chunk",
        req_to_token_pool=req_to_token_pool,
        token_to_kv_pool_allocator=allocator,
        page_size=page_size,
        sliding_window_size=sliding_window,
    )
    if HAS_CHUNK_CACHES:
        if kind == "chunk":
            return SWAChunkCache(params) if has_swa else ChunkCache(params)
    if HAS_SWA_RADIX_CACHE:
        if kind == "radix":
            return SWARadixCache(params)
    swa = (ComponentType.SWA,) if has_swa else ()
    params.tree_components = (ComponentType.FULL, *swa)
    if HAS_TREE_CORE_OPTION:
        # Whether another core is there depends on the machine.
        params.tree_core_backend = "python"
    return UnifiedRadixCache(params)


def swa_evicted_len(req: Req) -> int:
    """Tokens at the head of ``req`` whose SWA slots were given back."""
    if HAS_COMPONENT_CURSORS:
        return req.kv.get_evicted_seqlen(ComponentType.SWA)
    else:
        return req.kv.swa_evicted_seqlen
