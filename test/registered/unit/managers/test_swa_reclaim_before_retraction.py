"""A decode batch short of SWA slots gives back the dead ones first.

Between two evictions a request keeps up to an interval of tokens that have slid
out of its window. When the next step does not fit, these go before a cached
prefix is evicted and before a request is retracted.
"""

import unittest
from unittest.mock import patch

from sglang.srt.managers.schedule_batch import ScheduleBatch
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.kits.spec_decode_caches import prefix_cache_kinds, swa_evicted_len
from sglang.test.kits.spec_retract_kit import RetractTestCase, leave_swa

register_cpu_ci(est_time=15, suite="base-a-test-cpu")

PROMPT_LEN = 40
STEPS, ACCEPTED = 10, 4
# One token was sampled by the prefill, and the last one has no KV yet.
FRONTIER = PROMPT_LEN + STEPS * ACCEPTED
WINDOW = 32


class TestReclaimBeforeRetraction(RetractTestCase):
    eviction_interval = 64

    def start(self, rids: str, **options):
        """A batch of running requests, none of which the cadence evicts yet."""
        rig = self.make_rig(sliding_window=WINDOW, **options)
        reqs = [
            rig.make_req(prompt_len=PROMPT_LEN, rid=rid, first_token=ord(rid))
            for rid in rids
        ]
        batch = rig.start(reqs)
        for _ in range(STEPS):
            rig.step(batch, accepted=ACCEPTED)
        return rig, batch

    def test_dead_slots_prevent_retraction(self):
        rig, batch = self.start("ab")
        leave_swa(rig, 0)
        used = rig.swa_used()
        batch = rig.decode(batch, accepted=ACCEPTED)
        self.assertEqual([req.rid for req in batch.reqs], ["a", "b"])
        self.assertEqual([rig.retracted, rig.aborts], [[], []])
        freed, allocated = 2 * (FRONTIER - WINDOW), 2 * ACCEPTED
        self.assertEqual(rig.swa_used(), used - freed + allocated)

    def test_last_request_is_not_aborted(self):
        rig, batch = self.start("a")
        leave_swa(rig, 0)
        batch = rig.decode(batch)
        self.assertEqual(rig.aborts, [])
        self.assertEqual(batch.batch_size(), 1)

    def test_long_prompt_at_its_first_decode_steps(self):
        rig = self.make_rig(sliding_window=WINDOW, overlap=True)
        batch = rig.start([rig.make_req(prompt_len=1000)])
        rig.step(batch)
        rig.process_result()
        self.assertEqual(batch.reqs[0].decode_batch_idx, 1)
        leave_swa(rig, 0)
        batch = rig.decode(batch)
        self.assertEqual(rig.aborts, [])
        self.assertGreaterEqual(swa_evicted_len(batch.reqs[0]), 1000 - WINDOW)

    def test_any_forward_mode(self):
        # A batch about to decode may carry the mode of the extend it comes from.
        for mode in (ForwardMode.EXTEND, ForwardMode.MIXED, ForwardMode.PREBUILT):
            with self.subTest(mode=mode):
                rig, batch = self.start("ab")
                leave_swa(rig, 0)
                batch.forward_mode = mode
                self.assertTrue(batch.check_decode_mem())
                self.assertEqual(
                    rig.allocator.swa_available_size(), 2 * (FRONTIER - WINDOW)
                )

    def test_extend_in_flight_is_left_alone(self):
        rig, batch = self.start("ab")
        batch.reqs[0].decode_batch_idx = 0
        leave_swa(rig, 0)
        self.assertTrue(batch.check_decode_mem())
        self.assertEqual(
            [swa_evicted_len(req) for req in batch.reqs], [0, FRONTIER - WINDOW]
        )

    def test_request_without_kv_is_skipped(self):
        rig, batch = self.start("ab")
        rig.release(batch.reqs[1])
        leave_swa(rig, 0)
        # Without speculation the need does not depend on what is allocated.
        batch.spec_algorithm = SpeculativeAlgorithm.NONE
        self.assertTrue(batch.check_decode_mem())
        self.assertEqual(rig.allocator.swa_available_size(), FRONTIER - WINDOW)

    def test_step_that_fits_asks_no_more(self):
        rig, batch = self.start("ab")
        asked = AssertionError("the SWA side was looked at")
        with patch.object(rig.allocator, "swa_available_size", side_effect=asked):
            self.assertTrue(batch.check_decode_mem())
        self.assertEqual([swa_evicted_len(req) for req in batch.reqs], [0, 0])

    def test_full_attention_model_has_nothing_to_give(self):
        rig, batch = self.start("ab", hybrid_swa=False)
        rig.allocator.alloc(rig.allocator.available_size())
        self.assertFalse(batch.check_decode_mem())

    def test_only_selected_requests(self):
        rig, batch = self.start("abc")
        leave_swa(rig, 0)
        self.assertTrue(batch.check_decode_mem(selected_indices=[2, 0]))
        freed = FRONTIER - WINDOW
        self.assertEqual(
            [swa_evicted_len(req) for req in batch.reqs], [freed, 0, freed]
        )

    def test_second_pass_frees_nothing(self):
        rig, batch = self.start("ab")
        leave_swa(rig, 0)
        self.assertTrue(batch.check_decode_mem())
        leave_swa(rig, 0)
        before = rig.free_counts()
        self.assertFalse(batch.check_decode_mem())
        self.assertEqual(rig.free_counts(), before)

    def test_failed_pass_closes_its_free_group(self):
        rig, batch = self.start("ab")
        leave_swa(rig, 0)
        evict = ScheduleBatch._evict_swa

        def fail_on_b(batch, req, *args, **kwargs):
            if req.rid == "b":
                raise RuntimeError("b")
            evict(batch, req, *args, **kwargs)

        with patch.object(ScheduleBatch, "_evict_swa", fail_on_b):
            with self.assertRaisesRegex(RuntimeError, "^b$"):
                batch.check_decode_mem()
        self.assertEqual(rig.allocator.swa_available_size(), FRONTIER - WINDOW)
        self.assertTrue(batch.check_decode_mem())

    def test_full_side_may_borrow(self):
        # In a unified pool the two sides share their bytes.
        rig, batch = self.start("ab")
        full = rig.allocator.full_attn_allocator
        full.alloc(full.available_size())
        available = rig.allocator.swa_available_size()
        self.assertFalse(batch.check_decode_mem())
        self.assertEqual(
            rig.allocator.swa_available_size() - available, 2 * (FRONTIER - WINDOW)
        )


