"""Each running request is evicted at the pace of its own tokens.

Eviction comes with a decode step, and forwards are numbered across prefills and
decodes. A cadence that waits for certain numbers starves once prefills take them.
"""

import unittest
from unittest.mock import patch

from sglang.srt.managers.schedule_batch import ScheduleBatch
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.kits.spec_decode_caches import prefix_cache_kinds, swa_evicted_len
from sglang.test.kits.spec_decode_kit import SpecDecodeTestCase

register_cpu_ci(est_time=15, suite="base-a-test-cpu")

ALGORITHMS = ("EAGLE", "NGRAM", "DFLASH", "DSPARK")
WINDOW = 32
INTERVAL = 8
ACCEPTED = 4


class TestEvictionCadence(SpecDecodeTestCase):
    eviction_interval = INTERVAL

    def start(self, rids: str = "a", **options):
        rig = self.make_rig(sliding_window=WINDOW, **options)
        reqs = [
            rig.make_req(prompt_len=20, rid=rid, first_token=ord(rid)) for rid in rids
        ]
        return rig, rig.start(reqs)

    def prefill_another(self, rig):
        """A forward of another request, which is gone when this returns."""
        rig.process_result()
        req = rig.make_req(prompt_len=4, rid="other", first_token=200)
        rig.prefill([req])
        rig.process_result()
        rig.release(req)

    def test_prefills_do_not_postpone_it(self):
        for algorithm in ALGORITHMS:
            for overlap in (False, True):
                with self.subTest(algorithm=algorithm, overlap=overlap):
                    rig, batch = self.start(algorithm=algorithm, overlap=overlap)
                    bound = rig.swa_bound(accepted=ACCEPTED)
                    for _ in range(100):
                        while (rig.forward_ct + 1) % INTERVAL == 0:
                            self.prefill_another(rig)
                        rig.step(batch, accepted=ACCEPTED)
                        self.assertLessEqual(rig.swa_used(), bound)

    def test_requests_keep_their_own_pace(self):
        for cache in prefix_cache_kinds():
            with self.subTest(cache=cache):
                rig, batch = self.start("ab", cache=cache)
                cursors = [0, 0]
                for _ in range(60):
                    frontiers = [req.seqlen - 1 - WINDOW for req in batch.reqs]
                    rig.step(batch, accepted=[1, 5])
                    for i, frontier in enumerate(frontiers):
                        due = batch.reqs[i].decode_batch_idx > 1 and (
                            frontier >= cursors[i] + INTERVAL
                        )
                        if due:
                            # A prefix in the tree is not the request's to free.
                            protected = batch.reqs[i].cache_protected_len
                            cursors[i] = max(frontier, protected)
                    evicted = [swa_evicted_len(req) for req in batch.reqs]
                    self.assertEqual(evicted, cursors)
                self.assertGreater(min(cursors), 0)
                self.assertGreater(cursors[1], 4 * cursors[0])

    def test_less_than_a_page_is_not_looked_at(self):
        rig, batch = self.start(page_size=4 * INTERVAL)
        evict, visits = ScheduleBatch._evict_swa, []

        def visit(batch, req, *args):
            before = swa_evicted_len(req)
            evict(batch, req, *args)
            visits.append(swa_evicted_len(req) - before)

        with patch.object(ScheduleBatch, "_evict_swa", visit):
            for _ in range(100):
                rig.step(batch, accepted=ACCEPTED)
        self.assertEqual(set(visits), {4 * INTERVAL})
        self.assertGreater(len(visits), 10)

    def test_request_without_kv_is_skipped(self):
        rig, batch = self.start("ab")
        for _ in range(20):
            rig.step(batch, accepted=ACCEPTED)
        rig.release(batch.reqs[0])
        batch.reqs[1].output_ids.extend([1] * INTERVAL)
        before = swa_evicted_len(batch.reqs[1])
        batch.maybe_evict_swa()
        self.assertGreaterEqual(swa_evicted_len(batch.reqs[1]) - before, INTERVAL)


if __name__ == "__main__":
    unittest.main()
