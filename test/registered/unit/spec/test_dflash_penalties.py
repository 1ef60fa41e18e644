"""Sampling penalties reach the verify logits of DFLASH and DSPARK.

Every token that a request has output counts, however many a verify step
commits. The penalties are relaxed as under EAGLE: all positions of a verify
block see what was committed before it, and under overlap the step in flight is
not known yet.
"""

import unittest
from types import SimpleNamespace
from unittest.mock import patch

import torch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.kits.pd_handoff_kit import PDHandoffTestCase
from sglang.test.kits.spec_decode_kit import (
    VOCAB_SIZE,
    SpecDecodeRig,
    SpecDecodeTestCase,
)

# isort: split
from sglang.srt.sampling.penaltylib import BatchedPenalizerOrchestrator
from sglang.srt.sampling.penaltylib.frequency_penalty import BatchedFrequencyPenalizer
from sglang.srt.sampling.penaltylib.orchestrator import _BatchedPenalizer
from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo
from sglang.srt.speculative.dflash_utils import apply_dflash_verify_logits_adjustments
from sglang.srt.speculative.dflash_worker_v2 import DFlashWorkerV2
from sglang.srt.speculative.dspark_components.dspark_verify import (
    verify_logits_adjustments_are_noop,
)

register_cpu_ci(est_time=20, suite="base-a-test-cpu")

ALGORITHMS = ("DFLASH", "DSPARK")
BLOCK = 6
EOS = 5
PENALTIES = (
    {"frequency_penalty": 0.5},
    {"presence_penalty": 0.7},
    {"repetition_penalty": 1.3},
    {"min_new_tokens": 7},
    {
        "frequency_penalty": -0.4,
        "presence_penalty": 0.2,
        "repetition_penalty": 0.8,
        "min_new_tokens": 4,
    },
)


class TokenRig(SpecDecodeRig):
    """Accepts a few different tokens over and over, and not only ones."""

    def process_result(self):
        done = {id(req): len(req.output_ids) for req, _ in self._in_flight or ()}
        reqs = [req for req, _ in self._in_flight or ()]
        super().process_result()
        for req in reqs:
            for i in range(done[id(req)], len(req.output_ids)):
                req.output_ids[i] = 40 + (i * i) % 7


class PenaltyTestCase(SpecDecodeTestCase):
    draft_tokens = BLOCK

    def setUp(self):
        super().setUp()
        # The compiled penalty kernel would want a compiler.
        eager = torch.compiler.set_stance("force_eager")
        eager.__enter__()
        self.addCleanup(eager.__exit__, None, None, None)

    def penalized(self, rig, rid="r0", **penalties):
        req = rig.make_req(prompt_len=12, rid=rid)
        req.tokenizer = SimpleNamespace(
            additional_stop_token_ids=None, eos_token_id=EOS
        )
        for name, value in penalties.items():
            setattr(req.sampling_params, name, value)
        return req

    def verify_logits(self, batch):
        """The verify logits of a prepared batch: before, and as verified."""
        torch.manual_seed(0)
        logits = torch.randn(len(batch.reqs) * BLOCK, VOCAB_SIZE)
        adjusted = logits.clone()
        apply_dflash_verify_logits_adjustments(
            next_token_logits=adjusted,
            sampling_info=batch.sampling_info.copy_for_forward(),
            draft_token_num=BLOCK,
        )
        return logits, adjusted

    def expected(self, batch, logits):
        """What the parameters mean, a token at a time."""
        rows = logits.clone().view(len(batch.reqs), BLOCK, VOCAB_SIZE)
        for row, req in zip(rows, batch.reqs):
            params, seen = req.sampling_params, list(req.output_ids)
            if len(seen) < params.min_new_tokens:
                row[:, EOS] = float("-inf")
            for token in set(seen):
                row[:, token] -= params.frequency_penalty * seen.count(token)
                row[:, token] -= params.presence_penalty
                scale = params.repetition_penalty
                row[:, token] *= torch.where(row[:, token] < 0, scale, 1 / scale)
        return rows.view_as(logits)

    def assert_penalized(self, batch):
        logits, adjusted = self.verify_logits(batch)
        torch.testing.assert_close(adjusted, self.expected(batch, logits))


