"""A missing draft input is named, not met as an attribute of None."""

import unittest

import torch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.kits.pd_handoff_kit import PDHandoffTestCase

# isort: split
from sglang.srt.managers.overlap_utils import resolve_forward_inputs
from sglang.srt.managers.schedule_batch import ScheduleBatch

register_cpu_ci(est_time=15, suite="base-a-test-cpu")

MODE = "disaggregation_mode=decode"


class TestMissingDraftInput(PDHandoffTestCase):
    def arrived(self, algorithm, *rids, overlap=True):
        """A rig, and a prebuilt batch of requests that just arrived."""
        rig = self.make_pd_rig(algorithm=algorithm, overlap=overlap)
        return rig, self.prebuilt(rig, *rids)

    def prebuilt(self, rig, *rids):
        reqs = [rig.make_req(prompt_len=20, rid=rid) for rid in rids]
        rig.arrive(reqs, bonus_tokens=range(1, len(rids) + 1))
        batch = rig.build_prebuilt()
        rig.set_draft_input(batch)
        return batch

    def assert_names(self, error, *words):
        for word in words:
            self.assertIn(word, str(error))

    def test_decode_preparation_names_the_batch(self):
        for algorithm in ("DFLASH", "DSPARK"):
            with self.subTest(algorithm=algorithm):
                _, batch = self.arrived(algorithm, "r1", "r2")
                batch.spec_info = None

                with self.assertRaises(RuntimeError) as caught:
                    batch.prepare_for_decode()
                self.assert_names(caught.exception, algorithm, MODE, "r1", "r2")

    def test_merge_names_the_batch_that_has_none(self):
        for algorithm in ("DFLASH", "DSPARK"):
            with self.subTest(algorithm=algorithm):
                rig, running = self.arrived(algorithm, "r1")
                # A mixed batch begins as a prefill, which has none yet.
                mixed = self.prebuilt(rig, "r0")
                mixed.spec_info = None
                mixed.merge_batch(running)

                arrival = self.prebuilt(rig, "r2")
                arrival.spec_info = None

                with self.assertRaises(RuntimeError) as caught:
                    running.merge_batch(arrival)
                self.assert_names(caught.exception, algorithm, MODE, "['r2']")

    def test_relay_names_the_batch_without_future_indices(self):
        rig, batch = self.arrived("DFLASH", "r1", "r2")
        rig.future_map._resolve_spec_extras(ScheduleBatch(reqs=[]))
        batch.spec_info.future_indices = torch.empty((0,), dtype=torch.int64)
        rig.future_map._resolve_spec_extras(batch)

        batch.spec_info.future_indices = None
        with self.assertRaises(RuntimeError) as caught:
            resolve_forward_inputs(batch, rig.future_map)
        self.assert_names(caught.exception, "DFLASH", "future_indices", "r1", "r2")


if __name__ == "__main__":
    unittest.main()
