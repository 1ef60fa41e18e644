"""Release of dead SWA prefixes under every cache, page size and mix of holders.

A random load of requests that share prefixes, at random ages: whatever is
reclaimed and evicted in between, each keeps its window, no more than a page of
each request is dead after a pass, and all slots come back in the end.
"""

import functools
import inspect
import random
import unittest
from itertools import product

from sglang.srt.mem_cache.base_prefix_cache import EvictParams
from sglang.srt.runtime_context import get_server_args
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.kits.spec_decode_caches import prefix_cache_kinds
from sglang.test.kits.spec_retract_kit import RetractTestCase, leave_swa

register_cpu_ci(est_time=60, suite="base-a-test-cpu")

FAMILIES = (1, 120)


def row_of(rig, req):
    """The full slots of ``req``, by position."""
    holder = req.kv if hasattr(req.kv, "req_pool_idx") else req
    row = rig.req_to_token_pool.req_to_token[holder.req_pool_idx]
    return row[: req.kv.kv_allocated_len].long()


class Load:
    """Requests of their own batches, each at its own age."""

    def __init__(self, case, rig, *, window, seed):
        self.case, self.rig, self.window = case, rig, window
        self.random = random.Random(seed)
        self.batches, self.started = [], 0

    def start(self):
        rig, random = self.rig, self.random
        if len(self.batches) == 5:
            return
        req = rig.make_req(
            prompt_len=random.randint(self.window // 2, 5 * self.window),
            rid=str(self.started),
            first_token=random.choice(FAMILIES),
        )
        self.started += 1
        rig.process_result()
        self.batches.append(rig.start([req]))

    def step(self):
        if self.batches:
            batch = self.random.choice(self.batches)
            for _ in range(self.random.choice((1, 2, self.window // 3))):
                self.rig.step(batch, accepted=self.random.randint(1, 6))

    def finish(self):
        if self.batches:
            batch = self.batches.pop(self.random.randrange(len(self.batches)))
            self.rig.process_result()
            self.rig.release(batch.reqs[0])

    def retract(self):
        if self.batches:
            batch = self.batches.pop(self.random.randrange(len(self.batches)))
            self.rig.process_result()
            self.case.retract(batch)

    def evict(self):
        cache = self.rig.tree_cache
        evictable = cache.swa_evictable_size()
        wanted = self.random.choice((evictable, evictable // 2))
        cache.evict(EvictParams(num_tokens=0, swa_num_tokens=wanted))

    def reclaim(self):
        for batch in self.batches:
            self.case.reclaim(self.rig, batch)
        if any(not batch.reqs[0].decode_batch_idx for batch in self.batches):
            # Its extend may be in flight, and it may share what is dead to others.
            return
        pages = set()
        for batch in self.batches:
            (req,) = batch.reqs
            slots = row_of(self.rig, req)[self.first_read(req) :]
            mapping = self.rig.allocator.full_to_swa_index_mapping
            pages |= {int(slot) // self.rig.page_size for slot in mapping[slots]}
        held = self.rig.swa_used() - self.rig.tree_cache.swa_evictable_size()
        dead_pages = held // self.rig.page_size - len(pages)
        self.case.assertLessEqual(dead_pages, len(self.batches))

    def first_read(self, req):
        return max(0, req.seqlen - 1 - self.window)

    def check(self):
        for batch in self.batches:
            (req,) = batch.reqs
            if not len(req.output_ids):
                continue
            slots = row_of(self.rig, req)[self.first_read(req) : req.seqlen - 1]
            mapping = self.rig.allocator.full_to_swa_index_mapping
            self.case.assertTrue(bool((mapping[slots] > 0).all()), req.rid)


class TestPrefixLockMatrix(RetractTestCase):
    eviction_interval = 16

    def reclaim(self, rig, batch):
        """Let a memory check find no SWA slot, neither free nor in the tree."""
        while not batch.new_tokens_required_next_decode():
            rig.step(batch, accepted=1)
        cache, slots = rig.tree_cache, rig.allocator.swa_attn_allocator
        evictable = cache.swa_evictable_size()
        cache.evict(EvictParams(num_tokens=0, swa_num_tokens=evictable))
        taken = leave_swa(rig, 0)
        batch.check_decode_mem()
        slots.free(taken)

    def retract(self, batch):
        release = batch.release_req
        if "server_args" in inspect.signature(release).parameters:
            release = functools.partial(release, server_args=get_server_args())
        release(0, 0)

    def run_load(self, *, seed, window, **options):
        rig = self.make_rig(
            sliding_window=window, full_size=1 << 15, swa_size=1 << 14, **options
        )
        idle = rig.free_counts()
        load = Load(self, rig, window=window, seed=seed)
        actions = (
            *[load.start] * 3,
            *[load.step] * 8,
            load.finish,
            load.retract,
            load.evict,
            *[load.reclaim] * 2,
        )
        for _ in range(120):
            load.random.choice(actions)()
            load.check()
        while load.batches:
            load.finish()
        self.assert_idle(rig, idle)
        rig.tree_cache.sanity_check()

    def test_random_loads(self):
        for cache, (page_size, window), overlap, seed in product(
            prefix_cache_kinds()[1:],
            ((1, 32), (16, 32), (16, 40), (64, 128), (256, 128)),
            (False, True),
            range(2),
        ):
            with self.subTest(
                cache=cache,
                page_size=page_size,
                window=window,
                overlap=overlap,
                seed=seed,
            ):
                self.run_load(
                    cache=cache,
                    page_size=page_size,
                    window=window,
                    overlap=overlap,
                    seed=seed,
                )


if __name__ == "__main__":
    unittest.main()