class TestVerifyLogits(PenaltyTestCase):
    def test_every_output_token_counts(self):
        for algorithm in ALGORITHMS:
            for overlap in (False, True):
                for penalties in PENALTIES:
                    with self.subTest(
                        algorithm=algorithm, overlap=overlap, **penalties
                    ):
                        rig = self.make_rig(
                            algorithm=algorithm, overlap=overlap, rig_class=TokenRig
                        )
                        batch = rig.start([self.penalized(rig, **penalties)])
                        for accepted in (3, 1, 6, 2, 4):
                            batch.prepare_for_decode()
                            self.assert_penalized(batch)
                            rig.forward(batch, accepted)

    def test_requests_differ_merge_and_leave(self):
        rig = self.make_rig(algorithm="DSPARK", rig_class=TokenRig)
        batch = rig.start([self.penalized(rig, rid="plain")])
        rig.step(batch, accepted=5)
        self.assert_penalized(batch)
        self.assertIsNone(batch.sampling_info.copy_for_forward().acc_additive_penalties)

        reqs = [
            self.penalized(rig, rid=f"r{i}", **penalties)
            for i, penalties in enumerate(PENALTIES[:4])
        ]
        batch.merge_batch(rig.start(reqs))
        rig.set_draft_input(batch)
        for accepted in ((2, 3, 1, 6, 4), (1, 1, 5, 2, 6)):
            batch.prepare_for_decode()
            self.assert_penalized(batch)
            rig.forward(batch, accepted)

        batch.filter_batch(keep_indices=[0, 2, 4])
        for accepted in ((2, 3, 1), (6, 1, 5)):
            batch.prepare_for_decode()
            self.assert_penalized(batch)
            rig.forward(batch, accepted)

    def test_eagle_feeds_a_token_of_each_request_as_before(self):
        for penalties in PENALTIES:
            with self.subTest(**penalties):
                rig = self.make_rig(algorithm="EAGLE", rig_class=TokenRig)
                reqs = [
                    self.penalized(rig, rid="r0", **penalties),
                    self.penalized(rig, rid="r1"),
                ]
                batch = rig.start(reqs)
                for _ in range(9):
                    batch.prepare_for_decode()
                    self.assert_penalized(batch)
                    rig.forward(batch, accepted=1)

    def test_penalizer_of_one_token_a_row_refuses_more(self):
        name = "_cumulate_ragged_output_tokens"
        inherited = getattr(_BatchedPenalizer, name, None)
        rig = self.make_rig(algorithm="DFLASH")
        batch = rig.start([self.penalized(rig, frequency_penalty=0.5)])
        with patch.object(BatchedFrequencyPenalizer, name, inherited, create=True):
            with self.assertRaises(NotImplementedError):
                batch.prepare_for_decode()

    def test_only_what_a_penalty_asks_for_is_fed(self):
        fed = []
        feed = BatchedPenalizerOrchestrator.cumulate_output_tokens

        def watched(orchestrator, output_ids, *args):
            fed.append(len(output_ids))
            feed(orchestrator, output_ids, *args)

        watch = patch.object(
            BatchedPenalizerOrchestrator, "cumulate_output_tokens", watched
        )
        watch.__enter__()
        self.addCleanup(watch.__exit__, None, None, None)

        rig = self.make_rig(algorithm="DFLASH")
        batch = rig.start([self.penalized(rig, rid="plain")])
        rig.step(batch, accepted=5)
        self.assertEqual(fed, [])
        # The first token of the one that joins, and not all of the other.
        batch.merge_batch(rig.start([self.penalized(rig, rid="a", min_new_tokens=3)]))
        rig.set_draft_input(batch)
        rig.step(batch, accepted=5)
        self.assertEqual(fed, [1])
        rig.step(batch, accepted=5)
        self.assertEqual(fed, [1, 5])

        # Nothing more once the last that has a penalty is gone.
        fed.clear()
        batch = rig.start(
            [
                self.penalized(rig, rid="b"),
                self.penalized(rig, rid="c", min_new_tokens=3),
            ]
        )
        batch.prepare_for_decode()
        self.assertEqual(fed, [2])
        batch.filter_batch(keep_indices=[0])
        rig.forward(batch, accepted=5)
        batch.prepare_for_decode()
        self.assertEqual(fed, [2])

    def test_output_before_a_retraction_counts(self):
        rig = self.make_rig(algorithm="DFLASH", rig_class=TokenRig)
        batch = rig.start([self.penalized(rig, frequency_penalty=0.5)])
        for _ in range(3):
            rig.step(batch, accepted=4)
        # As the prefill does that resumes it.
        batch.sampling_info = SamplingBatchInfo.from_schedule_batch(batch, VOCAB_SIZE)
        batch.prepare_for_decode()
        self.assert_penalized(batch)

    def test_mask_and_bias_come_after_the_penalties(self):
        rig = self.make_rig(algorithm="DFLASH", rig_class=TokenRig)
        batch = rig.start([self.penalized(rig, repetition_penalty=1.3)])
        rig.step(batch, accepted=4)
        batch.prepare_for_decode()
        logits, _ = self.verify_logits(batch)
        expected = self.expected(batch, logits)
        expected[:, 44] = float("-inf")
        expected[:, 40] += 2.0

        info = batch.sampling_info
        info.logit_bias = torch.zeros(1, VOCAB_SIZE)
        info.logit_bias[0, 40] = 2.0

        def forbid(logits):
            logits[:, 44] = float("-inf")

        if hasattr(info, "grammar_mask"):
            info.grammar_mask = SimpleNamespace(apply=forbid)
        else:
            info.vocab_mask = torch.ones(1)
            info.apply_mask_func = lambda logits, vocab_mask: forbid(logits)
        _, adjusted = self.verify_logits(batch)
        torch.testing.assert_close(adjusted, expected)

    def test_no_shortcut_past_the_penalties(self):
        rig = self.make_rig(algorithm="DSPARK", rig_class=TokenRig)
        for penalties, noop in (({"repetition_penalty": 1.1}, False), ({}, True)):
            with self.subTest(noop=noop):
                batch = rig.start([self.penalized(rig, **penalties)])
                batch.has_grammar = batch.return_logprob = False
                info = batch.sampling_info.copy_for_forward()
                info.is_all_greedy = True
                self.assertIs(verify_logits_adjustments_are_noop(info), noop)
                if hasattr(DFlashWorkerV2, "_can_skip_verify_logits"):
                    worker = SimpleNamespace(_selector_sample=None)
                    skips = DFlashWorkerV2._can_skip_verify_logits(worker, batch, info)
                    self.assertIs(skips, noop)


