"""SWA memory that is taken and that no running request will read again.

A page is dead when no slot of it will be read, it is not free, and the prefix cache
could not give it back at once: a request owns it, or holds a lock on it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np
import torch

from sglang.test.kits.spec_decode_kit import SpecDecodeRig

# isort: split
from sglang.srt.managers.schedule_batch import Req

from . import state


class Dead(msgspec.Struct, frozen=True, array_like=True):
    """Dead SWA tokens, in whole pages.

    Attributes:
        owned: in slots of a request's own.
        locked: in the prefix cache, under a request's lock.
    """

    owned: int
    locked: int


def dead_swa(
    fixture: SpecDecodeRig,
    decoding: Iterable[Req],
    prefilling: Iterable[Req] = (),
    taken: Iterable[torch.Tensor] = (),
) -> Dead:
    """What is dead now.

    Args:
        fixture: the pools and the prefix cache; nobody but these may hold slots.
        decoding: requests whose next forward reads a window.
        prefilling: requests whose prefill may still be writing: all of theirs counts
            as read.
        taken: SWA slots that a test has taken out of the pool.
    """
    page_size, allocator = fixture.page_size, fixture.allocator
    mapping = allocator.full_to_swa_index_mapping.numpy()
    count = allocator.size_swa // page_size + 1
    read, own = np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)

    def mark(pages: np.ndarray, slots: np.ndarray) -> None:
        pages[slots[slots > 0] // page_size] = True

    window = fixture.tree_cache.sliding_window_size
    for reqs, everything in ((decoding, False), (prefilling, True)):
        for req in reqs:
            if not state.holds_kv(req):
                continue
            slots = mapping[
                state.row_slots(req, fixture.req_to_token_pool.req_to_token)
            ]
            # Under overlap the forward in flight began one result earlier.
            known = min(req.seqlen - 1, state.kv_committed_len(req))
            read_from = 0 if everything else max(0, known - window)
            mark(read, slots[read_from:])
            mark(own, slots[state.cache_protected_len(req) :])
    held = np.ones(count, dtype=bool)
    held[0] = False
    held[state.free_pages(allocator.swa_attn_allocator)] = False
    for slots in taken:
        held[slots.numpy() // page_size] = False
    dead = held & ~read
    owned = int((dead & own).sum()) * page_size
    evictable = fixture.tree_cache.swa_evictable_size()
    locked = int(dead.sum()) * page_size - owned - evictable
    return Dead(owned=owned, locked=max(0, locked))
