"""What a request and the pools hold, read alike from every release."""

from __future__ import annotations

from contextlib import AbstractContextManager
from unittest.mock import patch

import numpy as np
import torch

from sglang.test.kits.spec_decode_caches import swa_evicted_len
from sglang.test.kits.spec_decode_pools import make_swa_allocator

# isort: split
from sglang.srt.managers.schedule_batch import Req
from sglang.srt.mem_cache.memory_pool import KVCache
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool

from .config import NodeConfig

__all__ = ["swa_evicted_len"]


def kv_committed_len(req: Req) -> int:
    """Tokens of ``req`` whose KV is final."""
    holder = req.kv if hasattr(req.kv, "kv_committed_len") else req
    return holder.kv_committed_len


def holds_kv(req: Req) -> bool:
    """Whether ``req`` has a row of the request table, and slots in it."""
    if hasattr(req.kv, "holds_kv"):
        return req.kv.holds_kv
    return req.kv is not None


def kv_allocated_len(req: Req) -> int:
    """Tokens that have slots, the reserve of the next step among them."""
    return req.kv.kv_allocated_len


def prefix_len(req: Req) -> int:
    """Tokens before those that its last prefill computed."""
    return req.prefix_len if hasattr(req, "prefix_len") else len(req.prefix_indices)


def cache_protected_len(req: Req) -> int:
    """Tokens at the head of ``req`` whose slots the prefix cache owns."""
    holder = req.kv if hasattr(req.kv, "cache_protected_len") else req
    return holder.cache_protected_len


def row_slots(req: Req, req_to_token: torch.Tensor) -> np.ndarray:
    """The full-attention slots of ``req``, by position."""
    holder = req.kv if hasattr(req.kv, "req_pool_idx") else req
    return req_to_token.numpy()[holder.req_pool_idx, : kv_allocated_len(req)]


def retained_len(config: NodeConfig) -> int:
    """Tokens that a request keeps in SWA behind its last one: the window, and with
    a prefix cache whole pages of at least one."""
    if config.cache == "chunk":
        return config.sliding_window
    pages = -(-max(config.sliding_window, config.page_size) // config.page_size)
    return pages * config.page_size


def host_copy(req: Req):
    """The copy of its KV that ``req`` left on the host to resume from, or None."""
    for holder, name in (
        (req.kv, "retraction_backup"),
        (req, "retraction_backup"),
        (req, "kv_cache_cpu"),
    ):
        if getattr(holder, name, None) is not None:
            return getattr(holder, name)
    return None


def without_host_copy() -> AbstractContextManager:
    """Let the KV pools raise as the pool class that knows no host copy does."""
    return patch.object(SWAKVPool, "get_cpu_copy", KVCache.get_cpu_copy)


def loses_shared_swa() -> bool:
    """Whether SWA slots that are freed within a free group are looked up at its end:
    v0.5.18, where those are lost whose full slot a prefix cache maps anew before."""
    allocator = make_swa_allocator(8, 8, 1)
    slots = allocator.alloc(1)
    allocator.free_group_begin()
    allocator.free_swa(slots)
    mapped = bool(allocator.full_to_swa_index_mapping[slots].any())
    allocator.free_group_end()
    return mapped


def tree_slots(tree_cache) -> np.ndarray:
    """The full-attention slots that the prefix cache owns."""
    # Chunk caches own none, and SWARadixCache cannot flatten an empty tree.
    if not hasattr(tree_cache, "all_values_flatten"):
        return np.empty(0, dtype=np.int64)
    if not np.any(tree_cache.total_size()):
        return np.empty(0, dtype=np.int64)
    return tree_cache.all_values_flatten().numpy()


def free_pages(allocator) -> np.ndarray:
    """The free pages of one pool; slots where a page is one token."""
    lists = (allocator.free_pages, allocator.release_pages)
    return np.concatenate([pages.numpy() for pages in lists if pages is not None])