class TestReclaimBeforeTreeEviction(RetractTestCase):
    """Dead slots go before the prefixes that a later request could hit."""

    eviction_interval = 64
    worthwhile = eviction_interval // 8

    def start(self, *, cache: str, cached_len: int, frontier: int):
        """Two running requests beside two cached prompts; ``frontier`` tokens of
        each have their KV."""
        rig = self.make_rig(sliding_window=WINDOW, cache=cache)
        self.cached = dict(prompt_len=cached_len, first_token=200)
        for first_token in (150, 200):
            finished = rig.make_req(prompt_len=cached_len, first_token=first_token)
            rig.start([finished])
            rig.release(finished)
        prompt_len = frontier % ACCEPTED
        reqs = [
            rig.make_req(prompt_len=prompt_len, rid=rid, first_token=ord(rid))
            for rid in "ab"
        ]
        batch = rig.start(reqs)
        for _ in range(frontier // ACCEPTED):
            rig.step(batch, accepted=ACCEPTED)
        leave_swa(rig, 0)
        return rig, batch, rig.tree_cache.swa_evictable_size()

    def test_cached_prefix_is_kept(self):
        frontier = WINDOW + self.worthwhile + 3
        for cache in prefix_cache_kinds()[1:]:
            with self.subTest(cache=cache):
                rig, batch, evictable = self.start(
                    cache=cache, cached_len=60, frontier=frontier
                )
                self.assertGreater(evictable, 2 * ACCEPTED)
                self.assertTrue(batch.check_decode_mem())
                self.assertEqual(rig.tree_cache.swa_evictable_size(), evictable)
                again = rig.make_req(**self.cached, rid="again")
                self.assertEqual(rig.prefill([again]).prefix_lens, [59])

    def test_last_cached_tokens_are_kept(self):
        # The tree alone would not do, so that even a few dead tokens count.
        frontier = WINDOW + self.worthwhile - 1
        for cache in prefix_cache_kinds()[1:]:
            with self.subTest(cache=cache):
                rig, batch, evictable = self.start(
                    cache=cache, cached_len=3, frontier=frontier
                )
                self.assertLess(evictable, 2 * ACCEPTED)
                self.assertTrue(batch.check_decode_mem())
                self.assertEqual(rig.tree_cache.swa_evictable_size(), evictable)

    def test_pass_waits_until_it_is_worthwhile(self):
        # A tree that has filled the pool makes every step short: without a limit
        # each request would be visited at each step for a token or two.
        frontier = WINDOW + self.worthwhile - 1
        for cache in prefix_cache_kinds()[1:]:
            with self.subTest(cache=cache):
                rig, batch, evictable = self.start(
                    cache=cache, cached_len=60, frontier=frontier
                )
                batch = rig.decode(batch, accepted=ACCEPTED)
                self.assertEqual([swa_evicted_len(req) for req in batch.reqs], [0, 0])
                left = rig.tree_cache.swa_evictable_size()
                self.assertLess(0, left)
                self.assertLess(left, evictable)
                leave_swa(rig, 0)
                self.assertTrue(batch.check_decode_mem())
                self.assertEqual(rig.tree_cache.swa_evictable_size(), left)


if __name__ == "__main__":
    unittest.main()
