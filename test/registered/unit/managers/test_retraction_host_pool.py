"""A full host pool costs the one request that it cannot take.

The default backup of a disaggregated decode node is a pool of host memory. When
that cannot hold a retracted request, the request is aborted; the server is not.
"""

import unittest
from http import HTTPStatus

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.kits.retraction_backup_kit import FullHostPool, holds_backup
from sglang.test.kits.spec_retract_kit import RetractTestCase, leave_swa

register_cpu_ci(est_time=15, suite="base-a-test-cpu")


class TestRetractionHostPool(RetractTestCase):
    def retract_into(self, host_pool: FullHostPool):
        """A step that has to retract ``b`` with nowhere to back it up."""
        rig = self.make_rig(
            disaggregation="decode",
            backup="host_pool",
            cache="unified",
            sliding_window=64,
        )
        reqs = [
            rig.make_req(prompt_len=40, rid=rid, first_token=ord(rid)) for rid in "ab"
        ]
        batch = rig.start(reqs)
        rig.step(batch)
        leave_swa(rig, 0)
        host_pool.install(rig)
        return rig, rig.decode(batch), reqs[1]

    def test_full_host_pool_costs_one_request(self):
        # Full, or full once the request's full-attention KV is in it.
        for slots in (0, 1000):
            with self.subTest(slots=slots):
                host_pool = FullHostPool(slots)
                rig, batch, lost = self.retract_into(host_pool)
                self.assertEqual([req.rid for req in batch.reqs], ["a"])
                self.assertEqual(rig.retracted, [])
                self.assertFalse(holds_backup(lost))
                self.assertEqual(host_pool.slots, slots)
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


if __name__ == "__main__":
    unittest.main()
