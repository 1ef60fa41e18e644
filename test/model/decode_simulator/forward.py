"""The one simulated part: what a forward accepts."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Protocol, Union

import numpy as np
import torch

from sglang.srt.managers.schedule_batch import Req, ScheduleBatch
from sglang.srt.managers.utils import GenerationBatchResult
from sglang.srt.speculative.draft_worker_common import make_draft_input_v2
from sglang.test.kits.spec_decode_kit import VOCAB_SIZE

from .config import NodeConfig
from .kv import KV

Accepted = Union[int, tuple[int, ...], None]

STOP_TOKEN = VOCAB_SIZE - 1
_TOKEN = 1
_BLOCK = 4096


class Acceptance(Protocol):
    """How many tokens of a request the next forward accepts, bonus included."""

    def __call__(self, req: Req) -> int: ...


class Uniform:
    """Uniform on ``[low, high]``. A request's draws depend on the seed and its id
    alone, so that they are the same wherever and with whomever it runs."""

    def __init__(self, seed: int, low: int = 1, high: int = 6) -> None:
        self._seed, self._low, self._high = seed, low, high
        self._draws: dict[str, Iterator[int]] = {}

    def __call__(self, req: Req) -> int:
        if req.rid not in self._draws:
            self._draws[req.rid] = self._stream(req.rid)
        return next(self._draws[req.rid])

    def _stream(self, rid: str) -> Iterator[int]:
        rng = np.random.default_rng([self._seed, zlib.crc32(rid.encode())])
        while True:
            yield from rng.integers(
                self._low, self._high, size=_BLOCK, endpoint=True
            ).tolist()


class Trace:
    """Recorded numbers, for each request from the start, and again at their end."""

    def __init__(self, accepted: Sequence[int]) -> None:
        self._accepted = accepted
        self._step: dict[str, int] = {}

    def __call__(self, req: Req) -> int:
        step = self._step.get(req.rid, 0)
        self._step[req.rid] = step + 1
        return self._accepted[step % len(self._accepted)]


def acceptance(task) -> Acceptance:
    """What the ``accepted`` of a task stands for: nothing for numbers uniform on 1
    to the node's ``draft_tokens``, one number for each step, or a trace of them.

    Raises:
        ValueError: it is no number that a block can have accepted.
    """
    most = task.node.draft_tokens
    if task.accepted is None:
        return Uniform(task.seed, 1, most)
    trace = (task.accepted,) if isinstance(task.accepted, int) else task.accepted
    if not trace or not all(1 <= accepted <= most for accepted in trace):
        raise ValueError(f"of {most} draft tokens {task.accepted} cannot be accepted")
    return Trace(trace)


class Pattern:
    """Numbers that differ from request to request, by their ids ``rNNN``, and with
    what is set.

    Attributes:
        first: of the request ``r000``, less one, modulo ``draft_tokens``.
    """

    def __init__(self, draft_tokens: int) -> None:
        self.first = 0
        self._draft_tokens = draft_tokens

    def __call__(self, req: Req) -> int:
        return 1 + (self.first + int(req.rid[1:])) % self._draft_tokens


class Forward:
    """Stands for ``run_batch``: counts the forward, and hands over the result and
    the next draft input, as the worker does.

    Args:
        accept: the acceptance, at most the node's ``draft_tokens``.
        config: the node's.
        kv: where it writes and reads, if that is to be seen.

    Attributes:
        count: forwards so far, ``forward_ct``.
        stop: ids of requests whose next accepted run ends with the stop token.
    """

    def __init__(
        self, accept: Acceptance, config: NodeConfig, kv: KV | None = None
    ) -> None:
        self.count = 0
        self.kv = kv
        self.stop: set[str] = set()
        self._accept = accept
        self._draft_tokens = config.draft_tokens
        self._overlap = config.overlap

    def run(self, batch: ScheduleBatch) -> GenerationBatchResult:
        """The forward of a prepared extend or decode batch."""
        self.count += 1
        batch.forward_iter = self.count
        bs = len(batch.reqs)
        accept_lens = None
        new_seq_lens = batch.seq_lens
        width = 1
        if batch.forward_mode.is_decode():
            accepted = [self._accept(req) for req in batch.reqs]
            accept_lens = torch.tensor(accepted)
            new_seq_lens = batch.seq_lens + accept_lens
            width = self._draft_tokens
        tokens = torch.full((bs * width,), _TOKEN)
        if self.stop:
            self._write_stop_tokens(batch, tokens, accept_lens, width)
        if self.kv and accept_lens is not None:
            self.kv.decode(batch, accepted, tokens.numpy().reshape(bs, width))
        elif self.kv:
            self.kv.extend(batch, tokens.numpy())
        draft_input = make_draft_input_v2(
            bonus_tokens=torch.full((bs,), _TOKEN), new_seq_lens=new_seq_lens
        )
        if self._overlap:
            draft_input.future_indices = batch.req_pool_indices
        batch.spec_info = draft_input
        batch.seq_lens = new_seq_lens
        batch.input_ids = None
        return GenerationBatchResult(
            next_token_ids=tokens,
            accept_lens=accept_lens,
            speculative_num_draft_tokens=width,
        )

    def _write_stop_tokens(self, batch, tokens, accept_lens, width: int) -> None:
        for i, req in enumerate(batch.reqs):
            if req.rid in self.stop:
                last = 0 if accept_lens is None else int(accept_lens[i]) - 1
                tokens[i * width + last] = STOP_TOKEN
                self.stop.discard(req.rid)
