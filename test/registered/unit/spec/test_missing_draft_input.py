"""A missing draft input is reported with its batch, not as an attribute of None."""

import unittest

import torch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.kits.spec_decode_kit import SpecDecodeTestCase

# isort: split
from sglang.srt.managers.overlap_utils import resolve_forward_inputs
from sglang.srt.managers.schedule_batch import ScheduleBatch
from sglang.srt.speculative.draft_worker_common import make_draft_input_v2
from sglang.srt.speculative.eagle_info import EagleDraftInput
from sglang.srt.speculative.ngram_info import NgramVerifyInput
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.speculative.spec_registry import CustomSpecAlgo

register_cpu_ci(est_time=20, suite="base-a-test-cpu")


def draft_input(algorithm: SpeculativeAlgorithm, batch: ScheduleBatch):
    """What the last forward of ``batch`` leaves for its next decode."""
    rows = len(batch.reqs)
    tokens = torch.ones(rows, dtype=torch.int64)
    if algorithm.is_dflash_family():
        spec_info = make_draft_input_v2(bonus_tokens=tokens, new_seq_lens=tokens)
    elif algorithm.is_ngram():
        spec_info = NgramVerifyInput(
            new_seq_lens=tokens, accept_tokens=tokens, accept_lens=tokens
        )
    elif algorithm.name == "UNO":
        from sglang.srt.speculative.uno_info import UnoDraftInput

        spec_info = UnoDraftInput(
            bonus_tokens=tokens, new_seq_lens=tokens, forward_width=1
        )
    else:
        spec_info = EagleDraftInput(
            topk_p=torch.ones(rows, 1),
            topk_index=torch.ones(rows, 1, dtype=torch.int64),
            hidden_states=torch.ones(rows, 4),
            bonus_tokens=tokens,
        )
    spec_info.future_indices = batch.req_pool_indices
    return spec_info


class _PluginInput:
    """A draft input that can be merged with a batch that has none."""

    merged_with = "nothing"

    def merge_batch(self, other) -> None:
        self.merged_with = other


class TestMissingDraftInput(SpecDecodeTestCase):
    def started(self, algorithm, *all_rids):
        """One batch on a decode node for each group of request ids."""
        self.rig = self.make_rig(
            algorithm=algorithm,
            overlap=True,
            server_args={"disaggregation_mode": "decode"},
        )
        for rids in all_rids:
            reqs = [self.rig.make_req(prompt_len=20, rid=rid) for rid in rids]
            batch = self.rig.start(reqs)
            batch.spec_info = draft_input(self.rig.algorithm, batch)
            yield batch

    def assert_reported(self, action, *words):
        with self.assertRaises(RuntimeError) as caught:
            action()
        for word in words:
            self.assertIn(word, str(caught.exception))

    def test_decode_preparation(self):
        for algorithm in ("DFLASH", "DSPARK"):
            with self.subTest(algorithm=algorithm):
                (batch,) = self.started(algorithm, ["r1", "r2"])
                batch.prepare_for_decode()
                batch.spec_info = None

                self.assert_reported(
                    batch.prepare_for_decode,
                    algorithm,
                    "disaggregation_mode=decode",
                    "rids=['r1', 'r2']",
                )

    def test_decode_preparation_of_eagle_reads_no_draft_input(self):
        (batch,) = self.started("EAGLE", ["r1"])
        batch.spec_info = None
        batch.prepare_for_decode()
        self.assertTrue(batch.forward_mode.is_decode())

    def test_merge(self):
        for algorithm in SpeculativeAlgorithm:
            if algorithm.is_none():
                continue
            with self.subTest(algorithm=algorithm.name):
                running, joining, bare = self.started(
                    algorithm.name, ["r1"], ["r2"], ["r3"]
                )
                running.merge_batch(joining)
                bare.spec_info = None

                self.assert_reported(
                    lambda: running.merge_batch(bare),
                    algorithm.name,
                    "disaggregation_mode=decode",
                    "rids=['r3']",
                )

    def test_merge_into_a_batch_without_draft_input(self):
        # A mixed batch begins as a prefill, which has none yet.
        for joining_has_one in (True, False):
            with self.subTest(joining_has_one=joining_has_one):
                mixed, running = self.started("DSPARK", ["r1"], ["r2"])
                mixed.spec_info = None
                if not joining_has_one:
                    running.spec_info = None
                mixed.merge_batch(running)
                self.assertEqual([req.rid for req in mixed.reqs], ["r1", "r2"])

    def test_merge_is_left_to_a_registered_algorithm(self):
        running, joining = self.started("EAGLE", ["r1"], ["r2"])
        running.spec_algorithm = CustomSpecAlgo(name="PLUGIN", factory=None)
        running.spec_info, joining.spec_info = _PluginInput(), None
        running.merge_batch(joining)
        self.assertIsNone(running.spec_info.merged_with)

    def relay(self):
        """The relay of the decode node that started last."""
        return self.rig.algorithm.create_future_map(
            torch.device("cpu"), self.rig.req_to_token_pool
        )

    def test_relay_without_future_indices(self):
        for algorithm in ("DFLASH", "EAGLE"):
            with self.subTest(algorithm=algorithm):
                (batch,) = self.started(algorithm, ["r1", "r2"])
                batch.spec_info.future_indices = None

                self.assert_reported(
                    lambda: resolve_forward_inputs(batch, self.relay()),
                    algorithm,
                    "future_indices",
                    "rids=['r1', 'r2']",
                )

    def test_relay_takes_prefill_and_idle_batches(self):
        (batch,) = self.started("DFLASH", ["r1"])
        idle = batch.spec_info
        idle.future_indices = batch.req_pool_indices[:0]
        for spec_info in (None, idle):
            batch.spec_info = spec_info
            resolve_forward_inputs(batch, self.relay())
            self.assertIs(batch.spec_info, spec_info)


if __name__ == "__main__":
    unittest.main()