class TestGreedyLoop(PenaltyTestCase):
    def test_a_penalty_ends_a_loop(self):
        """A model that says 7 for ever unless that costs more than 3, and a draft
        that always agrees."""
        for penalties in ({"frequency_penalty": 0.25}, {"repetition_penalty": 5.0}):
            with self.subTest(**penalties):
                rig = self.make_rig(algorithm="DFLASH")
                req = self.penalized(rig, **penalties)
                batch = rig.start([req])
                for _ in range(8):
                    batch.prepare_for_decode()
                    logits = torch.full((BLOCK, VOCAB_SIZE), 1.0)
                    logits[:, 7] = 4.0
                    apply_dflash_verify_logits_adjustments(
                        next_token_logits=logits,
                        sampling_info=batch.sampling_info.copy_for_forward(),
                        draft_token_num=BLOCK,
                    )
                    # The draft is a block of sevens: a greedy verify takes the
                    # sevens at its head and the target's next token.
                    predicted = logits.argmax(dim=-1).tolist()
                    agreed = next(
                        (i for i in range(BLOCK - 1) if predicted[i] != 7), BLOCK - 1
                    )
                    rig.forward(batch, accepted=agreed + 1)
                    for i in range(agreed + 1):
                        req.output_ids[i - agreed - 1] = predicted[i]
                sevens = list(req.output_ids).count(7)
                self.assertGreater(sevens, 0)
                # At the latest a block after the penalty outweighs the logit.
                self.assertLess(sevens, 12 + 1 + BLOCK)


class TestHandoff(PenaltyTestCase, PDHandoffTestCase):
    def test_the_transferred_token_counts(self):
        for overlap in (False, True):
            with self.subTest(overlap=overlap):
                rig = self.make_pd_rig(algorithm="DSPARK", overlap=overlap)
                req = self.penalized(rig, presence_penalty=0.7)
                rig.arrive([req], bonus_tokens=[50])
                batch = rig.schedule()
                self.assertEqual(list(req.output_ids), [50])
                self.assert_penalized(batch)


if __name__ == "__main__":
    unittest.main()
