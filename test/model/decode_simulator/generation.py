"""How much of the pools generations need: one alone, and equal ones at once."""

from __future__ import annotations

import msgspec

from .forward import acceptance
from .node import Node
from .node_task import NodeTask


class LongGeneration(NodeTask, frozen=True, kw_only=True, tag="long_generation"):
    """One request that never stops by itself, alone on the node.

    Attributes:
        prompt_len, max_new_tokens: in tokens.
        sample_every: output tokens between two samples of the pools.
    """

    prompt_len: int = 8
    max_new_tokens: int = 100_000
    sample_every: int = 1_000

    def run(self) -> dict:
        """Tokens, but for ``steps``, and ``outcome``: ``finished``, ``aborted`` or
        ``retracted``. The peaks are the most that was allocated after any step,
        ``swa_samples`` pairs of output tokens and SWA tokens allocated."""
        samples, swa_peak, full_peak, next_sample = [], 0, 0, 0
        with self.open() as node:
            req = node.submit(
                prompt_len=self.prompt_len, max_new_tokens=self.max_new_tokens
            )
            while not node.idle and not node.counters.retracted:
                node.turn()
                swa_used = node.swa_used()
                swa_peak = max(swa_peak, swa_used)
                full_peak = max(full_peak, node.full_used())
                if len(req.output_ids) >= next_sample:
                    samples.append((len(req.output_ids), swa_used))
                    next_sample += self.sample_every
            return dict(
                steps=node.counters.decode_steps,
                output_tokens=min(len(req.output_ids), self.max_new_tokens),
                outcome=_outcome(node, req.rid),
                swa_peak=swa_peak,
                full_peak=full_peak,
                swa_samples=samples,
            )


class Capacity(NodeTask, frozen=True, kw_only=True, tag="capacity"):
    """Equal requests with different prompts, submitted at once: so many, and the most
    that fit. ``max_reqs`` of the node is theirs."""

    requests: tuple[int, ...]
    prompt_len: int = 1_024
    max_new_tokens: int = 32_768

    def run(self) -> dict:
        """``together``, by number of requests; ``most`` that fit, and ``fails``, what
        became of one request more."""
        found = {requests: self._together(requests) for requests in self.requests}
        together = dict(found)
        requests = self._guess(self.requests[0], found)
        while True:
            if requests not in found:
                found[requests] = self._together(requests)
            if not found[requests]["fit"]:
                requests -= 1
            elif requests + 1 in found:
                break
            else:
                requests += 1
        return dict(together=together, most=requests, fails=found[requests + 1])

    def _together(self, requests: int) -> dict:
        """Whether they run together from the first step to the last: ``fit``, if none
        is retracted, aborted, or kept waiting while others decode their last token.

        It ends at the first retraction or abort. The peaks are in tokens, after any
        step.
        """
        swa_peak = full_peak = most_running = 0
        config = msgspec.structs.replace(self.node, max_reqs=requests)
        with Node(config, acceptance(self)) as node:
            for i in range(requests):
                node.submit(
                    prompt_len=self.prompt_len,
                    max_new_tokens=self.max_new_tokens,
                    rid=f"r{i}",
                    first_token=i,
                )
            counters = node.counters
            while not node.idle and not counters.retracted and not counters.aborted:
                batch = node.turn()
                most_running = max(most_running, len(batch.reqs) if batch else 0)
                swa_peak = max(swa_peak, node.swa_used())
                full_peak = max(full_peak, node.full_used())
                if counters.finished and node.scheduler.waiting_queue:
                    break
            return dict(
                steps=counters.decode_steps,
                fit=len(counters.finished) == requests,
                most_running=most_running,
                swa_peak=swa_peak,
                full_peak=full_peak,
            )

    def _guess(self, requests: int, found: dict[int, dict]) -> int:
        """How many would fill the fuller pool, by the peaks of a few."""
        shares = (
            found[requests]["full_peak"] / self.node.full_size,
            found[requests]["swa_peak"] / self.node.swa_size,
        )
        return int(requests / max(shares))


def _outcome(node: Node, rid: str) -> str:
    if rid in node.counters.finished:
        return "finished"
    return "aborted" if rid in node.counters.aborted else "retracted"
