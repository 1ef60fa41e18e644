"""A decode node takes in requests, retracted or new, only while whole pages are free.

The allocator takes whole pages for each, whatever it needs of the last one.
"""

import unittest
from types import SimpleNamespace

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.kits.retraction_backup_kit import holds_backup
from sglang.test.kits.spec_retract_kit import RetractTestCase

# isort: split
from sglang.srt.disaggregation.decode import DecodeRequest
from sglang.srt.disaggregation.utils import ReqToMetadataIdxAllocator
from sglang.srt.managers.schedule_batch import ScheduleBatch

register_cpu_ci(est_time=12, suite="base-a-test-cpu")

PAGE = 64
# Prompts, and the pages that each takes. The tokens of both fit the pages of the
# first.
CASES = (((20, 30), (1, 1)), ((70, 30), (2, 1)))


class TestResumePages(RetractTestCase):
    def retracted_rig(self, prompt_lens, **options):
        """A decode node that runs nothing, two requests waiting to be resumed."""
        rig = self.make_rig(
            disaggregation="decode",
            algorithm="EAGLE",
            cache="chunk",
            sliding_window=PAGE,
            **{"page_size": PAGE, **options},
        )
        reqs = [
            rig.make_req(prompt_len=length, rid=rid)
            for rid, length in zip("ab", prompt_lens)
        ]
        batch = rig.start(reqs)
        rig.step(batch)
        for idx in range(len(reqs)):
            batch.release_req(idx, 0, rig.scheduler.server_args)
        queue = rig.scheduler.disagg_decode_prealloc_queue
        vars(queue).update(
            queue=[],
            pending_reqs=[],
            pp_size=1,
            req_to_token_pool=rig.req_to_token_pool,
            req_to_metadata_buffer_idx_allocator=ReqToMetadataIdxAllocator(8),
            transfer_queue=SimpleNamespace(queue=[], enable_staging=False),
            kv_manager=SimpleNamespace(kv_args=SimpleNamespace(state_types=[])),
        )
        queue.extend(reqs, is_retracted=True)
        vars(rig.scheduler).update(
            last_batch=None,
            running_batch=ScheduleBatch(reqs=[]),
            enable_decode_hicache=False,
        )
        return rig, reqs, queue

    def assert_resumes_by_page(self, reqs, pages, queue, allocator):
        """The pages of the first request let in that one alone; each further page
        none, until those of the second are there."""
        held = allocator.alloc(allocator.available_size())
        for req, wanted in zip(reqs, pages):
            for _ in range(wanted):
                self.assertEqual(queue.resume_retracted_reqs(), [])
                self.assertTrue(holds_backup(req))
                allocator.free(held[:PAGE])
                held = held[PAGE:]
            self.assertEqual(queue.resume_retracted_reqs(), [req])
            self.assertFalse(holds_backup(req))
            self.assertEqual(allocator.available_size(), 0)
        self.assertEqual(queue.retracted_queue, [])

    def test_hybrid_swa_model(self):
        for prompt_lens, pages in CASES:
            for name in ("full_attn_allocator", "swa_attn_allocator"):
                with self.subTest(prompt_lens=prompt_lens, short=name):
                    rig, reqs, queue = self.retracted_rig(prompt_lens)
                    allocator = getattr(rig.allocator, name)
                    self.assert_resumes_by_page(reqs, pages, queue, allocator)

    def test_full_attention_model(self):
        for prompt_lens, pages in CASES:
            with self.subTest(prompt_lens=prompt_lens):
                rig, reqs, queue = self.retracted_rig(prompt_lens, hybrid_swa=False)
                self.assert_resumes_by_page(reqs, pages, queue, rig.allocator)

    def test_arrivals_take_whole_pages(self):
        rig, _, queue = self.retracted_rig((20, 30))
        queue.retracted_queue = []
        receiver = SimpleNamespace(
            conclude_state=None, send_metadata=lambda *args, **kwargs: None
        )
        arrivals = [
            DecodeRequest(
                req=rig.make_req(prompt_len=length, rid=rid),
                kv_receiver=receiver,
                waiting_for_input=True,
            )
            for rid, length in (("c", 20), ("d", 30))
        ]
        queue.queue = list(arrivals)
        allocator = rig.allocator.swa_attn_allocator
        allocator.alloc(allocator.available_size() - PAGE)
        self.assertEqual(queue.pop_preallocated(), ([arrivals[0]], []))
        self.assertEqual(queue.queue, [arrivals[1]])

    def test_page_size_one_counts_tokens(self):
        rig, reqs, queue = self.retracted_rig((20, 30), page_size=1)
        held = rig.allocator.alloc(rig.allocator.available_size())
        for req, length in zip(reqs, (20, 30)):
            # The prompt and one accepted token have KV.
            rig.allocator.free(held[:length])
            self.assertEqual(queue.resume_retracted_reqs(), [])
            rig.allocator.free(held[length : length + 1])
            self.assertEqual(queue.resume_retracted_reqs(), [req])
            held = held[length + 1 :]


if __name__ == "__main__":
    unittest.main()
