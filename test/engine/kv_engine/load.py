"""The load: more requests at once than the sliding-window pool holds."""

from __future__ import annotations

import random

from .client import Request
from .target import VOCAB_SIZE


def overload(
    seed: int, requests: int = 8, shared: int = 0, gap: int = 0
) -> list[Request]:
    """Requests of 20 to 120 prompt tokens and 60 to 140 new ones.

    Args:
        shared: leading tokens that are the same in all prompts.
        gap: turns of the event loop between one arrival and the next.
    """
    rng = random.Random(seed)
    prefix = [rng.randrange(VOCAB_SIZE - 1) for _ in range(shared)]
    made = []
    for number in range(requests):
        length = rng.randint(20, 120)
        prompt = [rng.randrange(VOCAB_SIZE - 1) for _ in range(length)]
        made.append(
            Request(
                rid=f"r{number}",
                prompt=(*prefix, *prompt)[: max(length, shared)],
                new_tokens=rng.randint(60, 140),
                turn=number * gap,
            )
        )
    return made
