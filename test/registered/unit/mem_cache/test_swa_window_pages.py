"""A prompt keeps a whole window of SWA in the tree, whatever the window's size.

What a request may free is cut down to whole pages, and so is what it caches:
between both a window must fit that is no whole number of pages.
"""

import itertools
import unittest

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.kits.spec_decode_caches import prefix_cache_kinds, swa_evicted_len
from sglang.test.kits.spec_decode_kit import SpecDecodeTestCase

# isort: split
from sglang.srt.environ import envs
from sglang.srt.mem_cache.base_prefix_cache import EvictParams

register_cpu_ci(est_time=15, suite="base-a-test-cpu")

PAGE = 16
# Less than a page, no whole pages, a token less than whole pages, whole pages.
WINDOWS = (5, 17, 20, 25, 31, 32)
# Around the ends of pages.
PROMPTS = (63, 64, 65, 79, 80, 90)


class TestSwaWindowPages(SpecDecodeTestCase):
    def setUp(self):
        super().setUp()
        # Some releases free at once what a prompt has outside its window, and
        # some only where they are told to.
        name = "SGLANG_OPT_UNIFIED_CACHE_FREE_OUT_OF_WINDOW_SLOTS"
        if hasattr(envs, name):
            frees_at_once = getattr(envs, name).override(True)
            frees_at_once.__enter__()
            self.addCleanup(frees_at_once.__exit__, None, None, None)

    def for_each_case(self, check):
        for cache, window, prompt_len in itertools.product(
            prefix_cache_kinds()[1:], WINDOWS, PROMPTS
        ):
            with self.subTest(cache=cache, window=window, prompt_len=prompt_len):
                rig = self.make_rig(cache=cache, page_size=PAGE, sliding_window=window)
                rig.frees_at_once = cache == "unified"
                check(rig, prompt_len)

    def test_a_cached_prompt_is_found_again(self):
        def check(rig, prompt_len):
            req = rig.make_req(prompt_len=prompt_len, rid="a")
            rig.start([req])
            if rig.frees_at_once:
                window = -(-rig.tree_cache.sliding_window_size // PAGE) * PAGE
                self.assertLessEqual(prompt_len - swa_evicted_len(req), window + PAGE)
            again = rig.make_req(prompt_len=prompt_len, rid="b")
            again.init_next_round_input(rig.tree_cache)
            found = (
                again.prefix_len
                if hasattr(again, "prefix_len")
                else len(again.prefix_indices)
            )
            # The last token of a prompt is always computed.
            self.assertEqual(found, (prompt_len - 1) // PAGE * PAGE)

        self.for_each_case(check)

    def test_the_pools_balance(self):
        def check(rig, prompt_len):
            for rids in ("a", "bc"):
                reqs = [rig.make_req(prompt_len=prompt_len, rid=rid) for rid in rids]
                batch = rig.start(reqs)
                for _ in range(10):
                    rig.step(batch, accepted=3)
                for req in reqs:
                    rig.release(req)
            everything = rig.allocator.size_full
            rig.tree_cache.evict(
                EvictParams(num_tokens=everything, swa_num_tokens=everything)
            )
            self.assertEqual((rig.full_used(), rig.swa_used()), (0, 0))

        self.for_each_case(check)


if __name__ == "__main__":
    unittest.main()
