"""The stand-in for the model workers: forwards that write KV and read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Optional

import msgspec
import numpy as np
import torch

from sglang.srt.managers.schedule_batch import Req, ScheduleBatch
from sglang.srt.managers.utils import GenerationBatchResult
from sglang.srt.speculative.base_spec_worker import BaseSpecWorker
from sglang.srt.speculative.draft_worker_common import make_draft_input_v2

from . import text
from .cells import Cells
from .reqs import row_of
from .target import VOCAB_SIZE


class WrongKV(AssertionError):
    """A forward read, or would have read, KV that is not its request's."""


class Read(msgspec.Struct, frozen=True):
    """What a row of a batch read.

    Attributes:
        chunk: how many prefills the request has had, this one included.
        full, swa: slots of the positions from 0 and from ``window_from`` on.
        tags: the right ones, by position.
    """

    req: Any
    chunk: int
    full: np.ndarray
    swa: np.ndarray
    window_from: int
    tags: np.ndarray

    def until(self, end: int) -> Read:
        """The part of it before a position."""
        return msgspec.structs.replace(
            self,
            full=self.full[:end],
            swa=self.swa[: end - self.window_from],
            tags=self.tags[:end],
        )


@dataclass
class Counts:
    """What the forwards did.

    Attributes:
        read: cells read and found right.
        computed: prompt and output tokens that prefills computed, by request.
        hit: tokens that prefills found in the cache, likewise.
    """

    prefills: int = 0
    decodes: int = 0
    read: int = 0
    computed: dict[str, list[int]] = field(default_factory=dict)
    hit: dict[str, list[int]] = field(default_factory=dict)


