"""Reclaiming dead SWA slots under every prefix cache, page size and algorithm.

A pass frees exactly what a request no longer reads, once; the pools are back where
they were when everything has finished.
"""

import unittest
from itertools import product

from sglang.srt.mem_cache.base_prefix_cache import EvictParams
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.kits.spec_decode_caches import prefix_cache_kinds, swa_evicted_len
from sglang.test.kits.spec_retract_kit import RetractTestCase, leave_swa

register_cpu_ci(est_time=60, suite="base-a-test-cpu")

ACCEPTED = 4
PROMPT_LEN = 12


class TestReclaimMatrix(RetractTestCase):
    # The cadence never comes: what is freed, the pass has freed.
    eviction_interval = 1 << 20

    def start(self, *, page_size: int, window: int, **options):
        """Three requests with three pages and a bit behind their windows."""
        rig = self.make_rig(page_size=page_size, sliding_window=window, **options)
        self.idle = rig.free_counts()
        reqs = [
            rig.make_req(prompt_len=PROMPT_LEN, rid=rid, first_token=ord(rid))
            for rid in "abc"
        ]
        batch = rig.start(reqs)
        steps = (window + 3 * max(page_size, 16)) // ACCEPTED + 2
        for _ in range(steps):
            rig.step(batch, accepted=ACCEPTED)
        return rig, batch

    def frontier(self, rig, req) -> int:
        """Where the SWA of ``req`` may end, in whole pages, never too far."""
        page_size, window = rig.page_size, rig.tree_cache.sliding_window_size
        # A cache that shares prefixes keeps a whole page behind, at least.
        keep = window if self.cache == "chunk" else max(window, page_size)
        return (req.seqlen - 1 - keep) // page_size * page_size

    def check_pass(self, **options):
        self.cache = options["cache"]
        rig, batch = self.start(**options)
        taken = leave_swa(rig, 0)
        reclaimable = self.reclaimable(rig)
        # A forward that accepted the whole reserve: the next step needs a page each.
        for req in batch.reqs:
            self.assertEqual(swa_evicted_len(req), 0)
        self.assertTrue(self.needs_memory(rig, batch))
        self.assertTrue(batch.check_decode_mem())
        gained = self.reclaimable(rig) - reclaimable
        for req in batch.reqs:
            evicted = swa_evicted_len(req)
            self.assertGreater(evicted, PROMPT_LEN)
            self.assertLessEqual(evicted, self.frontier(rig, req))
            self.assertGreater(evicted + 2 * rig.page_size, self.frontier(rig, req))
        # Prompts are dead as well, whether the requests own them or the tree does.
        self.assertEqual(gained, sum(swa_evicted_len(req) for req in batch.reqs))
        evictable = rig.tree_cache.swa_evictable_size()
        rig.tree_cache.evict(EvictParams(num_tokens=0, swa_num_tokens=evictable))
        more = leave_swa(rig, 0)
        self.assertFalse(batch.check_decode_mem())
        self.assertEqual(rig.allocator.swa_available_size(), 0)
        for slots in (taken, more):
            rig.allocator.swa_attn_allocator.free(slots)
        self.finish(rig, batch)

    def reclaimable(self, rig) -> int:
        """SWA slots that are free or that the tree would give back."""
        evictable = rig.tree_cache.swa_evictable_size()
        return rig.allocator.swa_available_size() + evictable

    def needs_memory(self, rig, batch) -> bool:
        """Decode until the next step has to allocate."""
        while not batch.new_tokens_required_next_decode():
            # Its allocation is there already.
            rig.step(batch, accepted=1)
        return True

    def finish(self, rig, batch):
        rig.process_result()
        for req in batch.reqs:
            rig.release(req)
        self.assert_idle(rig, self.idle)
        if self.cache == "chunk":
            mapping = rig.allocator.full_to_swa_index_mapping[:-1]
            self.assertEqual(int(mapping.count_nonzero()), 0)

    def test_page_1(self):
        for algorithm, cache, overlap in product(
            ("DSPARK", "DFLASH", "EAGLE"), prefix_cache_kinds(), (False, True)
        ):
            with self.subTest(algorithm=algorithm, cache=cache, overlap=overlap):
                self.check_pass(
                    algorithm=algorithm,
                    cache=cache,
                    overlap=overlap,
                    page_size=1,
                    window=32,
                )

    def test_page_64(self):
        for cache, window in product(prefix_cache_kinds(), (32, 64, 128)):
            with self.subTest(cache=cache, window=window):
                self.check_pass(cache=cache, page_size=64, window=window)

    def test_page_256(self):
        for cache, window in product(prefix_cache_kinds(), (128, 256)):
            with self.subTest(cache=cache, window=window):
                self.check_pass(
                    cache=cache, page_size=256, window=window, swa_size=1 << 14
                )

    def test_modes(self):
        for mode, cache in product(
            (ForwardMode.EXTEND, ForwardMode.MIXED, ForwardMode.PREBUILT),
            prefix_cache_kinds(),
        ):
            with self.subTest(mode=mode, cache=cache):
                rig, batch = self.start(cache=cache, page_size=1, window=32)
                leave_swa(rig, 0)
                batch.forward_mode = mode
                batch.prefix_lens = [0]
                self.assertTrue(batch.check_decode_mem())
                self.assertGreater(swa_evicted_len(batch.reqs[2]), PROMPT_LEN)


if __name__ == "__main__":
    unittest.main()
