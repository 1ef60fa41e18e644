"""A retraction backup that the KV pool does not support costs one request.

A disaggregated decode node backs up the KV of a request that it retracts. Where the
pool cannot copy it to the host, ``get_cpu_copy`` raises NotImplementedError: the
request is released and aborted, and the rest of the batch keeps decoding.
"""

import unittest
from http import HTTPStatus
from unittest.mock import patch

import torch

from sglang.srt.managers.schedule_batch import ScheduleBatch
from sglang.srt.mem_cache.memory_pool import KVCache
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.kits.retraction_backup_kit import (
    client_error,
    holds_backup,
    restore_backup,
)
from sglang.test.kits.spec_decode_caches import prefix_cache_kinds
from sglang.test.kits.spec_retract_kit import RetractTestCase, leave_swa

register_cpu_ci(est_time=20, suite="base-a-test-cpu")


class _FullNode(RetractTestCase):
    def start(
        self,
        rids: str,
        *,
        has_backup: bool = True,
        prompt_len: int = 40,
        disaggregation: str = "decode",
        **options,
    ):
        """A decode batch whose next step needs SWA slots: none are free, and none
        are out of a window. The pool can copy to the host if ``has_backup``."""
        rig = self.make_rig(disaggregation=disaggregation, sliding_window=64, **options)
        if not has_backup:
            no_backup = patch.object(SWAKVPool, "get_cpu_copy", KVCache.get_cpu_copy)
            no_backup.start()
            self.addCleanup(no_backup.stop)
        self.idle = rig.free_counts()
        reqs = [
            rig.make_req(prompt_len=prompt_len, rid=rid, first_token=ord(rid))
            for rid in rids
        ]
        batch = rig.start(reqs)
        rig.step(batch)
        self.others = leave_swa(rig, 0)
        while not batch.new_tokens_required_next_decode():
            rig.step(batch)
        return rig, batch, reqs

    def finish_all(self, rig, batch):
        """Finish what still runs; every slot, row and lock must be back."""
        rig.allocator.swa_attn_allocator.free(self.others)
        for req in batch.reqs:
            rig.release(req)
        cache = rig.tree_cache
        full, swa, rows = rig.free_counts()
        free = (full + cache.full_evictable_size(), swa + cache.swa_evictable_size())
        self.assertEqual((*free, rows), self.idle)
        self.assertEqual(cache.full_protected_size(), 0)
        self.assertEqual(cache.swa_protected_size(), 0)


class TestRetractionFailSafe(_FullNode):
    def test_no_backup_costs_one_request(self):
        for cache in prefix_cache_kinds():
            with self.subTest(cache=cache):
                rig, batch, (_, lost) = self.start("ab", has_backup=False, cache=cache)
                batch = rig.decode(batch)
                self.assertEqual([req.rid for req in batch.reqs], ["a"])
                self.assertEqual(rig.retracted, [])
                self.assertEqual([abort.rid for abort in rig.aborts], ["b"])
                self.assertFalse(holds_backup(lost))
                self.assertEqual(lost.decode_batch_idx, 0)
                rig.decode(batch)
                self.finish_all(rig, batch)

    def test_two_requests_lost_in_one_pass(self):
        # Each holds one page and needs another, so that one lost is not enough.
        rig, batch, _ = self.start("abc", has_backup=False, prompt_len=2, page_size=16)
        batch = rig.decode(batch)
        self.assertEqual([req.rid for req in batch.reqs], ["a"])
        self.assertEqual(rig.retracted, [])
        self.assertEqual(
            [(abort.rid, abort.finished_reason["status_code"]) for abort in rig.aborts],
            [("c", 503), ("b", 503)],
        )
        self.finish_all(rig, batch)

    def test_first_of_the_batch_is_lost_first(self):
        # As where the order is by length, which it is without speculation.
        order = {"_get_decode_retraction_order": lambda *args, **options: [1, 0]}
        short = {"check_decode_mem": lambda *args, **options: False}
        for fits, kept, lost in ((True, ["b"], ["a"]), (False, [], ["a", "b"])):
            with self.subTest(fits=fits):
                rig, batch, _ = self.start("ab", has_backup=False)
                with patch.multiple(ScheduleBatch, **order, **({} if fits else short)):
                    batch = rig.decode(batch)
                self.assertEqual([req.rid for req in batch.reqs], kept)
                self.assertEqual(rig.retracted, [])
                self.assertEqual([abort.rid for abort in rig.aborts], lost)
                self.finish_all(rig, batch)

    def test_prompt_of_lost_request_is_evicted(self):
        # What a retracted request had in the tree is used at once, backup or not.
        counts = {}
        for has_backup in (True, False):
            for cache in prefix_cache_kinds():
                rig, batch, _ = self.start("ab", has_backup=has_backup, cache=cache)
                rig.decode(batch)
                evictable = rig.tree_cache.swa_evictable_size()
                counts[has_backup, cache] = (*rig.free_counts(), evictable)
        for cache in prefix_cache_kinds():
            with self.subTest(cache=cache):
                self.assertEqual(counts[False, cache], counts[True, cache])
                self.assertEqual(counts[False, cache][-1], 0)

    def test_client_is_told_to_retry(self):
        rig, batch, _ = self.start("ab", has_backup=False)
        message = (
            "Retracted under decode memory pressure without a KV backup. Retry later."
        )
        with self.assertLogs("sglang.srt.managers.schedule_batch", "WARNING") as logs:
            rig.decode(batch)
        self.assertIn(f"aborted request b: {message}", logs.output[0])
        (abort,) = rig.aborts
        self.assertEqual(
            abort.finished_reason,
            {
                "type": "abort",
                "message": message,
                "status_code": HTTPStatus.SERVICE_UNAVAILABLE,
                "err_type": "ServiceUnavailableError",
            },
        )
        error = client_error(abort)
        self.assertEqual(error.status_code, HTTPStatus.SERVICE_UNAVAILABLE)
        self.assertEqual(error.detail, message)

    def test_last_request_skips_the_backup(self):
        for has_backup in (True, False):
            with self.subTest(has_backup=has_backup):
                rig, batch, (last,) = self.start("a", has_backup=has_backup)
                batch = rig.decode(batch)
                self.assertTrue(batch.is_empty())
                self.assertFalse(holds_backup(last))
                (abort,) = rig.aborts
                reason = abort.finished_reason
                self.assertEqual(
                    (reason["status_code"], reason["err_type"]),
                    (HTTPStatus.INTERNAL_SERVER_ERROR, "InternalServerError"),
                )
                self.finish_all(rig, batch)


