"""An overload: requests that all arrive at once, more than the pools hold."""

from __future__ import annotations

import random

from .node_task import NodeTask


class Overload(NodeTask, frozen=True, kw_only=True, tag="overload"):
    """Requests of different lengths, until all of them have ended.

    Attributes:
        requests: how many there are.
        prompt_len, output_len: the longest, in tokens; each is drawn, uniformly
            and by ``seed``, from half of it to all of it.
    """

    requests: int = 96
    prompt_len: int = 64
    output_len: int = 600

    def run(self) -> dict:
        """What became of the requests, as counts. ``died`` is the exception that
        ended the scheduler's loop, and every request that had not ended with it;
        empty if none did."""
        rng = random.Random(self.seed)
        died = ""
        with self.open() as node:
            counters = node.counters
            for number in range(self.requests):
                node.submit(
                    rid=f"r{number}",
                    first_token=number * 2 + 1,
                    prompt_len=rng.randint(self.prompt_len // 2, self.prompt_len),
                    max_new_tokens=rng.randint(self.output_len // 2, self.output_len),
                )
            try:
                while not node.idle:
                    node.turn()
            except Exception as error:
                # Whatever leaves the loop ends the server's process.
                died = f"{type(error).__name__}: {error}".splitlines()[0].rstrip(": ")
            return dict(
                finished=len(counters.finished),
                aborted=len(counters.aborted),
                retracted=counters.retracted,
                decode_steps=counters.decode_steps,
                reprefilled_tokens=counters.reprefilled_tokens,
                died=died,
            )
