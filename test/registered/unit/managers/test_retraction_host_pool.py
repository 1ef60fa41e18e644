"""A host pool that is full costs the one request that it cannot take.

The default backup of a disaggregated decode node is a pool of host memory. A
retracted request that fits into it waits there; one that does not is aborted.
"""

import unittest
from http import HTTPStatus
from types import SimpleNamespace
from typing import Optional

import torch

from sglang.srt.mem_cache import common
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.kits.retraction_backup_kit import holds_backup
from sglang.test.kits.spec_retract_kit import RetractTestCase, leave_swa

register_cpu_ci(est_time=15, suite="base-a-test-cpu")


class HostPool:
    """Free lists of host memory for the full KV and for the SWA windows. The memory
    itself and the copy into it would need a GPU."""

    write_policy = "write_through"
    pp_prefetch_command_group = None

    def __init__(self, slots: int, swa_slots: int) -> None:
        self.slots, self.swa_slots = slots, swa_slots
        self.copied: list[int] = []
        self.l2_transfer_engine = SimpleNamespace(submit_device_to_host=self._copy)

    def alloc(self, count: int) -> Optional[torch.Tensor]:
        if count > self.slots:
            return None
        self.slots -= count
        return torch.arange(count)

    def free(self, indices: torch.Tensor) -> None:
        self.slots += len(indices)

    def available_size(self) -> int:
        return self.slots

    def resolve_host_transfers(self, transfers, *args, **kwargs):
        """Host slots for the windows, or None."""
        count = sum(len(transfer.device_indices) for transfer in transfers)
        if count > self.swa_slots:
            return None
        self.swa_slots -= count
        return transfers

    _resolve_pool_transfers_allocation = resolve_host_transfers

    def allocate_host_transfers(self, device_indices, transfers, reclaim):
        """Host slots for both, or None."""
        host_indices = self.alloc(len(device_indices))
        if host_indices is None:
            return None
        if self.resolve_host_transfers(transfers) is None:
            self.free(host_indices)
            return None
        return host_indices, transfers

    def _move_write_operation(self, operation):
        return operation.host_indices, operation.device_indices, None

    def _l2_transfers(self, host_indices, device_indices, pool_transfers):
        return len(device_indices)

    def _copy(self, count: int):
        self.copied.append(count)
        return SimpleNamespace(finish_event=SimpleNamespace(synchronize=lambda: None))


class TestRetractionHostPool(RetractTestCase):
    def make_node(self, **options):
        return self.make_rig(
            disaggregation="decode",
            backup="host_pool",
            cache="unified",
            sliding_window=64,
            **options,
        )

    def retract_into(self, host_pool: HostPool, rids: str, **options):
        """A decode step that has to retract, and the requests by their id."""
        rig = self.make_node(**options)
        # Each needs another page in the next step.
        reqs = {
            rid: rig.make_req(prompt_len=2, rid=rid, first_token=ord(rid))
            for rid in rids
        }
        batch = rig.start([*reqs.values()])
        rig.step(batch)
        leave_swa(rig, 0)
        while not batch.new_tokens_required_next_decode():
            rig.step(batch)
        # Where the prefix cache looks for host memory.
        rig.tree_cache.host_pool_group = rig.tree_cache.cache_controller = host_pool
        return rig, rig.decode(batch), reqs

    def test_request_that_fits_waits(self):
        host_pool = HostPool(slots=100, swa_slots=100)
        rig, batch, reqs = self.retract_into(host_pool, "ab")
        self.assertEqual([req.rid for req in batch.reqs], ["a"])
        self.assertEqual([rig.retracted, rig.aborts], [[reqs["b"]], []])
        self.assertTrue(holds_backup(reqs["b"]))
        kv_len = reqs["b"].seqlen - 1
        self.assertEqual(host_pool.copied, [kv_len])
        self.assertEqual([host_pool.slots, host_pool.swa_slots], [100 - kv_len] * 2)

    def test_request_that_does_not_fit_is_aborted(self):
        # Full, or full once the request's full-attention KV is in it.
        for slots in (0, 1000):
            with self.subTest(slots=slots):
                host_pool = HostPool(slots, swa_slots=0)
                rig, batch, reqs = self.retract_into(host_pool, "ab")
                self.assertEqual([req.rid for req in batch.reqs], ["a"])
                self.assertEqual(rig.retracted, [])
                self.assertFalse(holds_backup(reqs["b"]))
                self.assertEqual([host_pool.slots, host_pool.copied], [slots, []])
                (abort,) = rig.aborts
                self.assertEqual(abort.rid, "b")
                self.assertEqual(
                    abort.finished_reason,
                    {
                        "type": "abort",
                        "message": "Retraction host KV pool exhausted. Aborting the "
                        "request.",
                        "status_code": HTTPStatus.INTERNAL_SERVER_ERROR,
                        "err_type": "InternalServerError",
                    },
                )
                self.assertFalse(rig.decode(batch).is_empty())

    def test_room_for_one_of_two(self):
        host_pool = HostPool(slots=16, swa_slots=16)
        rig, batch, reqs = self.retract_into(host_pool, "abc", page_size=16)
        self.assertEqual([req.rid for req in batch.reqs], ["a"])
        self.assertEqual(rig.retracted, [reqs["c"]])
        self.assertEqual([abort.rid for abort in rig.aborts], ["b"])

    def test_request_without_kv_needs_no_room(self):
        rig = self.make_node()
        req = rig.make_req(prompt_len=1)
        backup = getattr(common, "backup_kv_cache", None) or common.retraction_backup
        pools = (rig.req_to_token_pool, rig.allocator)
        self.assertTrue(backup(req, rig.tree_cache, *pools, "host_pool"))


if __name__ == "__main__":
    unittest.main()
