"""A row of ``req_to_token`` holds the decode reserve up to the context's end.

Every speculative step reserves two verify blocks beyond what is committed. What a
row cannot hold is written into the next request's row, and no release finds it.
"""

import unittest
from types import SimpleNamespace
from unittest.mock import patch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.kits.spec_decode_kit import SpecDecodeRig, SpecDecodeTestCase

# isort: split
from sglang.srt.mem_cache import allocation
from sglang.srt.mem_cache.kv_cache_configurator import KVCacheConfigurator
from sglang.srt.runtime_context import get_context, get_server_args

register_cpu_ci(est_time=12, suite="base-a-test-cpu")

CONTEXT_LEN = 200
# NGRAM and EAGLE share the writer, and the reserve that it writes.
ALGORITHMS = ("DFLASH", "DSPARK", "EAGLE", "NGRAM")


def served_row_width() -> int:
    """The columns that a server of the current configuration gives a request."""
    configurator = KVCacheConfigurator.__new__(KVCacheConfigurator)
    configurator.server_args = get_server_args()
    configurator.model_config = SimpleNamespace(context_len=CONTEXT_LEN)
    configurator.mambaish_config = None
    configurator.device = "cpu"
    pool = configurator._build_req_to_token_pool(max_num_reqs=2)
    return pool.req_to_token.shape[1]


class ServedRowRig(SpecDecodeRig):
    """A rig with rows as wide as the server's."""

    def __init__(self, **options) -> None:
        super().__init__(**{"max_context_len": served_row_width(), **options})


def write_rows(rows, table, start_offset, end_offset, slots, batch_size) -> None:
    """``assign_req_to_token_pool`` for a CPU: as the kernel, it takes the table for
    one run of memory and stops at no row's end."""
    flat, width, taken = table.view(-1), table.shape[1], 0
    for row, start, end in zip(
        rows.tolist(), start_offset.tolist(), end_offset.tolist(), strict=True
    ):
        run = slice(row * width + start, row * width + end)
        flat[run] = slots[taken : taken + end - start].to(table.dtype)
        taken += end - start


class RowTestCase(SpecDecodeTestCase):
    draft_tokens = 17  # gamma 16, the default of DSPARK

    def setUp(self) -> None:
        super().setUp()
        writer = patch.object(allocation, "assign_req_to_token_pool_func", write_rows)
        writer.start()
        self.addCleanup(writer.stop)

    def start_neighbours(self, *prompt_lens: int, **options):
        """Two requests in neighbouring rows."""
        rig = self.make_rig(
            rig_class=ServedRowRig, draft_tokens=self.draft_tokens, **options
        )
        reqs = [
            rig.make_req(rid=f"r{i}", prompt_len=length, first_token=100 * i + 1)
            for i, length in enumerate(prompt_lens)
        ]
        batch = rig.start(reqs)
        first_row, second_row = batch.req_pool_indices.tolist()
        self.assertEqual(second_row, first_row + 1)
        return rig, batch

    def rows(self, rig, batch):
        return rig.req_to_token_pool.req_to_token[batch.req_pool_indices]


class TestContextEnd(RowTestCase):
    def decode_to_the_end(self, rig, batch) -> None:
        """The last step of a request starts with CONTEXT_LEN - 3 tokens: with one
        more it has all that the scheduler lets it have, and finishes."""
        while batch.reqs[0].seqlen < CONTEXT_LEN - 3:
            rig.step(batch, accepted=1)
        batch.prepare_for_decode()

    def test_neighbour_keeps_its_row(self):
        for algorithm in ALGORITHMS:
            for page_size in (1, 16, 64):
                with self.subTest(algorithm=algorithm, page_size=page_size):
                    rig, batch = self.start_neighbours(
                        CONTEXT_LEN - 10, 40, algorithm=algorithm, page_size=page_size
                    )
                    prompt = self.rows(rig, batch)[1, :40].tolist()
                    self.decode_to_the_end(rig, batch)
                    self.assertEqual(self.rows(rig, batch)[1, :40].tolist(), prompt)

    def test_everything_is_freed(self):
        for algorithm in ALGORITHMS:
            for page_size in (1, 16, 64):
                with self.subTest(algorithm=algorithm, page_size=page_size):
                    rig, batch = self.start_neighbours(
                        CONTEXT_LEN - 10, 40, algorithm=algorithm, page_size=page_size
                    )
                    self.decode_to_the_end(rig, batch)
                    for req in batch.reqs:
                        rig.release(req)
                    self.assertEqual((rig.full_used(), rig.swa_used()), (0, 0))

    def test_row_holds_the_reserve_and_no_more(self):
        # Two blocks, in whole pages from any length; a few columns at least.
        for draft_tokens, page_size, extra in ((17, 1, 34), (17, 16, 49), (2, 1, 6)):
            with self.subTest(draft_tokens=draft_tokens, page_size=page_size):
                self.draft_tokens = draft_tokens
                self.make_rig(page_size=page_size)
                self.assertEqual(served_row_width(), CONTEXT_LEN + extra)

    def test_row_without_speculation(self):
        config = get_context().override_server_args(
            speculative_algorithm=None, speculative_num_draft_tokens=None, page_size=16
        )
        config.install()
        self.addCleanup(config.restore)
        self.assertEqual(served_row_width(), CONTEXT_LEN + 4)


class TestNarrowRow(RowTestCase):
    def test_is_refused_before_anything_is_taken(self):
        for algorithm in ALGORITHMS:
            with self.subTest(algorithm=algorithm):
                rig, batch = self.start_neighbours(
                    40, 150, algorithm=algorithm, max_context_len=183
                )
                table = self.rows(rig, batch).clone()
                used = rig.full_used()
                with self.assertRaises(RuntimeError) as caught:
                    batch.prepare_for_decode()
                for word in ("r1", "184", "183"):
                    self.assertIn(word, str(caught.exception))
                self.assertTrue(self.rows(rig, batch).equal(table))
                self.assertEqual(rig.full_used(), used)

    def test_that_just_fits_is_written(self):
        rig, batch = self.start_neighbours(40, 150, max_context_len=184)
        batch.prepare_for_decode()
        rig.release(batch.reqs[0])
        rig.release(batch.reqs[1])
        self.assertEqual((rig.full_used(), rig.swa_used()), (0, 0))


if __name__ == "__main__":
    unittest.main()
