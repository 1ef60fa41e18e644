"""What decode bookkeeping of EAGLE and NGRAM is, and must stay.

The dflash family is to be given the same bookkeeping; these tests hold the
algorithms that have it in place while that happens.
"""

import unittest
from unittest.mock import patch

from sglang.srt.managers.schedule_batch import ScheduleBatch
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.kits.spec_decode_kit import SpecDecodeTestCase
from sglang.test.kits.spec_decode_spies import record_decode_calls

register_cpu_ci(est_time=12, suite="base-a-test-cpu")

ALGORITHMS = ("EAGLE", "NGRAM")


class TestBaselineDecodeBookkeeping(SpecDecodeTestCase):
    def test_each_iteration_evicts_ticks_and_allocates_once(self):
        for algorithm in ALGORITHMS:
            with self.subTest(algorithm=algorithm):
                rig = self.make_rig(algorithm=algorithm)
                batch = rig.start([rig.make_req(rid="a", prompt_len=20)])
                for iteration in range(3):
                    with record_decode_calls(batch) as calls:
                        rig.step(batch)
                    names = [name for name, _ in calls]
                    self.assertEqual(names, ["evict", "alloc"])
                    self.assertEqual(calls[0], ("evict", [iteration]))
                    self.assertEqual(batch.reqs[0].decode_batch_idx, iteration + 1)

    def test_swa_use_stays_bounded(self):
        for algorithm in ALGORITHMS:
            with self.subTest(algorithm=algorithm):
                rig = self.make_rig(algorithm=algorithm, sliding_window=32)
                batch = rig.start([rig.make_req(prompt_len=20)])
                for _ in range(200):
                    rig.step(batch, accepted=4)
                    self.assertLessEqual(rig.swa_used(), rig.swa_bound(accepted=4))


class TestFullAttentionModel(SpecDecodeTestCase):
    def test_the_swa_path_is_never_entered(self):
        for algorithm in (*ALGORITHMS, "DFLASH", "DSPARK"):
            with self.subTest(algorithm=algorithm):
                rig = self.make_rig(algorithm=algorithm, hybrid_swa=False)
                batch = rig.start([rig.make_req(prompt_len=20)])
                with patch.object(
                    ScheduleBatch, "_evict_swa", side_effect=AssertionError("entered")
                ):
                    for _ in range(20):
                        rig.step(batch, accepted=4)
                # Every token stays: 20 of the prompt, 80 decoded, and the reserve.
                self.assertGreaterEqual(rig.full_used(), 100)


if __name__ == "__main__":
    unittest.main()
