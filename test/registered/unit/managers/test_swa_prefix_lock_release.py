"""A running request gives up the SWA of its prefix that it no longer reads.

A request locks the last window of its prompt in the tree, and keeps it locked
until it finishes, though its own window moves on. Before a retraction the tree
may have back what lies behind the window; the rest, and what others lock, stays.
"""

import functools
import unittest
from unittest.mock import MagicMock, patch

from sglang.srt.environ import envs
from sglang.srt.mem_cache.base_prefix_cache import EvictParams
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.kits.features import (
    HAS_PREFILL_SWA_OPTION,
    HAS_RETAIN_FLOOR,
    HAS_UNIFIED_TREE_CORE,
)
from sglang.test.kits.spec_decode_caches import prefix_cache_kinds
from sglang.test.kits.spec_retract_kit import RetractTestCase, leave_swa

register_cpu_ci(est_time=15, suite="base-a-test-cpu")

PROMPT_LEN = 100
WINDOW = 32
ACCEPTED = 4
# Steps until the window has just left the prompt.
LEAVES = WINDOW // ACCEPTED
if HAS_PREFILL_SWA_OPTION:
    EARLY_RELEASE = envs.SGLANG_OPT_RELEASE_PREFILL_SWA
else:
    EARLY_RELEASE = envs.SGLANG_OPT_SWA_RELEASE_LEAF_LOCK_AFTER_WINDOW


def each_cache(**options):
    """Run a test with each cache that shares prefixes."""
    options = dict(sliding_window=WINDOW) | options

    def decorate(test):
        @functools.wraps(test)
        def run(self):
            for cache in prefix_cache_kinds()[1:]:
                with self.subTest(cache=cache):
                    rig = self.make_rig(cache=cache, **options)
                    self.idle, self.taken = rig.free_counts(), []
                    test(self, rig)

        return run

    return decorate


