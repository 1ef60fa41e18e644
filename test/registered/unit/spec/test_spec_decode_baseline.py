"""What decode bookkeeping of EAGLE and NGRAM is, and must stay.

Every iteration evicts once, allocates, and advances every request's decode clock
once.
"""

import unittest
from unittest.mock import patch

from sglang.srt.managers.schedule_batch import ScheduleBatch
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.kits.spec_decode_caches import prefix_cache_kinds
from sglang.test.kits.spec_decode_kit import SpecDecodeTestCase
from sglang.test.kits.spec_decode_spies import record_decode_calls

register_cpu_ci(est_time=12, suite="base-a-test-cpu")

ALGORITHMS = ("EAGLE", "NGRAM")
PROMPT_LEN = 20


class TestBaselineDecodeBookkeeping(SpecDecodeTestCase):
    def start(self, algorithm, **options):
        rig = self.make_rig(algorithm=algorithm, sliding_window=32, **options)
        reqs = [rig.make_req(rid=rid, prompt_len=PROMPT_LEN) for rid in "abc"]
        return rig, rig.start(reqs)

    def test_each_iteration_evicts_ticks_and_allocates_once(self):
        for algorithm in ALGORITHMS:
            with self.subTest(algorithm=algorithm):
                rig, batch = self.start(algorithm)
                for iteration in range(3):
                    with record_decode_calls(batch) as calls:
                        rig.step(batch)
                    self.assertEqual([name for name, _ in calls], ["evict", "alloc"])
                    self.assertEqual(calls[0], ("evict", [iteration] * 3))
                    clocks = [req.decode_batch_idx for req in batch.reqs]
                    self.assertEqual(clocks, [iteration + 1] * 3)

    def test_swa_use_stays_bounded(self):
        for algorithm in ALGORITHMS:
            for cache in prefix_cache_kinds():
                with self.subTest(algorithm=algorithm, cache=cache):
                    rig, batch = self.start(algorithm, cache=cache)
                    # A cache that shares prefixes may keep the prompts.
                    bound = 3 * (rig.swa_bound(accepted=4) + PROMPT_LEN)
                    for _ in range(100):
                        rig.step(batch, accepted=4)
                        self.assertLessEqual(rig.swa_used(), bound)
                    for req in batch.reqs:
                        rig.release(req)
                    cached = rig.tree_cache.swa_evictable_size()
                    self.assertEqual(rig.swa_used(), cached)


class TestFullAttentionModel(SpecDecodeTestCase):
    def test_the_swa_path_is_never_entered(self):
        entered = patch.object(
            ScheduleBatch, "_evict_swa", side_effect=AssertionError("entered")
        )
        for algorithm in (*ALGORITHMS, "DFLASH", "DSPARK"):
            for page_size in (1, 64):
                with self.subTest(algorithm=algorithm, page_size=page_size):
                    rig = self.make_rig(
                        algorithm=algorithm, page_size=page_size, hybrid_swa=False
                    )
                    batch = rig.start([rig.make_req(prompt_len=PROMPT_LEN)])
                    with entered:
                        for _ in range(20):
                            rig.step(batch, accepted=4)
                    # All of it stays, and the reserve of a step.
                    self.assertGreaterEqual(rig.full_used(), PROMPT_LEN + 20 * 4)


if __name__ == "__main__":
    unittest.main()
