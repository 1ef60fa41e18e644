"""Who owns each slot: exactly one of the free list, the tree, a request, a holder."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sglang.test.kits.spec_decode_kit import SpecDecodeRig

# isort: split
from sglang.srt.managers.schedule_batch import Req
from sglang.srt.mem_cache.base_prefix_cache import EvictParams

from . import state


def check_ownership(
    fixture: SpecDecodeRig,
    reqs: Iterable[Req],
    held_full: Iterable[int] = (),
    held_swa: Iterable[int] = (),
) -> None:
    """Check both pools, page by page.

    Args:
        fixture: the pools and the prefix cache.
        reqs: every request that may hold KV.
        held_full, held_swa: slots that were taken out of the pools.

    Raises:
        AssertionError: a page has no owner or several; or the mapping from full
            to SWA slots leads from a free slot, or twice to one SWA slot.
    """
    page_size = fixture.page_size
    allocator = fixture.allocator
    owners = _Owners(allocator.size_full // page_size, "full")
    full_free = state.free_pages(allocator.full_attn_allocator)
    owners.add("the free list", full_free)
    owners.add("a holder", _pages(held_full, page_size))
    owners.add(
        "the prefix cache", _pages(state.tree_slots(fixture.tree_cache), page_size)
    )
    for req in reqs:
        if state.holds_kv(req):
            slots = state.row_slots(req, fixture.req_to_token_pool.req_to_token)
            own = slots[state.cache_protected_len(req) :]
            owners.add(req.rid, _pages(own, page_size))
    owners.check()

    mapping = allocator.full_to_swa_index_mapping.numpy()[:-1]
    mapped = np.flatnonzero(mapping)
    swa_slots = mapping[mapped]
    twice = len(swa_slots) - len(np.unique(swa_slots))
    assert not twice, f"{twice} SWA slots are mapped from two full slots"
    dangling = np.isin(mapped // page_size, full_free)
    assert not dangling.any(), f"free full slots are mapped: {mapped[dangling][:8]}"
    owners = _Owners(allocator.size_swa // page_size, "SWA")
    owners.add("the free list", state.free_pages(allocator.swa_attn_allocator))
    owners.add("a holder", _pages(held_swa, page_size))
    owners.add("the mapping", _pages(swa_slots, page_size))
    owners.check()


def check_window(fixture: SpecDecodeRig, req: Req) -> None:
    """Check that every key that the next forward of ``req`` may read is there, and
    that nothing is left where its cursor has passed.

    Raises:
        AssertionError: it is not so.
    """
    slots = state.row_slots(req, fixture.req_to_token_pool.req_to_token)
    mapped = fixture.allocator.full_to_swa_index_mapping.numpy()[slots] > 0
    window = fixture.tree_cache.sliding_window_size
    read_from = max(0, state.kv_committed_len(req) - window)
    missing = read_from + np.flatnonzero(~mapped[read_from:])
    assert not len(missing), (
        f"{req.rid}: SWA evicted inside the window, positions {missing[:8]} of "
        f"{state.kv_committed_len(req)} committed and {len(slots)} allocated"
    )
    cursor = state.swa_evicted_len(req)
    left = np.flatnonzero(mapped[state.cache_protected_len(req) : cursor])
    assert not len(left), f"{req.rid}: SWA mapped behind its cursor {cursor}"
    assert (
        cursor % fixture.page_size == 0
    ), f"{req.rid}: its cursor {cursor} cuts a page"


def check_empty(fixture: SpecDecodeRig) -> None:
    """Check that, apart from what the prefix cache keeps, everything is free, and
    that the cache can give all of it back.

    Raises:
        AssertionError: something is left.
    """
    rows = fixture.req_to_token_pool
    assert rows.available_size() == rows.size, f"{rows.available_size()} rows free"
    check_ownership(fixture, ())
    cache = fixture.tree_cache
    locked = (cache.full_protected_size(), cache.swa_protected_size())
    assert locked == (0, 0), f"{locked} full and SWA tokens locked in the cache"
    allocator = fixture.allocator
    sizes = (allocator.size_full, allocator.size_swa)
    cache.evict(EvictParams(num_tokens=sizes[0], swa_num_tokens=sizes[1]))
    free = (allocator.full_available_size(), allocator.swa_available_size())
    assert free == sizes, f"of {sizes} full and SWA tokens {free} are free"


class _Owners:
    """The owners of the pages 1 to ``count`` of one pool; page 0 is padding."""

    def __init__(self, count: int, pool: str) -> None:
        self._pool = pool
        self._claims: list[tuple[str, np.ndarray]] = []
        self._owners = np.zeros(count + 1, dtype=np.int64)

    def add(self, owner: str, pages: np.ndarray) -> None:
        self._claims.append((owner, pages))
        np.add.at(self._owners, pages, 1)

    def check(self) -> None:
        assert not self._owners[0], f"{self._pool}: the padding page is owned"
        wrong = np.flatnonzero(self._owners[1:] != 1) + 1
        if not len(wrong):
            return
        page = wrong[0]
        names = [owner for owner, pages in self._claims if (pages == page).any()]
        raise AssertionError(
            f"{self._pool}: {len(wrong)} pages have no owner or several; page "
            f"{page} belongs to {' and to '.join(names) or 'nobody'}"
        )


def _pages(slots: Iterable[int], page_size: int) -> np.ndarray:
    slots = np.asarray(slots, dtype=np.int64)
    return np.unique(slots // page_size)
