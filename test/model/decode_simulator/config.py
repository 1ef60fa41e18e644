"""What a simulated node is made of, as data."""

from __future__ import annotations

from typing import Optional

import msgspec


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A decode node. Sizes and lengths are in tokens.

    Attributes:
        full_size, swa_size: the two pools, whole pages.
        page_size: 1 to 256.
        sliding_window: of the model's sliding-window layers.
        cache: a kind from the kit's ``prefix_cache_kinds()``.
        algorithm: a ``SpeculativeAlgorithm`` name.
        draft_tokens: ``speculative_num_draft_tokens``, the block verified per step.
        overlap: whether a step's result is processed while the next one runs.
        disaggregation: ``null``, or ``decode`` for the decode side of a
            prefill/decode pair.
        host_copy: whether the KV pool can copy what it holds to the host; without,
            it raises NotImplementedError, as pools do that were never given it.
        eviction_interval: ``SGLANG_SWA_EVICTION_INTERVAL``.
        chunked_prefill_size: None for prompts in one piece.
        max_reqs, max_context_len: the request table's rows, and the longest
            prompt plus output in one of them.
    """

    full_size: int
    swa_size: int
    page_size: int = 256
    sliding_window: int = 128
    cache: str = "chunk"
    algorithm: str = "DSPARK"
    draft_tokens: int = 6
    overlap: bool = True
    disaggregation: str = "null"
    host_copy: bool = True
    eviction_interval: int = 128
    chunked_prefill_size: Optional[int] = None
    max_reqs: int = 8
    max_context_len: int = 131_072

    @property
    def row_len(self) -> int:
        """Columns of the request table: a decode step reserves past the end."""
        return self.max_context_len + 2 * self.draft_tokens + self.page_size
