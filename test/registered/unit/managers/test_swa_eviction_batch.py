"""The SWA slots of one eviction step go back together.

Every running request is evicted at the same decode step. A free of its own for
each would cost a chain of small kernels and a device sync per request.
"""

import unittest
from unittest.mock import patch

from sglang.srt.environ import envs
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.kits.spec_decode_caches import prefix_cache_kinds, swa_evicted_len
from sglang.test.kits.spec_retract_kit import RetractTestCase, leave_swa

register_cpu_ci(est_time=12, suite="base-a-test-cpu")

PROMPT_LEN = 40
WINDOW = 32
ACCEPTED = [2, 4, 6]


class TestEvictionBatch(RetractTestCase):
    def start(self, **options):
        rig = self.make_rig(sliding_window=WINDOW, **options)
        reqs = [
            rig.make_req(prompt_len=PROMPT_LEN, rid=rid, first_token=ord(rid))
            for rid in "abc"
        ]
        return rig, rig.start(reqs)

    def step_to_eviction(self, rig, batch):
        """Decode until the last step was the eviction step of the cadence."""
        while rig.forward_ct % envs.SGLANG_SWA_EVICTION_INTERVAL.get():
            rig.step(batch, accepted=ACCEPTED)
        rig.step(batch, accepted=ACCEPTED)

    def test_one_free_for_all_requests(self):
        for algorithm in ("EAGLE", "NGRAM", "DFLASH", "DSPARK"):
            with self.subTest(algorithm=algorithm):
                rig, batch = self.start(algorithm=algorithm)
                free_swa = rig.allocator.free_swa
                with patch.object(rig.allocator, "free_swa", wraps=free_swa) as frees:
                    self.step_to_eviction(rig, batch)
                self.assertEqual(frees.call_count, 1)
                (slots,), _ = frees.call_args
                freed = sum(swa_evicted_len(req) for req in batch.reqs)
                self.assertEqual(len(slots), freed)

    def test_step_without_dead_slots_frees_none(self):
        rig, batch = self.start(algorithm="EAGLE")
        self.step_to_eviction(rig, batch)
        free_swa = rig.allocator.free_swa
        with patch.object(rig.allocator, "free_swa", wraps=free_swa) as frees:
            batch.maybe_evict_swa()
            rig.step(batch, accepted=ACCEPTED)
        self.assertEqual(frees.call_count, 0)

    def test_each_request_keeps_its_window_alone(self):
        for cache in prefix_cache_kinds():
            for page_size in (1, 16):
                with self.subTest(cache=cache, page_size=page_size):
                    rig, batch = self.start(cache=cache, page_size=page_size)
                    for _ in range(3):
                        self.step_to_eviction(rig, batch)
                    self.assert_mapped_from_cursor(rig, batch)

    def assert_mapped_from_cursor(self, rig, batch):
        mapping = rig.allocator.full_to_swa_index_mapping
        held = 0
        for req in batch.reqs:
            slots = rig.req_to_token_pool.req_to_token[
                req.req_pool_idx, : req.kv.kv_allocated_len
            ]
            mapped = (mapping[slots.long()] > 0).tolist()
            start, cursor = req.cache_protected_len, swa_evicted_len(req)
            self.assertGreater(cursor, start)
            self.assertFalse(any(mapped[start:cursor]))
            self.assertTrue(all(mapped[cursor:]))
            pages = -(-len(mapped) // rig.page_size)
            held += pages * rig.page_size - cursor + sum(mapped[:start])
        self.assertEqual(rig.swa_used(), held)

    def test_reclaim_frees_once(self):
        rig, batch = self.start()
        for _ in range(4):
            rig.step(batch, accepted=ACCEPTED)
        leave_swa(rig, 0)
        free_swa = rig.allocator.free_swa
        with patch.object(rig.allocator, "free_swa", wraps=free_swa) as frees:
            self.assertTrue(batch.check_decode_mem())
        self.assertEqual(frees.call_count, 1)


if __name__ == "__main__":
    unittest.main()
