"""Which goes first under every cache, page size and interval: dead slots or prefixes.

A check that is short of SWA beside a tree that could cover the shortage visits a
request exactly when it owns enough dead tokens in whole pages, and each visit frees.
"""

import unittest
from itertools import product
from unittest.mock import patch

from sglang.srt.environ import envs
from sglang.srt.managers.schedule_batch import ScheduleBatch
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.kits.spec_decode_caches import prefix_cache_kinds, swa_evicted_len
from sglang.test.kits.spec_retract_kit import RetractTestCase, leave_swa

register_cpu_ci(est_time=30, suite="base-a-test-cpu")

ACCEPTED = 4


class TestEvictionOrderMatrix(RetractTestCase):
    def fill_tree(self, rig, tokens):
        """Cache prompts until the tree can give back ``tokens`` SWA tokens."""
        while rig.tree_cache.swa_evictable_size() < tokens:
            self.cached += 1
            req = rig.make_req(prompt_len=512, rid="cached", first_token=self.cached)
            rig.start([req])
            rig.release(req)

    def check_visits(self, rig, batch, worth):
        """One memory check with no free slot; the requests that it evicts from."""
        page_size = rig.page_size
        keep = max(rig.tree_cache.sliding_window_size, page_size)
        dead = {
            req.rid: (req.seqlen - 1 - keep) // page_size * page_size
            - max(swa_evicted_len(req), 8 // page_size * page_size)
            for req in batch.reqs
        }
        before = {req.rid: swa_evicted_len(req) for req in batch.reqs}
        visited, evict = [], ScheduleBatch._evict_swa

        def record(batch, req, *args, **kwargs):
            visited.append(req.rid)
            evict(batch, req, *args, **kwargs)

        with patch.object(ScheduleBatch, "_evict_swa", record):
            self.assertTrue(batch.check_decode_mem())
        expected = [rid for rid, tokens in dead.items() if tokens >= worth]
        self.assertEqual(visited, expected)
        for req in batch.reqs:
            moved = swa_evicted_len(req) != before[req.rid]
            self.assertEqual(moved, req.rid in expected)
        return visited

    def run_until_visited(self, *, cache, page_size, window, interval):
        rig = self.make_rig(
            cache=cache,
            page_size=page_size,
            sliding_window=window,
            full_size=1 << 15,
            swa_size=1 << 14,
        )
        self.cached = 100
        batch = rig.start(
            [rig.make_req(prompt_len=8, rid=rid, first_token=ord(rid)) for rid in "ab"]
        )
        worth = max(1, interval // 8)
        visits, waits = 0, 0
        while visits < 3:
            needed = batch.new_tokens_required_next_decode()
            if needed:
                self.fill_tree(rig, needed)
                taken = leave_swa(rig, 0)
                if self.check_visits(rig, batch, worth):
                    visits += 1
                else:
                    waits += 1
                rig.allocator.swa_attn_allocator.free(taken)
            with patch.object(ScheduleBatch, "maybe_evict_swa", lambda batch: None):
                rig.step(batch, accepted=ACCEPTED)
        self.assertGreater(waits, 0)

    def test_matrix(self):
        for cache, (page_size, window), interval in product(
            prefix_cache_kinds()[1:],
            ((1, 32), (16, 32), (64, 128), (256, 128)),
            (8, 128, 512),
        ):
            options = dict(page_size=page_size, window=window, interval=interval)
            with self.subTest(cache=cache, **options):
                with envs.SGLANG_SWA_EVICTION_INTERVAL.override(interval):
                    self.run_until_visited(cache=cache, **options)


if __name__ == "__main__":
    unittest.main()
