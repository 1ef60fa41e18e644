"""Dead SWA slots of running requests go before cached prefixes.

A step that is short of SWA slots makes the tree evict prefixes that a later
request could hit. What running requests no longer read goes first, unless that
would mean an eviction per request and step for a token or two.
"""

import functools
import unittest
from unittest.mock import patch

from sglang.srt.environ import envs
from sglang.srt.managers.schedule_batch import ScheduleBatch
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.kits.spec_decode_caches import prefix_cache_kinds, swa_evicted_len
from sglang.test.kits.spec_retract_kit import RetractTestCase, leave_swa
from sglang.test.kits.unified_swa_pool_kit import with_unified_pool

register_cpu_ci(est_time=15, suite="base-a-test-cpu")

PROMPT_LEN = 4
ACCEPTED = 4
WINDOW = 32
INTERVAL = 64
WORTHWHILE = INTERVAL // 8


def each_cache(test):
    """Run a test with each cache that shares prefixes."""

    @functools.wraps(test)
    def run(self):
        for cache in prefix_cache_kinds()[1:]:
            with self.subTest(cache=cache):
                test(self, cache)

    return run


class TestReclaimBeforeTreeEviction(RetractTestCase):
    eviction_interval = INTERVAL

    def start(
        self,
        cache,
        *,
        dead,
        prompt_len=PROMPT_LEN,
        cached_len=60,
        taken=True,
        **options,
    ):
        """Two requests that own ``dead`` tokens out of their windows, beside two
        cached prompts and, if the rest is ``taken``, no free SWA slot."""
        rig = self.make_rig(sliding_window=WINDOW, cache=cache, **options)
        self.cached = dict(prompt_len=cached_len, first_token=200)
        for first_token in (150, 200):
            finished = rig.make_req(prompt_len=cached_len, first_token=first_token)
            rig.start([finished])
            rig.release(finished)
        reqs = [
            rig.make_req(prompt_len=prompt_len, rid=rid, first_token=ord(rid))
            for rid in "ab"
        ]
        batch = rig.start(reqs)
        steps, rest = divmod(WINDOW + dead, ACCEPTED)
        self.advance(rig, batch, *[ACCEPTED] * steps, rest)
        self.taken = leave_swa(rig, 0) if taken else None
        return rig, batch

    def advance(self, rig, batch, *accepted):
        """Decode, but leave all eviction to the memory check."""
        with patch.object(ScheduleBatch, "maybe_evict_swa", lambda batch: None):
            for tokens in filter(None, accepted):
                rig.step(batch, accepted=tokens)

    def evictable(self, rig):
        return rig.tree_cache.swa_evictable_size()

    def evicted(self, batch):
        return [swa_evicted_len(req) for req in batch.reqs]

    @each_cache
    def test_cached_prefix_is_kept(self, cache):
        rig, batch = self.start(cache, dead=WORTHWHILE)
        evictable = self.evictable(rig)
        self.assertGreater(evictable, 2 * ACCEPTED)
        self.assertTrue(batch.check_decode_mem())
        self.assertGreaterEqual(self.evictable(rig), evictable)
        self.assertEqual(self.evicted(batch), [PROMPT_LEN + WORTHWHILE] * 2)
        again = rig.make_req(**self.cached, rid="again")
        self.assertEqual(rig.prefill([again]).prefix_lens, [59])

    @each_cache
    def test_pass_waits_until_it_is_worthwhile(self, cache):
        rig, batch = self.start(cache, dead=WORTHWHILE - 1)
        evictable = self.evictable(rig)
        self.assertTrue(batch.check_decode_mem())
        self.assertEqual(self.evicted(batch), [0, 0])
        self.assertLess(self.evictable(rig), evictable)

    @each_cache
    def test_dead_tokens_count_from_the_last_eviction(self, cache):
        rig, batch = self.start(cache, dead=WORTHWHILE)
        batch = rig.decode(batch, accepted=ACCEPTED)
        self.assertEqual(self.evicted(batch), [PROMPT_LEN + WORTHWHILE] * 2)
        for dead in range(ACCEPTED, WORTHWHILE, ACCEPTED):
            leave_swa(rig, 0)
            batch = rig.decode(batch, accepted=ACCEPTED)
            self.assertEqual(self.evicted(batch), [PROMPT_LEN + WORTHWHILE] * 2)
        leave_swa(rig, 0)
        batch = rig.decode(batch, accepted=ACCEPTED)
        self.assertEqual(self.evicted(batch), [PROMPT_LEN + 2 * WORTHWHILE] * 2)

    @each_cache
    def test_only_whole_pages_count(self, cache):
        page_size, seen = 32, set()
        rig, batch = self.start(cache, dead=0, page_size=page_size, cached_len=256)
        for _ in range(2 * page_size // ACCEPTED):
            if batch.new_tokens_required_next_decode():
                dead = batch.reqs[0].seqlen - 1 - page_size
                self.assertEqual(self.visits(batch) != [], dead >= page_size)
                seen.add(dead >= page_size)
            rig.allocator.swa_attn_allocator.free(self.taken)
            self.advance(rig, batch, ACCEPTED)
            self.taken = leave_swa(rig, 0)
        self.assertEqual(seen, {False, True})

    def visits(self, batch):
        """The requests that the next memory check visits."""
        visited = []
        evict = ScheduleBatch._evict_swa

        def record(batch, req, *args, **kwargs):
            visited.append(req.rid)
            evict(batch, req, *args, **kwargs)

        with patch.object(ScheduleBatch, "_evict_swa", record):
            batch.check_decode_mem()
        return visited

    @each_cache
    def test_protected_prefix_is_not_owned(self, cache):
        rig, batch = self.start(cache, dead=2)
        prompt = rig.make_req(prompt_len=60, rid="long", first_token=1)
        rig.start([prompt])
        prompt.decode_batch_idx = 1
        prompt.output_ids.extend([1] * (WORTHWHILE + 7))
        batch.reqs = [*batch.reqs, prompt]
        self.assertEqual(self.visits(batch), [])

    @each_cache
    def test_own_prefix_is_spared_too(self, cache):
        # Its lock keeps the prefix for the next request that shares it.
        rig, batch = self.start(cache, dead=0, prompt_len=WINDOW)
        locked = rig.tree_cache.swa_protected_size()
        rig.allocator.swa_attn_allocator.free(self.taken)
        self.advance(rig, batch, *[ACCEPTED] * (WORTHWHILE // ACCEPTED))
        leave_swa(rig, 0)
        evictable = self.evictable(rig)
        self.assertTrue(batch.check_decode_mem())
        self.assertEqual(self.evicted(batch), [WINDOW + WORTHWHILE] * 2)
        self.assertEqual(rig.tree_cache.swa_protected_size(), locked)
        self.assertGreaterEqual(self.evictable(rig), evictable)

    @each_cache
    def test_last_cached_tokens_are_kept(self, cache):
        # The tree alone would not do, so that even a few dead tokens count.
        rig, batch = self.start(cache, dead=WORTHWHILE - 1, cached_len=2)
        evictable = self.evictable(rig)
        self.assertLess(evictable, batch.new_tokens_required_next_decode())
        self.assertEqual(self.passes(batch), [["a", "b"]])
        self.assertEqual(self.spared, [evictable])
        self.assertGreaterEqual(self.evictable(rig), evictable)
        self.assertEqual(self.evicted(batch), [PROMPT_LEN + WORTHWHILE - 1] * 2)

    @each_cache
    def test_retraction_is_preceded_by_one_pass(self, cache):
        rig, batch = self.start(cache, dead=0, cached_len=2)
        for _ in range(3):
            self.assertEqual(self.passes(batch), [["a", "b"]])
            leave_swa(rig, 0)
        self.assertFalse(batch.check_decode_mem())

    def passes(self, batch):
        """The requests of each pass that the next memory check makes, and as
        ``spared`` what the tree could still evict before each."""
        passes, reclaim = [], getattr(ScheduleBatch, "_reclaim_swa", None)
        self.spared = []

        def record(batch, requests, **kwargs):
            passes.append([req.rid for req in requests])
            self.spared.append(batch.tree_cache.swa_evictable_size())
            reclaim(batch, requests, **kwargs)

        with patch.object(ScheduleBatch, "_reclaim_swa", record, create=True):
            batch.check_decode_mem()
        return passes

    @each_cache
    def test_step_that_fits_visits_none(self, cache):
        rig, batch = self.start(cache, dead=2 * WORTHWHILE)
        needed = batch.new_tokens_required_next_decode()
        rig.allocator.swa_attn_allocator.free(self.taken[:needed])
        self.assertEqual(self.visits(batch), [])
        # One slot short is short.
        leave_swa(rig, needed - 1)
        self.assertEqual(self.visits(batch), ["a", "b"])

    @each_cache
    def test_tree_that_just_covers_the_shortage(self, cache):
        rig, batch = self.start(cache, dead=WORTHWHILE - 1, cached_len=2)
        shortage = self.evictable(rig)
        spared = batch.new_tokens_required_next_decode() - shortage
        rig.allocator.swa_attn_allocator.free(self.taken[:spared])
        self.assertEqual(self.visits(batch), [])

    @each_cache
    def test_nothing_dead_is_never_worth_a_pass(self, cache):
        for dead, passes in ((0, []), (1, [["a", "b"]])):
            rig, batch = self.start(cache, dead=dead)
            with envs.SGLANG_SWA_EVICTION_INTERVAL.override(4):
                self.assertEqual(self.passes(batch), passes)

    def test_unified_pool_gets_every_slot_before_retraction(self):
        with with_unified_pool():
            rig, batch = self.start(
                "unified",
                dead=WORTHWHILE - 1,
                cached_len=1,
                full_size=4096,
                swa_size=4096,
                taken=False,
            )
        allocator = rig.allocator
        needed = batch.new_tokens_required_next_decode()
        allocator.alloc(allocator.available_size() - 3)
        # The tree covers what the SWA side is short of, but the sides share that.
        shortage = needed - allocator.swa_available_size()
        self.assertGreater(shortage, 0)
        self.assertGreaterEqual(self.evictable(rig), shortage)
        self.assertTrue(batch.check_decode_mem())

    @each_cache
    def test_short_full_side_evicts_as_before(self, cache):
        rig, batch = self.start(cache, dead=2 * WORTHWHILE)
        full = rig.allocator.full_attn_allocator
        full.alloc(full.available_size())
        rig.allocator.swa_attn_allocator.free(self.taken)
        self.assertEqual(self.visits(batch), [])


if __name__ == "__main__":
    unittest.main()
