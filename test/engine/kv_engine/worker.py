"""The stand-in for the model workers: forwards that write KV and read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np
import torch

from sglang.srt.managers.schedule_batch import Req, ScheduleBatch
from sglang.srt.managers.utils import GenerationBatchResult
from sglang.srt.speculative.base_spec_worker import BaseSpecWorker
from sglang.srt.speculative.draft_worker_common import make_draft_input_v2

from . import text
from .cells import Cells
from .reading import Read, Reader, WrongKV
from .reqs import row_of
from .target import VOCAB_SIZE


@dataclass
class Counts:
    """What the forwards did.

    Attributes:
        computed, hit: tokens that prefills computed, and found in the cache.
        again: of those computed, tokens that had been computed before.
    """

    prefills: int = 0
    decodes: int = 0
    computed: int = 0
    hit: int = 0
    again: int = 0


@dataclass
class Known:
    """What the worker knows of a request.

    Attributes:
        tokens: all of them, the last one without KV.
        computed: most tokens that have had KV.
        chunks: prefills so far.
        cut: where the last one left off, if it was only a chunk.
    """

    tokens: list[int]
    computed: int = 0
    chunks: int = 0
    cut: int = 0


class KVWorker(BaseSpecWorker):
    """Answers as the release's draft worker does, with target and draft in one.

    A forward writes its tokens' tags through the release's mapping and reads
    all that attention would; the next token is drawn from what it read. The
    draft knows the right tokens, and offers as many as a seeded draw says.

    Attributes:
        in_flight: what was read, by the id of the result, until that is processed.
    """

    # What the scheduler asks of the draft worker of a release.
    carries_confidence = False

    def __init__(self, *, target_worker: Any, **_: Any) -> None:
        super().__init__()
        self._target_worker = target_worker
        self._draft_worker = None
        self._known: dict[str, Known] = {}
        self.counts = Counts()
        self.in_flight: dict[int, list[Read]] = {}

    def get_confidence_budget_prepare(self) -> None:
        return None

    def block_accept_estimate_log_suffix(self) -> None:
        return None

    def prewarm_sampling(self) -> None:
        return None

    def attach(
        self, cells: Cells, *, window: int, draft_tokens: int, seed: int
    ) -> None:
        """Give it the memory, once there is one.

        Args:
            window: how far back a sliding layer sees, itself not counted.
            draft_tokens: tokens that a verify takes, the bonus among them.
            seed: of how many it accepts.
        """
        self.cells = cells
        self.reader = Reader(cells, window)
        self._draft_tokens = draft_tokens
        self._seed = seed

    def adopt(self, req: Req) -> None:
        """Take a request whose KV came from elsewhere."""
        known = self._known.setdefault(req.rid, Known([]))
        known.tokens = [*req.origin_input_ids, *req.output_ids]

    def forward_batch_generation(
        self, batch: ScheduleBatch, on_publish: Optional[Callable] = None, **_: Any
    ) -> GenerationBatchResult:
        self.cells.poison_free()
        reads: list[Read] = []
        forward = self._prefill if batch.forward_mode.is_extend() else self._decode
        result = forward(batch, reads)
        self.in_flight[id(result)] = reads
        if on_publish is not None:
            on_publish(result.new_seq_lens)
        return result

    def finish(self, result: GenerationBatchResult) -> None:
        """The result is about to be processed: the forward was in flight until now.

        A row whose result will be dropped is of no matter. Nor is a chunk when
        the next one, behind it on the stream, is on its way: the tree has what
        it read, and may evict it. A prefix cache that finds a request's tokens
        in its tree gives the request its own slots for them, and may free the
        request's.

        Raises:
            WrongKV: what it read is no longer there.
        """
        for read in self.in_flight.pop(id(result), ()):
            req = read.req
            if req.finished() or req.is_retracted:
                continue
            if read.chunk == self._known[req.rid].chunks:
                slots = self._row(row_of(req), len(read.full))
                self.reader.read_again(read, slots)

    def _prefill(self, batch: ScheduleBatch, reads: list) -> GenerationBatchResult:
        self.counts.prefills += 1
        inputs = batch.input_ids.tolist()
        bonus, at = [], 0
        for row, req in enumerate(batch.reqs):
            start, end = batch.prefix_lens[row], int(batch.seq_lens[row])
            tokens = [*req.origin_input_ids, *req.output_ids][:end]
            if tokens[start:] != inputs[at : at + end - start]:
                raise WrongKV(f"{req.rid}: the batch holds other tokens")
            at += end - start
            known = self._known.setdefault(req.rid, Known([]))
            known.tokens = tokens
            self._count(req, known, start, end)
            tags = text.tags_of(tokens)
            slots = self._row(int(batch.req_pool_indices[row]), end)
            self._write(slots, start, tags[start:])
            read = self.reader.plan(req, known.chunks, slots, start, tags)
            reads.append(read)
            full, swa = self.reader.read(read)
            tokens.append(text.next_token(full, swa[-self.reader.window - 1 :]))
            bonus.append(tokens[-1])
        return _result(batch.seq_lens.clone(), bonus, [[token] for token in bonus])

    def _count(self, req: Req, known: Known, start: int, end: int) -> None:
        self.counts.computed += end - start
        if known.cut != start:
            self.counts.hit += start
        whole = len(req.origin_input_ids) + len(req.output_ids)
        known.cut = end if end < whole else 0
        self.counts.again += max(0, min(end, known.computed) - start)
        known.computed = max(end, known.computed)
        known.chunks += 1

    def _decode(self, batch: ScheduleBatch, reads: list) -> GenerationBatchResult:
        self.counts.decodes += 1
        rows, accepts = [], []
        for row, (req, start, relayed) in enumerate(
            zip(batch.reqs, *self._relayed(batch))
        ):
            known = self._known[req.rid]
            if (start, relayed) != (len(known.tokens) - 1, known.tokens[-1]):
                raise WrongKV(
                    f"{req.rid}: {start} tokens and bonus {relayed} relayed, "
                    f"{len(known.tokens) - 1} and {known.tokens[-1]} expected"
                )
            most = self._draft_tokens
            accepted = text.accepted(self._seed, req.rid, start, most)
            slots = self._row(int(batch.req_pool_indices[row]), start + most)
            tags, said = self._verify(slots, known.tokens, accepted)
            read = self.reader.plan(req, known.chunks, slots, start, tags)
            self.reader.read(read)
            # What follows are rejected drafts; the next forward writes over them.
            reads.append(read.until(start + accepted))
            known.tokens += said
            known.computed = start + accepted
            rows.append(said + [0] * (most - accepted))
            accepts.append(accepted)
        lens = torch.tensor(accepts, dtype=torch.int32)
        bonus = [said[accepted - 1] for said, accepted in zip(rows, accepts)]
        return _result(batch.seq_lens + lens, bonus, rows, lens)

    def _relayed(self, batch: ScheduleBatch) -> tuple[list[int], list[int]]:
        """How many tokens of each request have KV, and the token that follows."""
        return batch.seq_lens.tolist(), batch.spec_info.bonus_tokens.tolist()

    def _verify(self, slots: np.ndarray, tokens: list[int], accepted: int):
        """Write a block and read it; its tags and the tokens that it says."""
        start = len(tokens) - 1
        tags = text.tags_of(tokens)
        said: list[int] = []
        for position in range(start, len(slots)):
            if position > start:
                # Right drafts while they are accepted, then ones that are wrong.
                right = position - start < accepted
                draft = said[-1] if right else (said[-1] + 1) % (VOCAB_SIZE - 1)
                tags.append(text.tag_after(tags[-1], draft))
            self._write(slots[: position + 1], position, tags[-1:])
            if position < start + accepted:
                first = max(0, position - self.reader.window)
                full, _ = self.cells.full.read(slots[: position + 1])
                swa = self.cells.translate(slots[first : position + 1])
                said.append(text.next_token(full, self.cells.swa.read(swa)[0]))
        return tags, said

    def _row(self, row: int, end: int) -> np.ndarray:
        table = self._target_worker.model_runner.req_to_token_pool.req_to_token
        return table[row, :end].numpy().astype(np.int64)

    def _write(self, slots: np.ndarray, start: int, tags: list[int]) -> None:
        self.cells.write(slots[start:], np.arange(start, len(slots)), tags)


def _result(new_seq_lens, bonus, rows, accepts=None) -> GenerationBatchResult:
    return GenerationBatchResult(
        next_token_ids=torch.tensor(rows, dtype=torch.int64).reshape(-1),
        accept_lens=accepts,
        speculative_num_draft_tokens=None if accepts is None else len(rows[0]),
        new_seq_lens=new_seq_lens,
        next_draft_input=make_draft_input_v2(
            bonus_tokens=torch.tensor(bonus, dtype=torch.int64),
            new_seq_lens=new_seq_lens,
        ),
    )
