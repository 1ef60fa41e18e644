"""What forwards read is seen: each sabotage ends in an error."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from decode_simulator import state
from decode_simulator.config import NodeConfig
from decode_simulator.forward import Uniform
from decode_simulator.node import Node

PROMPT_LEN, WINDOW = 40, 16


class TestKV(unittest.TestCase):
    def setUp(self):
        config = NodeConfig(
            full_size=512,
            swa_size=256,
            page_size=1,
            sliding_window=WINDOW,
            eviction_interval=8,
        )
        self.node = Node(config, Uniform(0, high=config.draft_tokens), reads_kv=True)
        self.node.__enter__()
        self.addCleanup(self.node.__exit__)
        self.reqs = [self.submit(rid, number) for number, rid in enumerate("ab")]
        self.turns(5)
        fixture = self.node.fixture
        self.allocator, self.rows = fixture.allocator, fixture.req_to_token_pool

    def submit(self, rid, number):
        return self.node.submit(
            prompt_len=PROMPT_LEN, max_new_tokens=100, rid=rid, first_token=number
        )

    def turns(self, count):
        for _ in range(count):
            self.node.turn()

    def row(self, req):
        """The slots of a request, by position, in place."""
        return torch.from_numpy(state.row_slots(req, self.rows.req_to_token))

    def oldest_of_the_window(self, req):
        return self.row(req)[req.seqlen - 1 - WINDOW : req.seqlen - WINDOW].long()

    def test_all_is_right(self):
        reads = self.node.forward.kv.reads
        self.turns(10)
        self.assertGreater(self.node.forward.kv.reads, reads + 10 * 2 * WINDOW)

    def test_window_that_is_short(self):
        self.allocator.free_swa(self.oldest_of_the_window(self.reqs[0]))
        with self.assertRaisesRegex(AssertionError, "a: of 16 SWA slots .* are free"):
            self.turns(2)

    def test_prompt_that_is_free(self):
        self.allocator.full_attn_allocator.free(self.row(self.reqs[1])[3:7].long())
        with self.assertRaisesRegex(AssertionError, "b: .* full slots .* are free"):
            self.turns(2)

    def test_slots_that_are_swapped(self):
        row = self.row(self.reqs[0])
        row[[5, 6]] = row[[6, 5]]
        with self.assertRaisesRegex(AssertionError, "and 2 hold another token"):
            self.turns(2)

    def test_slot_of_two_requests(self):
        mapping = self.allocator.full_to_swa_index_mapping
        last = [self.row(req)[req.seqlen - 2].long() for req in self.reqs]
        mapping[last[0]] = mapping[last[1]]
        with self.assertRaisesRegex(AssertionError, "a: .* hold another token"):
            self.turns(2)


if __name__ == "__main__":
    unittest.main()
