"""A failed backup under every prefix cache and page size, to the last slot.

The slots of a lost request are free at once, those of the others when they finish; a
request that was backed up resumes; a node that takes no backup loses no request.
"""

import unittest
from itertools import product
from types import SimpleNamespace
from unittest.mock import patch

import torch

from sglang.srt.mem_cache.memory_pool import KVCache
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.kits.retraction_backup_kit import holds_backup, restore_backup
from sglang.test.kits.spec_decode_caches import prefix_cache_kinds
from sglang.test.kits.spec_retract_kit import RetractTestCase, leave_swa

register_cpu_ci(est_time=60, suite="base-a-test-cpu")

SIZES = tuple(product(prefix_cache_kinds(), (1, 64, 256)))


class TestFailSafeMatrix(RetractTestCase):
    def start(
        self,
        rids: str,
        *,
        cache: str,
        page_size: int,
        overlap: bool = False,
        disaggregation: str = "decode",
    ):
        """Requests of which each is about to need a page, in a full SWA pool."""
        rig = self.make_rig(
            disaggregation=disaggregation,
            cache=cache,
            page_size=page_size,
            overlap=overlap,
            sliding_window=1024,
        )
        self.idle = rig.free_counts()
        batch = rig.start(
            [
                rig.make_req(prompt_len=40 + n, rid=rid, first_token=ord(rid))
                for n, rid in enumerate(rids)
            ]
        )
        rig.step(batch)
        self.others = leave_swa(rig, 0)
        while not batch.new_tokens_required_next_decode():
            rig.step(batch)
        rig.process_result()
        return rig, batch

    def without_backup(self):
        return patch.object(SWAKVPool, "get_cpu_copy", KVCache.get_cpu_copy)

    def finish(self, rig, reqs):
        rig.allocator.swa_attn_allocator.free(self.others)
        for req in reqs:
            rig.release(req)
        self.assert_idle(rig, self.idle)

    def test_lost_request(self):
        for (cache, page_size), overlap in product(SIZES, (False, True)):
            with self.subTest(cache=cache, page_size=page_size, overlap=overlap):
                rig, batch = self.start(
                    "abc", cache=cache, page_size=page_size, overlap=overlap
                )
                rows = rig.req_to_token_pool.available_size()
                with self.without_backup():
                    batch = rig.decode(batch)
                lost = len(rig.aborts)
                self.assertGreaterEqual(lost, 1)
                self.assertEqual(rig.retracted, [])
                self.assertEqual(len(batch.reqs), 3 - lost)
                self.assertEqual(rig.req_to_token_pool.available_size(), rows + lost)
                for abort in rig.aborts:
                    self.assertEqual(abort.finished_reason["status_code"], 503)
                rig.process_result()
                self.finish(rig, batch.reqs)

    def test_other_nodes_lose_none(self):
        for (cache, page_size), overlap in product(SIZES, (False, True)):
            with self.subTest(cache=cache, page_size=page_size, overlap=overlap):
                rig, batch = self.start(
                    "abc",
                    cache=cache,
                    page_size=page_size,
                    overlap=overlap,
                    disaggregation="null",
                )
                reqs = list(batch.reqs)
                with self.without_backup():
                    batch = rig.decode(batch)
                self.assertEqual(rig.aborts, [])
                self.assertGreaterEqual(len(rig.retracted), 1)
                self.assertCountEqual([*batch.reqs, *rig.retracted], reqs)
                rig.process_result()
                self.finish(rig, batch.reqs)

    def test_every_request_lost_one_after_the_other(self):
        for cache, page_size in SIZES:
            with self.subTest(cache=cache, page_size=page_size):
                rig, batch = self.start("abc", cache=cache, page_size=page_size)
                with self.without_backup():
                    for _ in range(3):
                        batch = rig.decode(batch)
                        rig.process_result()
                        if batch.is_empty():
                            break
                        # Others take what was given back.
                        self.others = torch.cat([self.others, leave_swa(rig, 0)])
                        while not batch.new_tokens_required_next_decode():
                            rig.step(batch)
                self.assertTrue(batch.is_empty())
                codes = [abort.finished_reason["status_code"] for abort in rig.aborts]
                self.assertEqual(codes, [503, 503, 500])
                self.finish(rig, [])

    def test_hisparse_buffers_go_first_and_once(self):
        # The coordinator reads the row that the release gives back.
        rig, batch = self.start("ab", cache="chunk", page_size=1)
        lost, freed = batch.reqs[1], []
        batch.hisparse_coordinator = SimpleNamespace(
            retract_req=lambda req: freed.append((req.rid, rig.free_counts()[2]))
        )
        rows = rig.free_counts()[2]
        with self.without_backup():
            batch = rig.decode(batch)
        self.assertEqual(freed, [("b", rows)])
        self.assertNotIn(lost, batch.reqs)
        self.finish(rig, batch.reqs)

    def test_backed_up_request(self):
        for cache, page_size in SIZES:
            with self.subTest(cache=cache, page_size=page_size):
                rig, batch = self.start("ab", cache=cache, page_size=page_size)
                batch = rig.decode(batch)
                self.assertEqual(rig.aborts, [])
                (req,) = rig.retracted
                self.assertTrue(holds_backup(req))
                rig.allocator.swa_attn_allocator.free(self.others)
                self.others = self.others[:0]
                rig.process_result()
                rig.prefill([req])
                restore_backup(req, rig)
                self.assertFalse(holds_backup(req))
                rig.process_result()
                self.finish(rig, [*batch.reqs, req])


if __name__ == "__main__":
    unittest.main()
