"""A decode batch short of SWA slots gives back the dead ones before it retracts.

Between two evictions a request keeps up to an interval of tokens that have slid
out of its window. When the next step does not fit, they are freed, once, before
a request is retracted.
"""

import unittest
from unittest.mock import patch

from sglang.srt.environ import envs
from sglang.srt.managers.schedule_batch import ScheduleBatch
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.kits.features import HAS_DECODE_CAPACITY
from sglang.test.kits.spec_decode_caches import swa_evicted_len
from sglang.test.kits.spec_retract_kit import RetractTestCase, leave_swa
from sglang.test.kits.unified_swa_pool_kit import with_unified_pool

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

    if HAS_DECODE_CAPACITY:

        def test_allocator_is_told_of_the_requests(self):
            rig, batch = self.start("ab")
            leave_swa(rig, 0)
            kind, asked = type(rig.allocator), []
            check = kind.check_decode_capacity

            def watched(allocator, **question):
                asked.append(question)
                return check(allocator, **question)

            with patch.object(kind, "check_decode_capacity", watched):
                self.assertTrue(batch.check_decode_mem())
            for question in asked:
                self.assertEqual(question["requests"], batch.reqs)
                self.assertIs(question["spec_algorithm"], batch.spec_algorithm)

    def test_last_request_is_not_aborted(self):
        rig, batch = self.start("a")
        leave_swa(rig, 0)
        batch = rig.decode(batch)
        self.assertEqual(rig.aborts, [])
        self.assertEqual(batch.batch_size(), 1)

    def test_long_prompt_at_its_first_decode_steps(self):
        rig = self.make_rig(sliding_window=WINDOW, overlap=True)
        idle = rig.free_counts()
        batch = rig.start([rig.make_req(prompt_len=1000)])
        rig.step(batch)
        rig.process_result()
        self.assertEqual(batch.reqs[0].decode_batch_idx, 1)
        taken = leave_swa(rig, 0)
        batch = rig.decode(batch)
        self.assertEqual(rig.aborts, [])
        self.assertGreaterEqual(swa_evicted_len(batch.reqs[0]), 1000 - WINDOW)
        rig.process_result()
        rig.release(batch.reqs[0])
        rig.allocator.swa_attn_allocator.free(taken)
        self.assert_idle(rig, idle)

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
        rig = self.make_rig(sliding_window=WINDOW, overlap=True)
        req = rig.make_req(prompt_len=1000)
        batch = rig.start([req])
        leave_swa(rig, 0)
        self.assertFalse(batch.check_decode_mem())
        self.assertEqual(swa_evicted_len(req), 0)
        rig.process_result()
        self.assertEqual(req.decode_batch_idx, 0)
        self.assertTrue(batch.check_decode_mem())
        self.assertEqual(swa_evicted_len(req), 1000 - WINDOW)

    def test_request_without_kv_is_skipped(self):
        rig, batch = self.start("ab")
        rig.release(batch.reqs[1])
        leave_swa(rig, 0)
        # Without speculation the need does not depend on what is allocated.
        batch.spec_algorithm = SpeculativeAlgorithm.NONE
        evict = ScheduleBatch._evict_swa
        with patch.object(
            ScheduleBatch, "_evict_swa", autospec=True, side_effect=evict
        ) as visits:
            self.assertTrue(batch.check_decode_mem())
        self.assertEqual([call.args[1].rid for call in visits.mock_calls], ["a"])
        self.assertEqual(rig.allocator.swa_available_size(), FRONTIER - WINDOW)

    def test_cache_without_prefixes_retains_none(self):
        # Where prefixes are shared, a cache may retain a window behind a checkpoint.
        rig, batch = self.start("ab")
        leave_swa(rig, 0)
        with patch.object(
            rig.tree_cache, "swa_retain_floor", lambda req: 0, create=True
        ):
            self.assertTrue(batch.check_decode_mem())
        self.assertEqual(
            [swa_evicted_len(req) for req in batch.reqs], [FRONTIER - WINDOW] * 2
        )

    def test_step_that_fits_frees_nothing(self):
        rig, batch = self.start("ab")
        self.assertTrue(batch.check_decode_mem())
        self.assertEqual([swa_evicted_len(req) for req in batch.reqs], [0, 0])

    def test_full_attention_model_has_nothing_to_give(self):
        rig, batch = self.start("ab", hybrid_swa=False)
        rig.allocator.alloc(rig.allocator.available_size())
        self.assertFalse(batch.check_decode_mem())

    def test_full_attention_model_evicts_its_prefixes(self):
        rig, batch = self.start("ab", hybrid_swa=False, cache="unified")
        cached = rig.make_req(prompt_len=PROMPT_LEN, rid="c", first_token=200)
        rig.start([cached])
        rig.release(cached)
        rig.allocator.alloc(rig.allocator.available_size())
        self.assertTrue(batch.check_decode_mem())
        self.assertLess(rig.tree_cache.evictable_size(), PROMPT_LEN)

    def test_retraction_frees_no_slots_again(self):
        # Checks within retract_decode() name the requests that are left.
        rig, batch = self.start("abc")
        leave_swa(rig, 0)
        self.assertFalse(batch.check_decode_mem(selected_indices=[2, 0]))
        self.assertEqual(rig.allocator.swa_available_size(), 0)

    def test_retraction_is_preceded_by_one_pass(self):
        rig, batch = self.start("abcd")
        leave_swa(rig, 0)
        self.assertTrue(batch.check_decode_mem())
        # Nothing is dead any more, and two requests have to go.
        leave_swa(rig, 0)
        passes = []
        reclaim = getattr(ScheduleBatch, "_reclaim_swa", None)

        def record(batch, requests):
            passes.append([req.rid for req in requests])
            reclaim(batch, requests)

        with patch.object(ScheduleBatch, "_reclaim_swa", record, create=True):
            batch = rig.decode(batch, accepted=ACCEPTED)
        self.assertGreater(len(rig.retracted), 0)
        self.assertEqual(passes, [["a", "b", "c", "d"]])

    def test_second_pass_frees_nothing(self):
        rig, batch = self.start("ab")
        leave_swa(rig, 0)
        self.assertTrue(batch.check_decode_mem())
        leave_swa(rig, 0)
        before = rig.free_counts()
        with patch.object(ScheduleBatch, "_evict_swa") as evict:
            self.assertFalse(batch.check_decode_mem())
        evict.assert_not_called()
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

    def test_full_side_of_split_pools_gains_nothing(self):
        rig, batch = self.start("ab")
        full = rig.allocator.full_attn_allocator
        full.alloc(full.available_size())
        # The SWA side has just enough.
        leave_swa(rig, batch.new_tokens_required_next_decode())
        self.assertFalse(batch.check_decode_mem())
        self.assertEqual([swa_evicted_len(req) for req in batch.reqs], [0, 0])

    def test_one_slot_short(self):
        rig, batch = self.start("ab")
        leave_swa(rig, batch.new_tokens_required_next_decode() - 1)
        self.assertTrue(batch.check_decode_mem())
        self.assertEqual(
            [swa_evicted_len(req) for req in batch.reqs], [FRONTIER - WINDOW] * 2
        )

    def test_window_within_a_page(self):
        page_size = 2 * WINDOW
        rig = self.make_rig(sliding_window=WINDOW, page_size=page_size)
        batch = rig.start([rig.make_req(prompt_len=page_size)])
        # The next step needs a third page, and only the first is out of the window.
        with envs.SGLANG_SWA_EVICTION_INTERVAL.override(1000):
            while batch.reqs[0].seqlen < 2 * page_size - 2 * self.draft_tokens + 2:
                rig.step(batch)
        (req,) = batch.reqs
        self.assertIn(req.seqlen - 1, range(page_size + WINDOW, 2 * page_size))
        leave_swa(rig, 0)
        self.assertTrue(batch.check_decode_mem())
        self.assertEqual(swa_evicted_len(req), page_size)

    def test_full_side_of_a_unified_pool_borrows(self):
        with with_unified_pool():
            rig, batch = self.start("ab", full_size=4096, swa_size=4096)
        needed = 2 * ACCEPTED
        rig.allocator.alloc(rig.allocator.available_size() - needed + 1)
        # Either side has room, but they share it.
        self.assertGreaterEqual(rig.allocator.full_available_size(), needed)
        self.assertGreaterEqual(rig.allocator.swa_available_size(), needed)
        self.assertTrue(batch.check_decode_mem())
        rig.allocator.alloc(rig.allocator.available_size() - needed + 1)
        self.assertFalse(batch.check_decode_mem())


if __name__ == "__main__":
    unittest.main()