class KVWorker(BaseSpecWorker):
    """Answers as the release's draft worker does, with target and draft in one.

    A forward writes its tokens' tags through the release's mapping and reads
    all that attention would; the next token is drawn from what it read. The
    draft knows the right tokens, and offers as many as a seeded draw says.
    """

    def __init__(self, *, target_worker: Any, **_: Any) -> None:
        super().__init__()
        self._target_worker = target_worker
        self._draft_worker = None
        self.counts = Counts()
        self.in_flight: dict[int, list[Read]] = {}
        self.seed = 0
        self._tokens: dict[str, list[int]] = {}
        self._chunks: dict[str, int] = {}

    # What the scheduler asks of the draft worker of a release.
    carries_confidence = False

    def get_confidence_budget_prepare(self) -> None:
        return None

    def block_accept_estimate_log_suffix(self) -> None:
        return None

    def prewarm_sampling(self) -> None:
        return None

    def attach(self, cells: Cells, window: int, draft_tokens: int) -> None:
        """Give it the memory, once there is one.

        Args:
            window: how far back a sliding layer sees, itself not counted.
            draft_tokens: tokens that a verify takes, the bonus among them.
        """
        self.cells = cells
        self.window = window
        self.draft_tokens = draft_tokens

    def adopt(self, req: Req) -> None:
        """Take a request whose KV came from elsewhere."""
        self._tokens[req.rid] = [*req.origin_input_ids, *req.output_ids]

    def forward_batch_generation(
        self,
        batch: ScheduleBatch,
        on_publish: Optional[Callable] = None,
        **_: Any,
    ) -> GenerationBatchResult:
        self.cells.poison_free()
        reads: list[Read] = []
        if batch.forward_mode.is_extend():
            result = self._prefill(batch, reads)
        else:
            result = self._decode(batch, reads)
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
            if read.req.finished() or read.req.is_retracted:
                continue
            if read.chunk < self._chunks.get(read.req.rid, 0):
                continue
            slots = self._table[row_of(read.req), : len(read.full)]
            slots = slots.numpy().astype(np.int64)
            now = msgspec.structs.replace(
                read, full=slots, swa=self.cells.translate(slots[read.window_from :])
            )
            self._check(read, "lost in flight", now)

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
            self.counts.computed.setdefault(req.rid, []).append(end - start)
            self.counts.hit.setdefault(req.rid, []).append(start)
            self._chunks[req.rid] = self._chunks.get(req.rid, 0) + 1
            tags = text.tags_of(tokens)
            slots = self._slots(batch, row, end)
            self._write(slots, start, tags[start:])
            read = self._read(req, slots, start, tags)
            reads.append(read)
            full, window = self._check(read, "read")
            tokens.append(text.next_token(full, window[-self.window - 1 :]))
            self._tokens[req.rid] = tokens
            bonus.append(tokens[-1])
        return self._result(batch.seq_lens.clone(), bonus, [[t] for t in bonus], None)

    def _decode(self, batch: ScheduleBatch, reads: list) -> GenerationBatchResult:
        self.counts.decodes += 1
        rows, accepts = [], []
        relayed = batch.spec_info.bonus_tokens.tolist()
        for row, req in enumerate(batch.reqs):
            start = int(batch.seq_lens[row])
            tokens = self._tokens[req.rid]
            if (start, relayed[row]) != (len(tokens) - 1, tokens[-1]):
                raise WrongKV(
                    f"{req.rid}: {start} tokens and bonus {relayed[row]} relayed, "
                    f"{len(tokens) - 1} and {tokens[-1]} expected"
                )
            accepted = text.accepted(self.seed, req.rid, start, self.draft_tokens)
            said = self._verify(batch, row, start, accepted, reads)
            rows.append(said + [0] * (self.draft_tokens - accepted))
            accepts.append(accepted)
        lens = torch.tensor(accepts, dtype=torch.int32)
        bonus = [said[accepted - 1] for said, accepted in zip(rows, accepts)]
        return self._result(batch.seq_lens + lens, bonus, rows, lens)

    def _verify(self, batch, row: int, start: int, accepted: int, reads) -> list[int]:
        req = batch.reqs[row]
        tokens = self._tokens[req.rid]
        end = start + self.draft_tokens
        slots = self._slots(batch, row, end)
        tags = text.tags_of(tokens)
        said: list[int] = []
        for position in range(start, end):
            if position > start:
                # Right drafts while they are accepted, then ones that are wrong.
                right = position - start < accepted
                draft = said[-1] if right else (said[-1] + 1) % (VOCAB_SIZE - 1)
                tags.append(text.tag_after(tags[-1], draft))
            self._write(slots[: position + 1], position, tags[-1:])
            if position < start + accepted:
                first = max(0, position - self.window)
                full, _ = self.cells.full.read(slots[: position + 1])
                swa = self.cells.translate(slots[first : position + 1])
                window, _ = self.cells.swa.read(swa)
                said.append(text.next_token(full, window))
        read = self._read(req, slots, start, tags)
        # What follows are rejected drafts; the next forward writes over them.
        reads.append(read.until(start + accepted))
        tokens += said
        return said

    def _slots(self, batch: ScheduleBatch, row: int, end: int) -> np.ndarray:
        slots = self._table[int(batch.req_pool_indices[row]), :end]
        return slots.numpy().astype(np.int64)

    @property
    def _table(self) -> torch.Tensor:
        return self._target_worker.model_runner.req_to_token_pool.req_to_token

    def _write(self, slots: np.ndarray, start: int, tags: list[int]) -> None:
        self.cells.write(slots[start:], np.arange(start, len(slots)), tags)

    def _read(self, req: Req, slots: np.ndarray, start: int, tags: list[int]) -> Read:
        """Read and check all that the queries from ``start`` on see."""
        first = max(0, start - self.window)
        read = Read(
            req,
            self._chunks.get(req.rid, 0),
            slots,
            self.cells.translate(slots[first:]),
            first,
            np.array(tags, dtype=np.uint64),
        )
        self._check(read, "read")
        return read

    def _check(self, read: Read, how: str, moved: Optional[Read] = None):
        """Its tags of both kinds, once they are known to be right.

        Args:
            moved: where the same tokens may be instead.
        """
        seen = []
        for kind, first in (("full", 0), ("swa", read.window_from)):
            tags, positions, wrong = self._wrong(read, kind, first)
            if moved and wrong.any():
                wrong &= self._wrong(moved, kind, first)[2]
            if wrong.any():
                at = int(np.argmax(wrong))
                raise WrongKV(
                    f"{read.req.rid}: {kind} KV of position {first + at} of "
                    f"{len(read.full)} {how}, {int(wrong.sum())} wrong, the first "
                    f"holds position {int(positions[at])}"
                )
            self.counts.read += len(tags)
            seen.append(tags)
        return seen

    def _wrong(self, read: Read, kind: str, first: int):
        slots = getattr(read, kind)
        tags, positions = getattr(self.cells, kind).read(slots)
        wrong = tags != read.tags[first:]
        wrong |= positions != np.arange(first, first + len(slots))
        # Slot 0 is padding.
        return tags, positions, wrong | (slots <= 0)

    def _result(self, new_seq_lens, bonus, rows, accepts) -> GenerationBatchResult:
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
