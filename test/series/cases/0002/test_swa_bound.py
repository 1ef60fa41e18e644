"""A long decode under every prefix cache and page size, in a pool that holds a
few windows: it is finished, or the pool fills and the allocator says so."""

import unittest

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.kits.spec_decode_caches import prefix_cache_kinds
from sglang.test.kits.spec_decode_kit import SpecDecodeTestCase

register_cpu_ci(est_time=20, suite="base-a-test-cpu")

STEPS = 600
ACCEPTED = 4
PROMPT = 20


class TestSwaBound(SpecDecodeTestCase):
    def decode(self, *, page_size: int, cache: str, algorithm: str, overlap: bool):
        rig = self.make_rig(
            algorithm=algorithm,
            cache=cache,
            page_size=page_size,
            overlap=overlap,
            swa_size=4 * max(page_size, 64),
        )
        req = rig.make_req(prompt_len=PROMPT)
        batch = rig.start([req])
        peak = 0
        for _ in range(STEPS):
            rig.step(batch, accepted=ACCEPTED)
            peak = max(peak, rig.swa_used())
        rig.process_result()
        # The prompt may stay locked in a cache that shares prefixes.
        self.assertLessEqual(peak, rig.swa_bound(accepted=ACCEPTED) + PROMPT)
        rig.release(req)
        self.assertLessEqual(rig.swa_used(), rig.tree_cache.swa_evictable_size())

    def sweep(self, cache: str):
        for algorithm in ("DFLASH", "DSPARK"):
            for page_size in (1, 64, 256):
                for overlap in (False, True):
                    options = dict(
                        algorithm=algorithm, page_size=page_size, overlap=overlap
                    )
                    with self.subTest(**options):
                        self.decode(cache=cache, **options)

    def test_without_prefix_cache(self):
        self.sweep("chunk")

    def test_with_prefix_caches(self):
        for cache in prefix_cache_kinds():
            if cache != "chunk":
                with self.subTest(cache=cache):
                    self.sweep(cache)


if __name__ == "__main__":
    unittest.main()
