"""Where SGLang releases differ, for the speculative decoding kit.

One place asks for the feature, never for the version: the prefix caches that a
hybrid-SWA model can use, where a request keeps its lengths, and how its KV is
cached and released.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Optional

from sglang.srt.managers.schedule_batch import Req
from sglang.srt.mem_cache import common
from sglang.srt.mem_cache.cache_init_params import CacheInitParams


def _find(*names: str):
    """The first of ``module:attribute`` that exists, or None."""
    for name in names:
        module, attribute = name.split(":")
        try:
            found = importlib.import_module(f"sglang.srt.mem_cache.{module}")
        except ModuleNotFoundError:
            continue
        if hasattr(found, attribute):
            return getattr(found, attribute)
    return None


_CHUNK = _find("chunk_cache:ChunkCache")
_SWA_CHUNK = _find("chunk_cache:SWAChunkCache")
_SWA_RADIX = _find("swa_radix_cache:SWARadixCache")
_UNIFIED = _find("unified_radix_cache:UnifiedRadixCache")
_COMPONENT_TYPE = _find(
    "unified_cache.components:ComponentType",
    "unified_cache_components:ComponentType",
)


def prefix_cache_kinds() -> tuple[str, ...]:
    """The kinds that serve a hybrid-SWA model in this release: ``chunk`` shares
    no prefix; ``radix`` and ``unified`` do."""
    return ("chunk", *(["radix"] if _SWA_RADIX else []), "unified")


def make_prefix_cache(
    kind: str,
    req_to_token_pool,
    allocator,
    *,
    page_size: int,
    sliding_window: Optional[int],
):
    """A prefix cache of ``kind`` over the given pools; without a sliding window,
    the one for full attention alone.

    Raises:
        ValueError: this release has no such kind.
    """
    if kind not in prefix_cache_kinds():
        raise ValueError(f"{kind!r} is not one of {prefix_cache_kinds()}")
    has_swa = sliding_window is not None
    # Where the chunk caches are gone, the unified one with sharing off stands in.
    chunk = (_SWA_CHUNK if has_swa else _CHUNK) or _UNIFIED
    cls = {"chunk": chunk, "radix": _SWA_RADIX, "unified": _UNIFIED}[kind]
    params = CacheInitParams(
        disable=kind == "chunk",
        req_to_token_pool=req_to_token_pool,
        token_to_kv_pool_allocator=allocator,
        page_size=page_size,
        sliding_window_size=sliding_window,
    )
    if cls is _UNIFIED:
        swa = (_COMPONENT_TYPE.SWA,) if has_swa else ()
        params.tree_components = (_COMPONENT_TYPE.FULL, *swa)
    return cls(params)


def kv_committed_len(req: Req) -> int:
    """Tokens of ``req`` whose KV is final."""
    return _lengths(req).kv_committed_len


def set_kv_committed_len(req: Req, length: int) -> None:
    """Record that the KV of the first ``length`` tokens of ``req`` is final."""
    _lengths(req).kv_committed_len = length


def swa_evicted_len(req: Req) -> int:
    """Tokens at the head of ``req`` whose SWA slots were given back."""
    if hasattr(req.kv, "get_evicted_seqlen"):
        return req.kv.get_evicted_seqlen(_COMPONENT_TYPE.SWA)
    return req.kv.swa_evicted_seqlen


def _lengths(req: Req):
    return req.kv if hasattr(req.kv, "kv_committed_len") else req


def cache_unfinished_req(req: Req, tree_cache) -> None:
    """Offer the KV of a running ``req`` to the prefix cache."""
    if hasattr(common, "checkpoint_kv_cache"):
        common.checkpoint_kv_cache(req, tree_cache)
    else:
        common.maybe_cache_unfinished_req(req, tree_cache)


def release_finished_req(req: Req, tree_cache) -> None:
    """Give back everything ``req`` holds, its prefix staying in the cache."""
    if "checkpoint" in inspect.signature(common.release_kv_cache).parameters:
        common.release_kv_cache(req, tree_cache, checkpoint=True)
    else:
        common.release_kv_cache(req, tree_cache)
