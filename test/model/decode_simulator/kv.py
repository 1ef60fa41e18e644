"""The KV of a full and a sliding-window layer: what each slot holds, and what each
forward finds there.

A token's KV depends on every token before it, and so does its tag here: requests may
share a slot if they agree up to it. A free slot is poisoned.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from sglang.test.kits.spec_decode_kit import SpecDecodeRig

# isort: split
from sglang.srt.managers.schedule_batch import Req, ScheduleBatch

from . import state

_POISON, _DRAFT = 0, 1
_BITS = (1 << 64) - 1


class _Text(msgspec.Struct):
    """What a request's slots hold: a tag for each token, and the next token."""

    retractions: int
    tags: np.ndarray
    next_token: int


class _Read(msgspec.Struct):
    """What the first slots of a request's row must hold, which a forward reads."""

    req: Req
    retractions: int
    row: int
    tags: np.ndarray
    extends: bool = False


class KV:
    """Writes and reads for the forwards of a node.

    Args:
        fixture: the pools and the request table.
        draft_tokens: the block that a decode step writes.

    Attributes:
        reads: slots that forwards read, each of them right.
    """

    def __init__(self, fixture: SpecDecodeRig, draft_tokens: int) -> None:
        self.reads = 0
        self._allocator = allocator = fixture.allocator
        self._page_size = fixture.page_size
        self._rows = fixture.req_to_token_pool.req_to_token.numpy()
        self._window = fixture.tree_cache.sliding_window_size
        self._draft_tokens = draft_tokens
        self._full = np.zeros(allocator.size_full + self._page_size, dtype=np.uint64)
        self._swa = np.zeros(allocator.size_swa + self._page_size, dtype=np.uint64)
        self._texts: dict[str, _Text] = {}
        self._in_flight: deque[list[_Read]] = deque()

    def extend(self, batch: ScheduleBatch, tokens: np.ndarray) -> None:
        """A prefill writes what it computes and reads all before that.

        Args:
            tokens: what it samples, one for each request.

        Raises:
            AssertionError: something that is read is free, or another token's.
        """
        self._poison()
        reads = []
        for req, row, end, length, token in zip(
            *self._of(batch), batch.extend_lens, tokens
        ):
            start, tags = end - length, _chain(_tokens(req)[:end])
            self._write(req, row, start, tags, int(token))
            reads.append(_Read(req, req.retraction_count, row, tags[:start], True))
        self._run(reads)

    def decode(
        self, batch: ScheduleBatch, accepted: Sequence[int], tokens: np.ndarray
    ) -> None:
        """A verify writes a block, keeps some of it, and reads all before the block.

        Args:
            accepted: how many tokens of the block are kept, for each request.
            tokens: what it puts out, a row for each request.

        Raises:
            AssertionError: as above.
        """
        self._poison()
        reads = []
        for req, row, end, kept, out in zip(*self._of(batch), accepted, tokens):
            text = self._text(req, row, end)
            # The last token that was put out begins the block.
            tags = _chain([text.next_token, *out[: kept - 1].tolist()], text.tags)
            drafts = self._rows[row, end + kept : end + self._draft_tokens]
            self._store(drafts, np.full(len(drafts), _DRAFT, dtype=np.uint64))
            self._write(req, row, end, tags, int(out[kept - 1]))
            reads.append(_Read(req, req.retraction_count, row, tags[:end]))
        self._run(reads)

    def land(self) -> None:
        """The result of the oldest forward is processed: until now it may have read.
        What it reads of a request that goes on is there, if in the slots of another
        that computed the same. Only SWARadixCache may evict, under the chunk that
        reads it, what the chunk before has put into the tree.

        Raises:
            AssertionError: as above.
        """
        for read in self._in_flight.popleft():
            if state.holds_kv(read.req) and _is_of(read, read.req):
                in_tree = state.cache_protected_len(read.req) if read.extends else 0
                self._check(read, in_tree)

    def _run(self, reads: list[_Read]) -> None:
        # After all writes: a slot that two requests hold shows.
        for read in reads:
            self._check(read)
            self.reads += len(read.tags)
        self._in_flight.append(reads)

    def _of(self, batch: ScheduleBatch):
        ends = batch.seq_lens.tolist()
        return batch.reqs, batch.req_pool_indices.tolist(), ends

    def _text(self, req: Req, row: int, end: int) -> _Text:
        text = self._texts.get(req.rid)
        if text is None or not _is_of(text, req):
            # From a prefill node, or from its copy on the host.
            tokens = _tokens(req)
            self._write(req, row, 0, _chain(tokens[:end]), tokens[end])
            text = self._texts[req.rid]
        assert len(text.tags) == end, f"{req.rid}: {end} tokens, not {len(text.tags)}"
        return text

    def _write(
        self, req: Req, row: int, start: int, tags: np.ndarray, next_token: int
    ) -> None:
        self._store(self._rows[row, start : len(tags)], tags[start:])
        self._texts[req.rid] = _Text(req.retraction_count, tags, next_token)

    def _store(self, slots: np.ndarray, tags: np.ndarray) -> None:
        self._full[slots] = tags
        self._swa[self._mapped(slots)] = tags

    def _check(self, read: _Read, start: int = 0) -> None:
        end = len(read.tags)
        slots = self._rows[read.row, :end]
        every, window = slice(start, end), slice(max(start, end - self._window), end)
        for name, found, tags in (
            ("full", self._full[slots[every]], read.tags[every]),
            ("SWA", self._swa[self._mapped(slots[window])], read.tags[window]),
        ):
            wrong = np.flatnonzero(found != tags)
            free = np.count_nonzero(found[wrong] == _POISON)
            assert not len(wrong), (
                f"{read.req.rid}: of {len(tags)} {name} slots that a forward reads, "
                f"{free} are free and {len(wrong) - free} hold another token"
            )

    def _mapped(self, slots: np.ndarray) -> np.ndarray:
        return self._allocator.full_to_swa_index_mapping.numpy()[slots]

    def _poison(self) -> None:
        """What is in a free list; slot 0 is what maps nowhere."""
        for cells, pool in (
            (self._full, self._allocator.full_attn_allocator),
            (self._swa, self._allocator.swa_attn_allocator),
        ):
            cells[0] = _POISON
            cells.reshape(-1, self._page_size)[state.free_pages(pool)] = _POISON


def _tokens(req: Req) -> list[int]:
    return [*req.origin_input_ids, *req.output_ids]


def _is_of(held: _Text | _Read, req: Req) -> bool:
    return held.retractions == req.retraction_count


def _chain(tokens: Iterable[int], before: np.ndarray | None = None) -> np.ndarray:
    """The tags of tokens that follow on those of ``before``."""
    tags = [] if before is None else before.tolist()
    tag = tags[-1] if tags else _DRAFT
    for token in tokens:
        tag = (tag * 6364136223846793005 + int(token) + 1442695040888963407) & _BITS
        tags.append(tag)
    return np.array(tags, dtype=np.uint64)
