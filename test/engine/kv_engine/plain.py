"""The stand-in for the target's worker when nothing is speculated."""

from __future__ import annotations

from typing import Any

from sglang.srt.managers.schedule_batch import ScheduleBatch
from sglang.srt.managers.utils import GenerationBatchResult

from .worker import KVWorker


class PlainWorker(KVWorker):
    """Says one token for each request and forward, and relays no draft."""

    def forward_batch_generation(
        self, batch: ScheduleBatch, *_: Any, **__: Any
    ) -> GenerationBatchResult:
        result = super().forward_batch_generation(batch)
        result.next_draft_input = result.new_seq_lens = None
        result.accept_lens = result.speculative_num_draft_tokens = None
        return result

    def _relayed(self, batch: ScheduleBatch) -> tuple[list[int], list[int]]:
        # The scheduler has counted the token that is computed now.
        return (batch.seq_lens - 1).tolist(), batch.input_ids.tolist()
