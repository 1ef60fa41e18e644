"""What a request says: a function of the KV that its forwards read.

A token's tag stands for the tokens up to and including it, so that equal
prefixes have equal KV and nothing else has. The token that follows a position
is drawn from the tags that attention sees from there: all of them in the full
layers, and those of the window in the sliding ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .target import VOCAB_SIZE

TAG_BITS = 48
_MASK = (1 << TAG_BITS) - 1
_START = 0x9E3779B97F4A


def tag_after(tag: int, token: int) -> int:
    """The tag of a token, given that of the token before it."""
    value = (tag ^ (token + 1) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
    value = (value ^ value >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
    return (value ^ value >> 31) & _MASK


def tags_of(tokens: Sequence[int], before: int = _START) -> list[int]:
    """The tags of a sequence of tokens."""
    tags = []
    for token in tokens:
        before = tag_after(before, token)
        tags.append(before)
    return tags


def next_token(full: np.ndarray, window: np.ndarray) -> int:
    """The token that follows, given the tags that each kind of layer sees.

    The last token of the vocabulary ends a request, and is never drawn.
    """
    seen = (int(full.sum()) * 3 + int(window.sum()) * 5) & 0xFFFFFFFFFFFFFFFF
    return tag_after(seen & _MASK, 0) % (VOCAB_SIZE - 1)


def continued(prompt: Sequence[int], count: int, window: int) -> list[int]:
    """The tokens that follow a prompt, by definition and without any KV.

    Args:
        window: how far back a sliding layer sees, itself not counted.
    """
    tags = tags_of(prompt)
    tokens: list[int] = []
    for _ in range(count):
        seen = np.array(tags, dtype=np.uint64)
        tokens.append(next_token(seen, seen[-window - 1 :]))
        tags.append(tag_after(tags[-1], tokens[-1]))
    return tokens


def accepted(seed: int, rid: str, position: int, most: int) -> int:
    """How many tokens a verify that starts at a position accepts, bonus included."""
    return 1 + tags_of([seed, position, *rid.encode()])[-1] % most
