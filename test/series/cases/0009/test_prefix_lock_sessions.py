"""Release of dead SWA prefixes while a session's slot holds the lock of its turns."""

import unittest
from itertools import product

from sglang.srt.managers.schedule_batch import FINISH_ABORT, FINISH_LENGTH
from sglang.srt.mem_cache.base_prefix_cache import EvictParams
from sglang.srt.session.session_controller import Session
from sglang.srt.session.streaming_session import StreamingSession
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.kits.spec_decode_caches import prefix_cache_kinds
from sglang.test.kits.spec_retract_kit import RetractTestCase, leave_swa

register_cpu_ci(est_time=15, suite="base-a-test-cpu")

WINDOW, ACCEPTED = 32, 4
# Locked from the window's first token on, or up to the root.
PROMPT_LENS = (100, 20)
# Part of the first prompt is dead, or all of it.
AGES = (3, 14)


class TestPrefixLockSessions(RetractTestCase):
    eviction_interval = 16

    def start_rig(self, cache="unified"):
        rig = self.make_rig(cache=cache, sliding_window=WINDOW)
        self.idle = rig.free_counts()
        self.session = Session(1 << 20, session_id="s", streaming=True)
        return rig

    def start(self, rig, prompt_len, steps=0):
        """A turn of the session, ``steps`` decode steps later."""
        req = rig.make_req(prompt_len=prompt_len, rid="turn")
        req.session = self.session
        batch = rig.start([req])
        for _ in range(steps):
            rig.step(batch, accepted=ACCEPTED)
        return batch

    def reclaim(self, rig, batch):
        """Let a memory check find no SWA slot, neither free nor in the tree."""
        while not batch.new_tokens_required_next_decode():
            rig.step(batch, accepted=1)
        cache, slots = rig.tree_cache, rig.allocator.swa_attn_allocator
        evictable = cache.swa_evictable_size()
        cache.evict(EvictParams(num_tokens=0, swa_num_tokens=evictable))
        taken = leave_swa(rig, 0)
        batch.check_decode_mem()
        slots.free(taken)

    def end(self, rig, batch):
        """End a turn. Returns how long the prompt of the next one is, which begins
        with what this one has put out."""
        (req,) = batch.reqs
        req.finished_reason = FINISH_LENGTH(length=len(req.output_ids))
        req.finished_len = len(req.output_ids)
        rig.release(req)
        return len(req.origin_input_ids) + len(req.output_ids) + 9

    def close(self, rig):
        rig.tree_cache.release_session("s")
        self.assert_idle(rig, self.idle)
        rig.tree_cache.sanity_check()

    def run_session(self, rig, turns, steps):
        """Yield what each turn locks before its memory checks, and after them."""
        prompt_len = PROMPT_LENS[0]
        for _ in range(turns):
            batch = self.start(rig, prompt_len, steps)
            before = rig.tree_cache.swa_protected_size()
            for _ in range(2):
                self.reclaim(rig, batch)
            yield before, rig.tree_cache.swa_protected_size()
            prompt_len = self.end(rig, batch)
        self.close(rig)

    def test_turns_give_up_the_lock_of_the_slot(self):
        for turns, steps in product((1, 2, 3), AGES):
            with self.subTest(turns=turns, steps=steps):
                rig = self.start_rig()
                for _, locked in self.run_session(rig, turns, steps):
                    self.assertLessEqual(locked, max(0, WINDOW - steps * ACCEPTED))

    if "radix" in prefix_cache_kinds():

        def test_wrapper_around_another_cache_keeps_its_locks(self):
            # It does not hand the request on, whose lock its slot may hold.
            for turns, steps in product((1, 2, 3), AGES):
                with self.subTest(turns=turns, steps=steps):
                    rig = self.start_rig("radix")
                    wrapped = StreamingSession(rig.tree_cache)
                    rig.tree_cache = rig.scheduler.tree_cache = wrapped
                    for before, locked in self.run_session(rig, turns, steps):
                        self.assertGreater(before, 0)
                        self.assertEqual(locked, before)

    def start_beside_another(self, rig, prompt_len, steps):
        """A first turn that has given up its lock, and another request that locks
        the same prefix: the turn's batch, the request and what it locks."""
        batch = self.start(rig, prompt_len, steps)
        self.reclaim(rig, batch)
        self.assertEqual(rig.tree_cache.swa_protected_size(), 0)
        other = rig.make_req(prompt_len=prompt_len, rid="other")
        rig.start([other])
        return batch, other, rig.tree_cache.swa_protected_size()

    def test_session_leaves_the_locks_of_others(self):
        for turns, prompt_len in product((1, 2), PROMPT_LENS):
            with self.subTest(turns=turns, prompt_len=prompt_len):
                rig = self.start_rig()
                batch, other, locked = self.start_beside_another(
                    rig, prompt_len, AGES[-1]
                )
                for _ in range(1, turns):
                    batch = self.start(rig, self.end(rig, batch), steps=1)
                    self.reclaim(rig, batch)
                self.end(rig, batch)
                rig.tree_cache.release_session("s")
                self.assertEqual(rig.tree_cache.swa_protected_size(), locked)
                rig.release(other)
                self.close(rig)

    def test_aborted_turn_leaves_the_locks_of_others(self):
        for prompt_len in PROMPT_LENS:
            with self.subTest(prompt_len=prompt_len):
                rig = self.start_rig()
                batch, other, locked = self.start_beside_another(
                    rig, prompt_len, AGES[-1]
                )
                (req,) = batch.reqs
                req.finished_reason = FINISH_ABORT()
                rig.release(req)
                self.assertEqual(rig.tree_cache.swa_protected_size(), locked)
                rig.release(other)
                self.close(rig)


if __name__ == "__main__":
    unittest.main()
