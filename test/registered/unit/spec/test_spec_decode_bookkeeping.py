"""DFLASH and DSPARK evict out-of-window SWA KV and tick the decode clock.

Every iteration evicts once, then ticks every request once. Eviction must see
the clock before the tick: at 0 the prefill may still be running under overlap.
"""

import unittest

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.kits.spec_decode_caches import swa_evicted_len
from sglang.test.kits.spec_decode_kit import SpecDecodeTestCase
from sglang.test.kits.spec_decode_spies import record_decode_calls

register_cpu_ci(est_time=12, suite="base-a-test-cpu")

ALGORITHMS = ("DFLASH", "DSPARK")


class TestDecodeClock(SpecDecodeTestCase):
    def start(self, algorithm):
        rig = self.make_rig(algorithm=algorithm)
        return rig, rig.start([rig.make_req(rid=rid, prompt_len=20) for rid in "abc"])

    def test_evicts_once_before_the_tick(self):
        for algorithm in ALGORITHMS:
            with self.subTest(algorithm=algorithm):
                rig, batch = self.start(algorithm)
                for iteration in range(3):
                    with record_decode_calls(batch) as calls:
                        rig.step(batch)
                    self.assertEqual([name for name, _ in calls], ["evict", "alloc"])
                    self.assertEqual(calls[0], ("evict", [iteration] * 3))

    def test_ticks_every_request_once_per_iteration(self):
        for algorithm in ALGORITHMS:
            with self.subTest(algorithm=algorithm):
                rig, batch = self.start(algorithm)
                for iteration in range(1, 31):
                    rig.step(batch, accepted=2)
                    clocks = [req.decode_batch_idx for req in batch.reqs]
                    self.assertEqual(clocks, [iteration] * 3)


class TestSwaEviction(SpecDecodeTestCase):
    # Evict at every iteration, so that only the clock decides.
    eviction_interval = 1

    def test_first_decode_under_overlap_keeps_the_prompt(self):
        for algorithm in ALGORITHMS:
            with self.subTest(algorithm=algorithm):
                rig = self.make_rig(
                    algorithm=algorithm, sliding_window=32, overlap=True
                )
                req = rig.make_req(prompt_len=200)
                batch = rig.start([req])
                rig.step(batch)
                self.assertEqual(swa_evicted_len(req), 0)
                rig.step(batch)
                # The prompt's 200 tokens less the window, less the one in flight.
                self.assertEqual(swa_evicted_len(req), 200 - 32)


class TestSwaUse(SpecDecodeTestCase):
    def test_stays_bounded_over_a_long_decode(self):
        for algorithm in ALGORITHMS:
            for page_size in (1, 64):
                with self.subTest(algorithm=algorithm, page_size=page_size):
                    rig = self.make_rig(algorithm=algorithm, page_size=page_size)
                    reqs = [rig.make_req(rid=rid, prompt_len=20) for rid in "ab"]
                    batch = rig.start(reqs)
                    bound = 2 * rig.swa_bound(accepted=4)
                    for _ in range(300):
                        rig.step(batch, accepted=4)
                        self.assertLessEqual(rig.swa_used(), bound)


if __name__ == "__main__":
    unittest.main()
