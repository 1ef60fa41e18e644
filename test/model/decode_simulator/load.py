"""A sustained load: more requests than the pools hold, for a number of steps."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from sglang.srt.managers.schedule_batch import ScheduleBatch

from .dead import Dead, dead_swa
from .node import Node
from .node_task import NodeTask


class Load(NodeTask, frozen=True, kw_only=True, tag="load"):
    """Requests of mixed lengths, so many that some always wait.

    Lengths are drawn, uniformly and by ``seed``, from inclusive ranges of tokens.

    Attributes:
        decode_steps: how long it is kept up.
        waiting: requests to keep in the queue.
        prompt_len: of the part of a prompt that is its own.
        output_len: ``max_new_tokens``.
        shared_prefixes: different prefixes that prompts begin with; 0 for none.
        prefix_len: of each of them, in tokens.
        sample_every: decode steps between two samples.
    """

    decode_steps: int = 4_000
    waiting: int = 8
    prompt_len: tuple[int, int] = (64, 1_024)
    output_len: tuple[int, int] = (64, 1_024)
    shared_prefixes: int = 0
    prefix_len: int = 512
    sample_every: int = 50

    def run(self) -> dict:
        """What became of the load: ``dead_swa`` are the SWA tokens that were dead when
        a batch was about to give up requests, for each such batch; ``hit_rate`` is the
        part of all prompt tokens found in the prefix cache; ``mean_running`` is in
        requests per decode step; ``output_tokens`` were streamed to clients that got
        all of theirs; ``samples`` are totals, the last those of the whole run."""
        rng = random.Random(self.seed)
        samples: list[dict] = []
        running = 0
        lengths: dict[str, int] = {}
        with self.open() as node, _Retractions(node).watch() as retractions:
            counters = node.counters
            while counters.decode_steps < self.decode_steps:
                while len(node.scheduler.waiting_queue) < self.waiting:
                    req = self._submit(node, rng, len(lengths))
                    lengths[req.rid] = req.sampling_params.max_new_tokens
                batch = node.turn()
                if not batch or not batch.forward_mode.is_decode():
                    continue
                running += len(batch.reqs)
                retractions.decoded(batch)
                if counters.decode_steps % self.sample_every == 0:
                    samples.append(_sample(node))
            return dict(
                hit_rate=round(counters.hit_rate, 4),
                prefilled_tokens=counters.prefilled_tokens,
                mean_running=round(running / counters.decode_steps, 2),
                output_tokens=sum(lengths[rid] for rid in counters.finished),
                dead_swa=retractions.dead_swa,
                samples=samples,
            )

    def _submit(self, node: Node, rng: random.Random, number: int):
        own_len = rng.randint(*self.prompt_len)
        prefix = None
        if self.shared_prefixes:
            prefix = rng.randrange(self.shared_prefixes), self.prefix_len
        return node.submit(
            rid=f"r{number}",
            prompt_len=own_len,
            prefix=prefix,
            first_token=rng.randrange(1 << 30),
            max_new_tokens=rng.randint(*self.output_len),
        )


class _Retractions:
    """What is dead whenever a batch is about to give up requests.

    Attributes:
        dead_swa: per such batch.
    """

    def __init__(self, node: Node) -> None:
        self.dead_swa: list[Dead] = []
        self._node = node
        self._decoded: set[tuple[str, int]] = set()

    @contextmanager
    def watch(self) -> Iterator[_Retractions]:
        retract_decode = ScheduleBatch.retract_decode

        def watched(batch: ScheduleBatch, *args, **kwargs):
            self.dead_swa.append(self._dead(batch))
            return retract_decode(batch, *args, **kwargs)

        with patch.object(ScheduleBatch, "retract_decode", watched):
            yield self

    def decoded(self, batch: ScheduleBatch) -> None:
        """Note a decode step that ran."""
        self._decoded.update((req.rid, req.retraction_count) for req in batch.reqs)

    def _dead(self, batch: ScheduleBatch) -> Dead:
        scheduler = self._node.scheduler
        last = scheduler.last_batch.reqs if scheduler.last_batch else []
        chunked = [scheduler.chunked_req] if scheduler.chunked_req else []
        reqs = {req.rid: req for req in (*last, *chunked, *batch.reqs)}.values()
        decoding = [r for r in reqs if (r.rid, r.retraction_count) in self._decoded]
        others = [req for req in reqs if req not in decoding]
        return dead_swa(self._node.fixture, decoding, others)


def _sample(node: Node) -> dict:
    counters = node.counters
    return dict(
        decode_steps=counters.decode_steps,
        retracted=counters.retracted,
        aborted=len(counters.aborted),
        finished=len(counters.finished),
        reprefilled_tokens=counters.reprefilled_tokens,
        running=len(node.scheduler.running_batch.reqs),
        swa_used=node.swa_used(),
    )