class TestRetractionBackup(_FullNode):
    def kv_of(self, req, rig) -> torch.Tensor:
        """The keys of ``req``, on the full side and on the SWA side."""
        row = getattr(req.kv, "req_pool_idx", None)
        row = req.req_pool_idx if row is None else row
        slots = rig.req_to_token_pool.req_to_token[row, : req.seqlen - 1].long()
        pool = rig.allocator.get_kvcache()
        swa_slots = rig.allocator.full_to_swa_index_mapping[slots]
        return torch.cat(
            [
                pool.full_kv_pool.k_buffer[0][slots],
                pool.swa_kv_pool.k_buffer[0][swa_slots],
            ]
        ).clone()

    def test_backed_up_request_resumes(self):
        rig, batch, (_, req) = self.start("ab")
        pool = rig.allocator.get_kvcache()
        buffers = [pool.full_kv_pool.k_buffer[0], pool.swa_kv_pool.k_buffer[0]]
        for buffer in buffers:
            buffer.copy_(torch.randn_like(buffer))
        kv = self.kv_of(req, rig)
        batch = rig.decode(batch)
        self.assertEqual([req.rid for req in batch.reqs], ["a"])
        self.assertEqual([rig.retracted, rig.aborts], [[req], []])
        for buffer in buffers:
            buffer.zero_()
        rig.allocator.swa_attn_allocator.free(self.others)
        self.others = self.others[:0]
        resumed = rig.prefill([req])
        restore_backup(req, rig)
        self.assertTrue(torch.equal(self.kv_of(req, rig), kv))
        self.assertFalse(holds_backup(req))
        rig.process_result()
        batch.reqs += resumed.reqs
        self.finish_all(rig, batch)

    def test_other_nodes_take_no_backup(self):
        # They recompute the KV, so that no pool has to copy it.
        rig, batch, (_, req) = self.start("ab", has_backup=False, disaggregation="null")
        batch = rig.decode(batch)
        self.assertEqual([rig.retracted, rig.aborts], [[req], []])
        self.assertFalse(holds_backup(req))
        self.finish_all(rig, batch)

    def test_other_errors_are_not_hidden(self):
        rig, batch, _ = self.start("ab")
        broken = patch.object(SWAKVPool, "get_cpu_copy", side_effect=RuntimeError("x"))
        with broken, self.assertRaisesRegex(RuntimeError, "^x$"):
            rig.decode(batch)


if __name__ == "__main__":
    unittest.main()
