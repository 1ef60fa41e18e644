"""What an engine is made of, as the release's settings and environment."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import Any

import msgspec

from . import target

_BACKUP = "disaggregation_decode_retraction_backup"


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """What a scheduler is made of.

    Attributes:
        algorithm: of speculative decoding; empty for none.
        cache: ``unified``, the default of hybrid models in every release; ``radix``,
            the older tree of v0.5.16 to v0.5.20; or ``chunk``, no prefix cache.
        full_size, swa_size: slots of the two pools.
        eviction_interval: SGLANG_SWA_EVICTION_INTERVAL.
        new_token_ratio: the share of a request's output that admission sets aside.
        new_tokens: the most of a request's output that admission reckons with.
        disaggregation: ``null``, or ``decode`` with the fake transfer backend.
    """

    algorithm: str = "DSPARK"
    cache: str = "unified"
    page_size: int = 1
    overlap: bool = True
    full_size: int = 1600
    swa_size: int = 400
    eviction_interval: int = 16
    draft_tokens: int = 6
    max_reqs: int = 16
    new_token_ratio: float = 0.01
    new_tokens: int = 4096
    chunked_prefill_size: int = 4096
    disaggregation: str = "null"

    def settings(self, model: Path, known: Container[str]) -> dict[str, Any]:
        """Its server arguments, but for those of the tokenizer.

        Args:
            model: the target's folder; the draft's is made beside it.
            known: the names of the release's settings.
        """
        fields = dict(
            model_path=str(model),
            load_format="dummy",
            device="cpu",
            dtype="float32",
            attention_backend="torch_native",
            max_total_tokens=self.full_size,
            swa_full_tokens_ratio=self.swa_size / self.full_size,
            page_size=self.page_size,
            max_running_requests=self.max_reqs,
            chunked_prefill_size=self.chunked_prefill_size,
            # Nothing is to follow from the memory that the machine has left.
            mem_fraction_static=0.5,
            disable_cuda_graph=True,
            disable_overlap_schedule=not self.overlap,
            disable_radix_cache=self.cache == "chunk",
            random_seed=0,
            disaggregation_mode=self.disaggregation,
        )
        if self.algorithm:
            fields |= dict(
                speculative_algorithm=self.algorithm,
                speculative_draft_model_path=str(target.write_draft(model)),
                speculative_num_draft_tokens=self.draft_tokens,
            )
        if self.disaggregation == "decode":
            fields |= dict(
                disaggregation_transfer_backend="fake",
                # The default sets aside more than a tiny pool has.
                num_reserved_decode_tokens=16,
            )
            if _BACKUP in known:
                # The pinned host pool wants a GPU.
                fields[_BACKUP] = "cpu_tensor"
        return fields

    def environment(self) -> dict[str, str]:
        """Its environment variables."""
        return dict(
            SGLANG_SWA_EVICTION_INTERVAL=str(self.eviction_interval),
            SGLANG_INIT_NEW_TOKEN_RATIO=str(self.new_token_ratio),
            SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION=str(self.new_tokens),
            # Upstream's own checks, after every step and at rest.
            SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY="1",
            SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE="True",
            SGLANG_CHECK_KV_PAGE_INVARIANTS="True",
            # The other core is a Rust extension that no wheel for a CPU carries.
            SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND="python",
        )
