"""SWA slots that are freed within a free group are those that were mapped then.

The results of one prefill batch are processed in one group. There a request can
give back the SWA slots that its prompt no longer needs, and the next one, which
shares the prompt, bring fresh ones for the same full slots.
"""

import unittest

import torch

from sglang.srt.mem_cache.common import maybe_cache_unfinished_req
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.kits.spec_decode_kit import SpecDecodeTestCase

# isort: split
from sglang.srt.mem_cache.base_prefix_cache import EvictParams

register_cpu_ci(est_time=10, suite="base-a-test-cpu")

WINDOW = 16


class TestSwaFreeGroup(SpecDecodeTestCase):
    def process_results(self, page_size, cache):
        """Two requests of one prefill batch, the first longer by a window: it runs
        on, and the other ends at once."""
        rig = self.make_rig(page_size=page_size, cache=cache, sliding_window=WINDOW)
        running = rig.make_req(prompt_len=8 * WINDOW, rid="running")
        ends = rig.make_req(prompt_len=4 * WINDOW + 1, rid="ends")
        rig.prefill([running, ends])
        row = rig.req_to_token_pool.req_to_token[running.req_pool_idx]
        slots = row[: 8 * WINDOW].clone()
        rig.allocator.free_group_begin()
        for req in (running, ends):
            req.output_ids.append(1)
        maybe_cache_unfinished_req(running, rig.tree_cache)
        rig.release(ends)
        rig.allocator.free_group_end()
        return rig, running, slots

    def test_the_shared_prefix_keeps_the_slots_of_the_last_to_bring_them(self):
        for cache in ("radix", "unified"):
            for page_size in (1, 16):
                with self.subTest(cache=cache, page_size=page_size):
                    rig, _, slots = self.process_results(page_size, cache)
                    # The window at the end of the request that ended.
                    window = slots[3 * WINDOW : 4 * WINDOW]
                    swa_slots = rig.allocator.translate_loc_from_full_to_swa(window)
                    self.assertTrue((swa_slots > 0).all())
                    free = rig.allocator.swa_attn_allocator.alloc(
                        rig.allocator.swa_available_size()
                    )
                    self.assertFalse(torch.isin(swa_slots, free).any())

    def test_the_pools_balance(self):
        for cache in ("radix", "unified"):
            for page_size in (1, 16):
                with self.subTest(cache=cache, page_size=page_size):
                    rig, running, _ = self.process_results(page_size, cache)
                    rig.release(running)
                    everything = rig.allocator.size_full
                    rig.tree_cache.evict(
                        EvictParams(num_tokens=everything, swa_num_tokens=everything)
                    )
                    self.assertEqual((rig.full_used(), rig.swa_used()), (0, 0))

    def test_a_group_frees_at_its_end_and_once(self):
        for page_size in (1, 16):
            with self.subTest(page_size=page_size):
                rig = self.make_rig(page_size=page_size, sliding_window=WINDOW)
                req = rig.make_req(prompt_len=4 * WINDOW)
                rig.prefill([req])
                slots = rig.req_to_token_pool.req_to_token[req.req_pool_idx]
                rig.allocator.free_group_begin()
                for end in (WINDOW, 2 * WINDOW):
                    rig.allocator.free_swa(slots[:end])
                self.assertEqual(rig.swa_used(), 4 * WINDOW)
                rig.allocator.free_group_end()
                self.assertEqual(rig.swa_used(), 2 * WINDOW)


if __name__ == "__main__":
    unittest.main()