class TestSwaPrefixLockRelease(RetractTestCase):
    # What the requests own themselves is evicted at each step.
    eviction_interval = 1

    def start(self, rig, rids="ab", *, steps):
        """Requests of different prompts, ``steps`` decode steps later."""
        reqs = [
            rig.make_req(prompt_len=PROMPT_LEN, rid=rid, first_token=ord(rid))
            for rid in rids
        ]
        batch = rig.start(reqs)
        for _ in range(steps):
            rig.step(batch, accepted=ACCEPTED)
        return batch

    def old_and_young(self, rig):
        """Two requests of one prompt, and the batch of the old one, whose window has
        left it; the young one has not started."""
        old, young = [
            rig.make_req(prompt_len=PROMPT_LEN, rid=rid, first_token=1)
            for rid in ("old", "young")
        ]
        batch = rig.start([old])
        for _ in range(LEAVES + 2):
            rig.step(batch, accepted=ACCEPTED)
        return old, young, batch

    def evict_swa(self, rig):
        """Evict all SWA that the tree may evict."""
        evictable = rig.tree_cache.swa_evictable_size()
        rig.tree_cache.evict(EvictParams(num_tokens=0, swa_num_tokens=evictable))
        self.assertEqual(rig.tree_cache.swa_evictable_size(), 0)
        return evictable

    def take_all(self, rig):
        """Leave no SWA slot, neither free nor in the tree."""
        self.evict_swa(rig)
        self.taken.append(leave_swa(rig, 0))

    def give_back(self, rig):
        """Undo :meth:`take_all`."""
        while self.taken:
            rig.allocator.swa_attn_allocator.free(self.taken.pop())

    def reclaim(self, rig, batch):
        """Let the memory check fail once, so that it reclaims what is dead."""
        self.take_all(rig)
        return batch.check_decode_mem()

    def locked(self, rig):
        return rig.tree_cache.swa_protected_size()

    def no_split(self, rig):
        """Fail where the tree splits a node."""
        tree = getattr(rig.tree_cache, "tree_core", rig.tree_cache)
        return patch.object(tree, "_split_node", side_effect=self.failureException)

    def finish(self, rig, reqs):
        """All slots come back, and no lock is left."""
        rig.process_result()
        for req in reqs:
            rig.release(req)
        self.give_back(rig)
        self.assert_idle(rig, self.idle)
        rig.tree_cache.sanity_check()

    def assert_window_is_there(self, rig, req):
        """What the next forward of ``req``, or the one in flight, may read."""
        holder = req.kv if hasattr(req.kv, "req_pool_idx") else req
        row = rig.req_to_token_pool.req_to_token[holder.req_pool_idx]
        last = req.seqlen - 1
        slots = row[max(0, last - WINDOW) : last].long()
        mapping = rig.allocator.full_to_swa_index_mapping
        self.assertTrue(bool((mapping[slots] > 0).all()))

    @each_cache()
    def test_prefix_behind_the_window_prevents_retraction(self, rig):
        batch = self.start(rig, steps=LEAVES + 2)
        self.assertGreaterEqual(self.locked(rig), 2 * WINDOW)
        # What the requests own does for a step; the prompts do for many.
        for _ in range(4):
            self.take_all(rig)
            batch = rig.decode(batch, accepted=ACCEPTED)
        self.assertEqual(rig.retracted, [])
        self.assertEqual(self.locked(rig), 0)
        self.finish(rig, batch.reqs)

    @each_cache()
    def test_only_what_is_dead_is_given_up(self, rig):
        batch = self.start(rig, steps=3)
        dead_end = batch.reqs[0].seqlen - 1 - WINDOW
        self.assertLess(dead_end, PROMPT_LEN)
        self.assertTrue(self.reclaim(rig, batch))
        self.assertEqual(self.locked(rig), 2 * (PROMPT_LEN - dead_end))
        self.finish(rig, batch.reqs)

    @each_cache()
    def test_lock_is_kept_until_the_window_has_left(self, rig):
        batch = self.start(rig, "a", steps=LEAVES)
        (req,) = batch.reqs
        req.output_ids.pop()
        self.reclaim(rig, batch)
        self.assertEqual(self.locked(rig), 1)
        req.output_ids.append(1)
        self.reclaim(rig, batch)
        self.assertEqual(self.locked(rig), 0)
        self.finish(rig, batch.reqs)

    @each_cache()
    def test_first_token_is_given_up(self, rig):
        batch = rig.start([rig.make_req(prompt_len=WINDOW)])
        rig.step(batch, accepted=1)
        self.reclaim(rig, batch)
        self.assertEqual(self.locked(rig), WINDOW - 1)
        self.finish(rig, batch.reqs)

    @each_cache()
    def test_lock_without_a_boundary(self, rig):
        # A prefix within one window is locked up to the root.
        shared, prompt_len = 10, 20
        for length in (shared, prompt_len):
            req = rig.make_req(prompt_len=length, rid="r")
            batch = rig.start([req])
            if length == shared:
                rig.release(req)
        for _ in range(WINDOW + shared - prompt_len):
            rig.step(batch, accepted=1)
        # What is dead ends where a node does.
        self.assertEqual(req.seqlen - 1 - WINDOW, shared)
        with self.no_split(rig):
            self.reclaim(rig, batch)
        self.assertEqual(self.locked(rig), prompt_len - shared)
        self.finish(rig, [req])

    @each_cache()
    def test_prefix_within_the_window_is_kept(self, rig):
        prompt_len = WINDOW - 2
        batch = rig.start([rig.make_req(prompt_len=prompt_len)])
        (req,) = batch.reqs
        for step in range(3):
            if step:
                rig.step(batch, accepted=1)
            self.reclaim(rig, batch)
            self.assertEqual(self.locked(rig), prompt_len)
            self.give_back(rig)
        self.assertEqual(req.seqlen - 1, WINDOW)
        self.finish(rig, batch.reqs)

    @each_cache(overlap=True)
    def test_extend_in_flight_keeps_its_window(self, rig):
        first, second = [
            rig.make_req(prompt_len=length, rid="r", first_token=1)
            for length in (PROMPT_LEN, 2 * PROMPT_LEN)
        ]
        rig.start([first])
        rig.process_result()
        rig.release(first)
        batch = rig.start([second])
        self.reclaim(rig, batch)
        self.evict_swa(rig)
        # It begins behind the prefix that it has found.
        self.assertEqual(self.locked(rig), WINDOW)
        slots = rig.req_to_token_pool.req_to_token[batch.req_pool_indices[0]].long()
        mapping = rig.allocator.full_to_swa_index_mapping
        read = slots[PROMPT_LEN - WINDOW : 2 * PROMPT_LEN]
        self.assertTrue(bool((mapping[read] > 0).all()))
        self.finish(rig, [second])

    @each_cache(page_size=16)
    def test_whole_pages_are_given_up(self, rig):
        batch = self.start(rig, steps=1)
        # Each request's window begins within a page, the first of its lock.
        locked = self.locked(rig)
        self.reclaim(rig, batch)
        self.assertLessEqual(self.locked(rig), locked)
        self.assertEqual(self.locked(rig), 2 * WINDOW)
        for _ in range(16 // ACCEPTED):
            self.give_back(rig)
            rig.step(batch, accepted=ACCEPTED)
        self.reclaim(rig, batch)
        self.assertEqual(self.locked(rig), 2 * (WINDOW - 16))
        self.finish(rig, batch.reqs)

    if HAS_RETAIN_FLOOR:

        @each_cache()
        def test_retained_checkpoint_is_kept(self, rig):
            batch = self.start(rig, steps=LEAVES + 2)
            with patch.object(
                rig.tree_cache, "swa_retain_floor", lambda req: PROMPT_LEN - 10
            ):
                self.reclaim(rig, batch)
            self.assertEqual(self.locked(rig), 2 * 10)
            self.finish(rig, batch.reqs)

        @each_cache()
        def test_window_before_a_checkpoint_is_kept(self, rig):
            batch = self.start(rig, steps=3)
            checkpoint = MagicMock(return_value=PROMPT_LEN)
            with patch.object(rig.tree_cache, "swa_retain_floor", checkpoint):
                self.reclaim(rig, batch)
            (locked,) = {PROMPT_LEN - (req.seqlen - 1 - WINDOW) for req in batch.reqs}
            self.assertEqual(self.locked(rig), 2 * locked)
            self.finish(rig, batch.reqs)

    def decode_until_short(self, rig, batch):
        """Decode until the next step needs a page."""
        while not batch.new_tokens_required_next_decode():
            rig.step(batch, accepted=1)

    @each_cache(page_size=2 * WINDOW)
    def test_page_of_the_window_is_kept(self, rig):
        page_size = 2 * WINDOW
        batch = rig.start([rig.make_req(prompt_len=page_size)])
        rig.step(batch, accepted=1)
        self.decode_until_short(rig, batch)
        self.assertLess(batch.reqs[0].seqlen - 1, 2 * page_size)
        self.reclaim(rig, batch)
        self.assertEqual(self.locked(rig), page_size)
        self.give_back(rig)
        rig.step(batch, accepted=ACCEPTED)
        self.decode_until_short(rig, batch)
        self.reclaim(rig, batch)
        self.assertEqual(self.locked(rig), 0)
        self.finish(rig, batch.reqs)

    @each_cache(page_size=16, sliding_window=40)
    def test_last_page_of_the_window_is_kept(self, rig):
        batch = rig.start([rig.make_req(prompt_len=96)])
        for _ in range(2):
            rig.step(batch, accepted=ACCEPTED)
        # Token 64 is out of the window, but its page is one of the three kept.
        self.assertEqual(batch.reqs[0].seqlen - 1 - 40, 64)
        self.reclaim(rig, batch)
        self.assertEqual(self.locked(rig), 3 * 16)
        self.finish(rig, batch.reqs)

    @each_cache(page_size=WINDOW, sliding_window=WINDOW * 3 // 2)
    def test_early_release_is_not_repeated(self, rig):
        # The release's own counts steps, and may come before a page is dead.
        req = rig.make_req(prompt_len=3 * rig.page_size)
        batch = rig.start([req])
        with EARLY_RELEASE.override(True):
            for _ in range(WINDOW * 3 // 2 + 1):
                rig.step(batch, accepted=1)
        self.assertEqual(self.locked(rig), 0)
        self.decode_until_short(rig, batch)
        self.reclaim(rig, batch)
        self.give_back(rig)
        # A finish may need the last window that it inserts.
        for _ in range(LEAVES):
            rig.step(batch, accepted=ACCEPTED)
        self.finish(rig, [req])

    @each_cache()
    def test_large_node_is_split(self, rig):
        # Most releases lock a node as a whole, however many windows it spans.
        prefix_len = 3 * PROMPT_LEN
        short, req = [
            rig.make_req(prompt_len=length, rid="r", first_token=1)
            for length in (prefix_len + WINDOW, prefix_len + 1)
        ]
        rig.start([short])
        rig.release(short)
        batch = rig.start([req])
        rig.step(batch, accepted=ACCEPTED)
        self.assertGreaterEqual(self.locked(rig), WINDOW)
        self.reclaim(rig, batch)
        dead_end = req.seqlen - 1 - WINDOW
        self.assertLessEqual(self.locked(rig), prefix_len + 1 - dead_end)
        self.assert_window_is_there(rig, req)
        self.finish(rig, [req])

    @each_cache()
    def test_other_holders_keep_theirs(self, rig):
        old, young, batch = self.old_and_young(rig)
        other = rig.start([young])
        rig.step(other, accepted=ACCEPTED)
        self.reclaim(rig, batch)
        self.evict_swa(rig)
        self.assert_window_is_there(rig, young)
        self.reclaim(rig, other)
        dead_end = young.seqlen - 1 - WINDOW
        self.assertEqual(self.locked(rig), PROMPT_LEN - dead_end)
        self.assert_window_is_there(rig, young)
        self.finish(rig, [old, young])

    @each_cache()
    def test_holders_of_one_prompt_in_step(self, rig):
        batch = self.start(rig, "aa", steps=3)
        first, second = batch.reqs
        for _ in range(2):
            self.reclaim(rig, batch)
            locked = PROMPT_LEN - (second.seqlen - 1 - WINDOW)
            self.assertEqual(self.locked(rig), locked)
            self.give_back(rig)
            rig.step(batch, accepted=ACCEPTED)
        rig.release(first)
        self.assertEqual(self.locked(rig), locked)
        self.finish(rig, [second])

    @each_cache()
    def test_locks_above_the_boundary_are_left(self, rig):
        old, young = [
            rig.make_req(prompt_len=length, rid="r", first_token=1)
            for length in (PROMPT_LEN, 2 * PROMPT_LEN)
        ]
        rig.start([old])
        of_old = self.locked(rig)
        batch = rig.start([young])
        for step in range(4):
            if step:
                self.give_back(rig)
                rig.step(batch, accepted=ACCEPTED)
            self.reclaim(rig, batch)
            dead_end = young.seqlen - 1 - WINDOW
            self.assertEqual(self.locked(rig), of_old + 2 * PROMPT_LEN - dead_end)
        rig.release(young)
        self.assertEqual(self.locked(rig), of_old)
        self.finish(rig, [old])

    @each_cache(server_args={"strip_thinking_cache": True})
    def test_finish_may_insert_the_prompt_alone(self, rig):
        req = rig.make_req(prompt_len=PROMPT_LEN)
        req.require_reasoning, req.reasoning_tokens = True, 1
        batch = rig.start([req])
        for _ in range(LEAVES + 4):
            rig.step(batch, accepted=ACCEPTED)
        self.reclaim(rig, batch)
        self.give_back(rig)
        self.evict_swa(rig)
        self.finish(rig, [req])

    @each_cache()
    def test_finish_leaves_the_lock_of_others(self, rig):
        old, young, batch = self.old_and_young(rig)
        rig.start([young])
        for _ in range(2):
            self.reclaim(rig, batch)
        locked = self.locked(rig)
        rig.release(old)
        self.assertEqual(self.locked(rig), locked)
        self.evict_swa(rig)
        self.assert_window_is_there(rig, young)
        self.finish(rig, [young])

    def check_released_once(self, rig, *, steps):
        """One request finishes, one is retracted and resumed, one goes on."""
        batch = self.start(rig, "abc", steps=steps)
        for _ in range(2):
            self.reclaim(rig, batch)
        done, *rest = batch.reqs
        rig.release(done)
        batch.filter_batch(keep_indices=[1, 2])
        while not rig.retracted:
            self.take_all(rig)
            batch = rig.decode(batch, accepted=ACCEPTED)
        self.assertEqual(len(batch.reqs), 1)
        self.give_back(rig)
        self.evict_swa(rig)
        (retracted,) = rig.retracted
        resumed = rig.start([retracted])
        rig.step(resumed, accepted=ACCEPTED)
        self.reclaim(rig, resumed)
        self.finish(rig, rest)

    @each_cache()
    def test_lock_is_released_once(self, rig):
        self.check_released_once(rig, steps=LEAVES + 2)

    @each_cache()
    def test_rest_of_a_lock_is_released_once(self, rig):
        self.check_released_once(rig, steps=3)

    @each_cache()
    def test_finished_request_is_left_alone(self, rig):
        batch = self.start(rig, steps=LEAVES + 2)
        done, running = batch.reqs
        rig.release(done)
        # Without speculation the need does not depend on what is allocated.
        batch.spec_algorithm = SpeculativeAlgorithm.NONE
        self.reclaim(rig, batch)
        self.assertEqual(self.locked(rig), 0)
        self.finish(rig, [running])

    @each_cache()
    def test_evicted_prefix_is_computed_again(self, rig):
        batch = self.start(rig, "a", steps=LEAVES + 2)
        self.reclaim(rig, batch)
        full = rig.allocator.full_available_size()
        self.evict_swa(rig)
        # The request still reads the full KV of its prompt.
        self.assertEqual(rig.allocator.full_available_size(), full)
        self.give_back(rig)
        again = rig.make_req(prompt_len=PROMPT_LEN, rid="again", first_token=ord("a"))
        second = rig.start([again])
        self.assertEqual(second.prefix_lens, [0])
        for _ in range(2):
            rig.step(second, accepted=ACCEPTED)
            self.assert_window_is_there(rig, again)
        self.assert_window_is_there(rig, batch.reqs[0])
        self.finish(rig, [*batch.reqs, again])

    @each_cache(overlap=True)
    def test_forward_in_flight_keeps_its_window(self, rig):
        batch = self.start(rig, steps=1)
        for _ in range(LEAVES + 4):
            rig.step(batch, accepted=ACCEPTED)
            self.reclaim(rig, batch)
            self.evict_swa(rig)
            for req in batch.reqs:
                self.assert_window_is_there(rig, req)
            self.give_back(rig)
        self.assertEqual(self.locked(rig), 0)
        self.finish(rig, batch.reqs)

    if HAS_UNIFIED_TREE_CORE:

        def test_core_that_cannot_split_keeps_the_whole_lock(self):
            from sglang.srt.mem_cache.unified_cache import (
                unified_tree_core,
                unified_tree_core_interface,
            )

            core = unified_tree_core.UnifiedTreeCore
            interface = unified_tree_core_interface.UnifiedTreeCoreInterface
            rig = self.make_rig(cache="unified", sliding_window=WINDOW)
            self.idle, self.taken = rig.free_counts(), []
            name = "dec_dead_swa_lock"
            without = getattr(interface, name, None)
            batch = self.start(rig, "a", steps=3)
            locked = self.locked(rig)
            with patch.object(core, name, without, create=True):
                self.reclaim(rig, batch)
            self.assertEqual(self.locked(rig), locked)
            self.finish(rig, batch.reqs)


if __name__ == "__main__":
    unittest.main()
