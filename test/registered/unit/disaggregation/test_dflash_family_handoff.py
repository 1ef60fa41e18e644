"""A DFLASH or DSPARK request that arrives from a prefill node can decode.

Its first decode runs prepare_for_decode() before any local forward, so
build_disagg_draft_input() has to supply the draft input. No other algorithm,
and no decode node without speculation, gets that input.
"""

import unittest
from unittest.mock import create_autospec

import torch

from sglang.srt.managers.overlap_utils import FutureMap, resolve_forward_inputs
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.kits.pd_handoff_kit import PDHandoffTestCase

register_cpu_ci(est_time=45, suite="base-a-test-cpu")

PROMPT_LENS = [40, 7, 90]
BONUS_TOKENS = [5, 17, 230]


class _HandoffTestCase(PDHandoffTestCase):
    def arrived(self, algorithm, *, overlap: bool, count: int = len(PROMPT_LENS)):
        """A decode node whose waiting queue holds ``count`` transferred requests."""
        rig = self.make_pd_rig(algorithm=algorithm, overlap=overlap)
        reqs = [
            rig.make_req(prompt_len=length, rid=f"r{length}")
            for length in PROMPT_LENS[:count]
        ]
        rig.arrive(reqs, bonus_tokens=BONUS_TOKENS[:count])
        return rig


class _DFlashFamilyHandoff:
    """What the handoff hands over, for one algorithm of the family."""

    algorithm: str

    def arrived(self, **options):
        return super().arrived(self.algorithm, **options)

    def prebuilt(self, rig):
        batch = rig.build_prebuilt()
        self.assertIsNotNone(batch.spec_info, "the handoff built no draft input")
        return batch

    def test_draft_input_holds_what_was_transferred(self):
        for overlap in (True, False):
            with self.subTest(overlap=overlap):
                draft_input = self.prebuilt(self.arrived(overlap=overlap)).spec_info

                self.assertEqual(draft_input.bonus_tokens.tolist(), BONUS_TOKENS)
                self.assertEqual(draft_input.new_seq_lens.tolist(), PROMPT_LENS)
                self.assertFalse(draft_input.future_dsa_topk_indices_available)
                for drafted_anew in ("topk_p", "topk_index", "hidden_states"):
                    self.assertEqual(getattr(draft_input, drafted_anew).numel(), 0)

    def test_overlap_seeds_the_relay(self):
        rig = self.arrived(overlap=True)
        batch = self.prebuilt(rig)

        rows = batch.spec_info.future_indices
        self.assertEqual(rows.tolist(), batch.req_pool_indices.tolist())
        relay = rig.future_map
        self.assertEqual(relay.new_seq_lens_buf[rows].tolist(), PROMPT_LENS)
        self.assertEqual(relay.output_tokens_buf[rows].tolist(), BONUS_TOKENS)

    def test_overlap_publishes_then_stashes_once(self):
        rig = self.arrived(overlap=True)
        relay = create_autospec(FutureMap, instance=True)
        rig.scheduler.future_map = relay
        batch = self.prebuilt(rig)

        self.assertEqual([name for name, *_ in relay.mock_calls], ["publish", "stash"])
        (rows, lens), _ = relay.publish.call_args
        self.assertTrue(torch.equal(rows, batch.req_pool_indices))
        self.assertTrue(torch.equal(lens, batch.seq_lens))
        (rows, payload), _ = relay.stash.call_args
        self.assertTrue(torch.equal(rows, batch.req_pool_indices))
        self.assertEqual(payload.bonus_tokens.tolist(), BONUS_TOKENS)
        self.assertIsNone(payload.dsa_topk_indices)

    def test_without_overlap_the_relay_is_left_alone(self):
        rig = self.arrived(overlap=False)
        relay = create_autospec(FutureMap, instance=True)
        rig.scheduler.future_map = relay
        batch = self.prebuilt(rig)

        self.assertEqual(relay.mock_calls, [])
        self.assertIsNone(batch.spec_info.future_indices)

    def test_first_decode_steps_run(self):
        for overlap in (True, False):
            for count in (1, len(PROMPT_LENS)):
                with self.subTest(overlap=overlap, count=count):
                    rig = self.arrived(overlap=overlap, count=count)
                    batch = rig.schedule()
                    self.assertEqual(batch.seq_lens_cpu.tolist(), PROMPT_LENS[:count])

                    accepted = [3, 1, 6][:count]
                    started_from = rig.forward(batch, accepted)
                    self.assertEqual(started_from, BONUS_TOKENS[:count])

                    started_from = rig.forward(rig.schedule(), accepted)
                    self.assertEqual(
                        started_from,
                        [a + b for a, b in zip(BONUS_TOKENS, accepted)],
                    )

    def test_arrivals_join_a_running_batch(self):
        for overlap in (True, False):
            with self.subTest(overlap=overlap):
                rig = self.arrived(overlap=overlap, count=2)
                rig.forward(rig.schedule(), [2, 4])
                done, joins = (rig.make_req(prompt_len=n, rid=f"n{n}") for n in (9, 60))
                rig.arrive([done, joins], bonus_tokens=[70, 80])
                done.sampling_params.max_new_tokens = 1

                batch = rig.schedule()

                self.assertEqual([r.rid for r in batch.reqs], ["r40", "r7", "n60"])
                self.assertTrue(done.finished())
                self.assertEqual(rig.forward(batch, [1, 1, 1]), [7, 21, 80])
                self.assertEqual(batch.seq_lens.tolist()[-1], 60 + (not overlap))


class TestDFlashHandoff(_DFlashFamilyHandoff, _HandoffTestCase):
    algorithm = "DFLASH"


class TestDSparkHandoff(_DFlashFamilyHandoff, _HandoffTestCase):
    algorithm = "DSPARK"


class TestOtherHandoffs(_HandoffTestCase):
    def test_no_other_algorithm_gets_a_dflash_input(self):
        for algorithm in SpeculativeAlgorithm:
            if algorithm.is_eagle() or algorithm.is_dflash_family():
                continue
            for overlap in (True, False):
                with self.subTest(algorithm=algorithm.name, overlap=overlap):
                    rig = self.arrived(algorithm.name, overlap=overlap)
                    # NGRAM's own buffers cannot take a bonus token alone.
                    rig.scheduler.future_map = create_autospec(FutureMap, instance=True)
                    self.assertIsNone(rig.build_prebuilt().spec_info)

    def test_without_speculation_the_first_decode_takes_the_bonus_tokens(self):
        for overlap in (True, False):
            with self.subTest(overlap=overlap):
                rig = self.arrived("NONE", overlap=overlap)
                batch = rig.schedule()
                resolve_forward_inputs(batch, rig.future_map)

                self.assertIsNone(batch.spec_info)
                self.assertEqual(batch.input_ids.tolist(), BONUS_TOKENS)


if __name__ == "__main__":
    unittest.main()
