"""An overload: requests that all arrive at once, more than the pools hold."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from .config import NodeConfig
from .forward import Accepted, acceptance
from .node import Node


class Overload(msgspec.Struct, frozen=True, kw_only=True, tag="overload"):
    """Requests of different lengths, until all of them have ended.

    Attributes:
        requests: how many there are.
        prompt_len, output_len: the longest, in tokens; each is drawn, uniformly
            and by ``seed``, from half of it to all of it.
    """

    node: NodeConfig
    seed: int = 0
    accepted: Accepted = None
    requests: int = 96
    prompt_len: int = 64
    output_len: int = 600


class OverloadRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the requests, as counts.

    Attributes:
        died: the exception that ended the scheduler's loop, and every request that
            had not ended with it; empty if none did.
    """

    finished: int
    aborted: int
    retracted: int
    decode_steps: int
    reprefilled_tokens: int
    died: str


def overload(
    task: Overload, progress: Callable[[int, int], None] = lambda done, total: None
) -> OverloadRecord:
    """Serve them; progress is told in requests that have ended."""
    rng = random.Random(task.seed)
    died = ""
    with Node(task.node, acceptance(task)) as node:
        counters = node.counters
        for number in range(task.requests):
            node.submit(
                rid=f"r{number}",
                first_token=number * 2 + 1,
                prompt_len=rng.randint(task.prompt_len // 2, task.prompt_len),
                max_new_tokens=rng.randint(task.output_len // 2, task.output_len),
            )
        try:
            while not node.idle:
                node.turn()
                if counters.turns % 100 == 0:
                    ended = len(counters.finished) + len(counters.aborted)
                    progress(ended, task.requests)
        except Exception as error:
            # Whatever leaves the loop ends the server's process.
            died = f"{type(error).__name__}: {error}".splitlines()[0].rstrip(": ")
        return OverloadRecord(
            finished=len(counters.finished),
            aborted=len(counters.aborted),
            retracted=counters.retracted,
            decode_steps=counters.decode_steps,
            reprefilled_tokens=counters.reprefilled_tokens,
            died=died,
        )
