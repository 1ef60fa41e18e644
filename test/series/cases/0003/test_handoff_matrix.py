"""Requests come and go on a decode node, and each decodes on from its own token.

The handoff over overlap, page size, kind of attention and batch size: every
iteration resolves, for every request, the token and the length that it has
come to, whatever was merged and filtered around it and whoever had its row.
"""

import random
import unittest

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.kits.pd_handoff_kit import PDHandoffTestCase

# isort: split
from sglang.srt.managers.schedule_batch import FINISH_LENGTH

register_cpu_ci(est_time=30, suite="base-a-test-cpu")

ITERATIONS = 40
MAX_RUNNING = 6


class Expected:
    """What must be known of a request: its next bonus token and its length."""

    def __init__(self, req, token: int):
        self.req = req
        self.token = token
        self.seq_len = len(req.origin_input_ids)
        self.steps_left = 0

    def accept(self, count: int) -> None:
        self.token += count
        self.seq_len += count
        self.steps_left -= 1


class _Matrix:
    algorithm: str

    def test_requests_come_and_go(self):
        for overlap in (True, False):
            for page_size in (1, 64):
                for hybrid_swa in (True, False):
                    for arrivals in (1, 4):
                        options = dict(
                            overlap=overlap, page_size=page_size, hybrid_swa=hybrid_swa
                        )
                        with self.subTest(arrivals=arrivals, **options):
                            self.come_and_go(arrivals, options)

    def come_and_go(self, arrivals: int, options: dict) -> None:
        rng = random.Random(f"{self.algorithm}{arrivals}{options}")
        # Rows enough for what has finished and is not filtered yet.
        rig = self.make_pd_rig(
            algorithm=self.algorithm, max_reqs=2 * MAX_RUNNING, **options
        )
        rows = rig.req_to_token_pool.available_size()
        running: dict[str, Expected] = {}
        for iteration in range(ITERATIONS):
            if rng.random() < 0.5:
                room = MAX_RUNNING - len(running)
                for i in range(min(rng.randint(1, arrivals), room)):
                    self.arrive(rig, running, f"r{iteration}.{i}", rng)
            batch = rig.schedule()
            if batch is None:
                continue
            self.assertEqual({r.rid for r in batch.reqs}, set(running))
            self.step(rig, batch, running, rng)
        self.finish_all(rig, running)
        self.assertEqual(rig.full_used(), 0)
        self.assertEqual(rig.req_to_token_pool.available_size(), rows)
        if options["hybrid_swa"]:
            self.assertEqual(rig.swa_used(), 0)

    def arrive(self, rig, running, rid, rng) -> None:
        req = rig.make_req(prompt_len=rng.randint(1, 150), rid=rid)
        expected = Expected(req, token=rng.randint(1, 200))
        expected.steps_left = rng.randint(1, 12)
        rig.arrive([req], bonus_tokens=[expected.token])
        running[rid] = expected

    def step(self, rig, batch, running, rng) -> None:
        """One iteration; a request whose time is up leaves after it."""
        expected = [running[req.rid] for req in batch.reqs]
        accepted = [rng.randint(1, self.draft_tokens) for _ in expected]
        lens = [e.seq_len for e in expected]
        if not rig.overlap:
            self.assertEqual(batch.seq_lens.tolist(), lens)
        tokens = rig.forward(batch, accepted)
        self.assertEqual(tokens, [e.token for e in expected])
        after = [n + count for n, count in zip(lens, accepted)]
        resolved = lens if rig.overlap else after
        self.assertEqual(batch.seq_lens.tolist(), resolved)
        for one, count in zip(expected, accepted):
            one.accept(count)
            if one.steps_left <= 0:
                self.finish(rig, running.pop(one.req.rid).req)

    def finish(self, rig, req) -> None:
        rig.process_result()
        req.finished_reason = FINISH_LENGTH(length=len(req.output_ids))
        rig.release(req)

    def finish_all(self, rig, running) -> None:
        for one in running.values():
            self.finish(rig, one.req)
        running.clear()
        self.assertIsNone(rig.schedule())


class TestDFlashMatrix(_Matrix, PDHandoffTestCase):
    algorithm = "DFLASH"


class TestDSparkMatrix(_Matrix, PDHandoffTestCase):
    algorithm = "DSPARK"


if __name__ == "__main__":
    unittest.main()
