"""A retracted request resumes with the KV of its draft model.

The draft's KV lies in the slots of the target's, in a pool of its own. A backup
that leaves it behind lets the draft read what the next owner of the new slots
wrote: the output stays right, and hardly a draft token is accepted.
"""

import unittest
from types import SimpleNamespace

import torch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.kits.retraction_backup_kit import holds_backup, restore_backup
from sglang.test.kits.spec_retract_kit import RetractTestCase, leave_swa

# isort: split
from transformers import PretrainedConfig

from sglang.srt.mem_cache.memory_pool import KVCache, MHATokenToKVPool
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
from sglang.srt.utils.common import print_warning_once

register_cpu_ci(est_time=15, suite="base-a-test-cpu")

COMMON = dict(
    dtype=torch.float16, device="cpu", head_num=1, head_dim=1, enable_memory_saver=False
)

# Keys and values of its full and of its sliding-window layer.
TARGET_BUFFERS = 4


class NoCopyPool(MHATokenToKVPool):
    get_cpu_copy = KVCache.get_cpu_copy


def make_full_draft(rig, pool_class=MHATokenToKVPool):
    """A draft of two full-attention layers."""
    size, page_size = rig.allocator.size_full, rig.page_size
    return pool_class(size=size, page_size=page_size, layer_num=2, **COMMON)


def make_swa_draft(rig):
    """A draft with a sliding-window layer, which shares the target's mapping."""
    pool = SWAKVPool(
        size=rig.allocator.size_full,
        size_swa=rig.allocator.size_swa,
        page_size=rig.page_size,
        swa_attention_layer_ids=[0],
        full_attention_layer_ids=[1],
        token_to_kv_pool_class=MHATokenToKVPool,
        **COMMON,
    )
    pool.register_mapping(rig.allocator.full_to_swa_index_mapping)
    return pool


class DraftKVTestCase(RetractTestCase):
    def start(self, rids: str, make_draft, **options):
        """A full decode node, with the draft model that ``make_draft`` makes."""
        rig = self.make_rig(disaggregation="decode", sliding_window=64, **options)
        if make_draft is not None:
            rig.allocator.draft_kv_pool = make_draft(rig)
        reqs = [
            rig.make_req(prompt_len=50, rid=rid, first_token=ord(rid)) for rid in rids
        ]
        batch = rig.start(reqs)
        # Nothing is out of a window yet, and the next step takes a page.
        rig.step(batch, accepted=4)
        self.write_noise(rig)
        self.others = leave_swa(rig, 0)
        return rig, batch, reqs

    def buffers(self, rig) -> list[torch.Tensor]:
        """What a forward writes, of target and draft."""
        pools = []
        draft = getattr(rig.allocator, "draft_kv_pool", None)
        for pool in (rig.allocator.get_kvcache(), draft):
            if isinstance(pool, SWAKVPool):
                pools += [pool.full_kv_pool, pool.swa_kv_pool]
            elif pool is not None:
                pools.append(pool)
        return [b for pool in pools for b in (*pool.k_buffer, *pool.v_buffer)]

    def write_noise(self, rig) -> None:
        for buffer in self.buffers(rig):
            buffer.copy_(torch.randn_like(buffer))

    def slots_of(self, req, rig) -> torch.Tensor:
        row = getattr(req.kv, "req_pool_idx", None)
        row = req.req_pool_idx if row is None else row
        return rig.req_to_token_pool.req_to_token[row, : req.seqlen - 1].long()

    def kv_of(self, req, rig) -> list[torch.Tensor]:
        """What the slots of ``req`` hold: the target's layers, then the draft's."""
        slots = self.slots_of(req, rig)
        swa_slots = rig.allocator.full_to_swa_index_mapping[slots]
        full = rig.allocator.get_kvcache().full_kv_pool.k_buffer[0].shape
        return [
            buffer[slots if buffer.shape == full else swa_slots].clone()
            for buffer in self.buffers(rig)
        ]

    def assert_restored(self, req, rig, kv) -> None:
        for index, (restored, saved) in enumerate(zip(self.kv_of(req, rig), kv)):
            owner = "target" if index < TARGET_BUFFERS else "draft"
            self.assertTrue(restored.equal(saved), f"KV of the {owner} is lost")

    def resume(self, req, rig) -> None:
        """Resume ``req`` in other slots, after others have used its own."""
        rig.allocator.swa_attn_allocator.free(self.others)
        rig.start([rig.make_req(prompt_len=50, rid="new", first_token=7)])
        self.write_noise(rig)
        rig.prefill([req])
        restore_backup(req, rig)


class TestDraftKV(DraftKVTestCase):
    def test_comes_back(self):
        for make_draft in (make_full_draft, make_swa_draft):
            for page_size in (1, 16):
                with self.subTest(draft=make_draft.__name__, page_size=page_size):
                    rig, batch, (_, req) = self.start(
                        "ab", make_draft, page_size=page_size
                    )
                    slots, kv = self.slots_of(req, rig), self.kv_of(req, rig)
                    rig.decode(batch)
                    self.assertEqual(rig.retracted, [req])
                    self.resume(req, rig)
                    self.assertFalse(self.slots_of(req, rig).equal(slots))
                    self.assert_restored(req, rig, kv)
                    self.assertFalse(holds_backup(req))

    def test_target_without_a_draft_model_comes_back(self):
        rig, batch, (_, req) = self.start("ab", make_draft=None)
        kv = self.kv_of(req, rig)
        rig.decode(batch)
        self.resume(req, rig)
        self.assert_restored(req, rig, kv)


class TestDraftWithoutCopy(DraftKVTestCase):
    def test_is_told_once_and_costs_no_request(self):
        print_warning_once.cache_clear()
        rig, batch, reqs = self.start(
            "abc", lambda rig: make_full_draft(rig, NoCopyPool)
        )
        kv = self.kv_of(reqs[2], rig)
        with self.assertLogs("sglang.srt.utils.common", "WARNING") as logs:
            batch = rig.decode(batch)
            self.others = torch.cat([self.others, leave_swa(rig, 0)])
            rig.decode(batch)
        self.assertEqual([req.rid for req in rig.retracted], ["c", "b"])
        (warning,) = [line for line in logs.output if "NoCopyPool" in line]
        self.assertIn("draft", warning)
        self.assertEqual(rig.aborts, [])
        self.resume(reqs[2], rig)
        self.assert_restored(reqs[2], rig, kv[:TARGET_BUFFERS])


class TestScheduler(DraftKVTestCase):
    def test_tells_the_allocator_its_draft_pool(self):
        rig = self.make_rig()
        pool = make_full_draft(rig)
        # Releases ask the worker itself, or its draft runner.
        runner = SimpleNamespace(token_to_kv_pool=pool)
        worker = SimpleNamespace(
            primary_draft_kv_pool=pool,
            draft_worker=SimpleNamespace(draft_runner=runner),
        )
        vars(rig.scheduler).update(
            draft_worker=worker,
            model_config=SimpleNamespace(hf_config=PretrainedConfig()),
            spec_algorithm=rig.algorithm,
            enable_unified_memory=False,
        )
        rig.scheduler.init_disaggregation()
        self.assertIs(getattr(rig.allocator, "draft_kv_pool", None), pool)


if __name__ == "__main__":
    unittest.main()
