"""SWA slots that nobody reads any more do not keep a request from its prefill.

Eviction has a cadence for running requests, and comes with the allocation of a
chunk, thus after its admission. Both would be too late for a full pool.
"""

import unittest
from itertools import product
from types import SimpleNamespace
from unittest.mock import patch

from sglang.srt.managers import scheduler
from sglang.srt.managers.schedule_batch import Req, ScheduleBatch
from sglang.srt.mem_cache import common
from sglang.srt.mem_cache.base_prefix_cache import EvictParams
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.kits.features import HAS_SWA_RINGS
from sglang.test.kits.spec_decode_caches import prefix_cache_kinds, swa_evicted_len
from sglang.test.kits.spec_prefill_kit import PrefillRig, PrefillTestCase
from sglang.test.kits.spec_retract_kit import leave_swa

register_cpu_ci(est_time=15, suite="base-a-test-cpu")

# No multiple of the pages below.
WINDOW = 40
CHUNK = 256


class TestChunkedRequest(PrefillTestCase):
    def run_alone(
        self, *, swa_size: int, ignore_eos: bool = False, **options
    ) -> list[int]:
        """Prefill one long prompt: the tokens of each turn, 0 for one without."""
        rig = self.make_rig(
            chunk=CHUNK, sliding_window=WINDOW, swa_size=swa_size, **options
        )
        req = rig.make_req(prompt_len=2000)
        req.sampling_params.ignore_eos = ignore_eos
        rig.submit(req)
        chunks = []
        while rig.waiting() and len(chunks) < 40:
            batch = rig.iterate()
            chunks.append(batch.extend_num_tokens if batch else 0)
        return chunks

    def test_pool_of_one_chunk_and_a_page(self):
        for page_size in (1, 16):
            for overlap in (False, True):
                with self.subTest(page_size=page_size, overlap=overlap):
                    chunks = self.run_alone(
                        swa_size=CHUNK + page_size, page_size=page_size, overlap=overlap
                    )
                    self.assertEqual(sum(chunks), 2000)
                    # A chunk leaves its last window, in whole pages. Under overlap
                    # the next one waits for it.
                    room = CHUNK - -(-WINDOW // page_size) * page_size
                    later = chunks[2:-1]
                    self.assertEqual(set(later[1::2]), {room})
                    self.assertEqual(set(later[0::2]), {0 if overlap else room})

    def test_chunk_in_flight_keeps_its_window(self):
        # The third chunk needs what the first one leaves, while the second runs.
        chunks = self.run_alone(swa_size=2 * CHUNK + 16, page_size=16, overlap=True)
        self.assertEqual(sum(chunks), 2000)
        self.assertNotIn(0, chunks)

    def test_chunks_in_a_tree_are_not_its_own(self):
        name = "free_swa_out_of_window_slots"
        owner = scheduler if hasattr(scheduler, name) else common
        for cache in prefix_cache_kinds()[1:]:
            with self.subTest(cache=cache):
                with patch.object(owner, name, side_effect=AssertionError("freed")):
                    chunks = self.run_alone(cache=cache, swa_size=2 * CHUNK)
                self.assertEqual(sum(chunks), 2000)

    def test_full_attention_model_has_nothing_to_give(self):
        for ignore_eos in (False, True):
            with self.subTest(ignore_eos=ignore_eos):
                chunks = self.run_alone(
                    swa_size=0, hybrid_swa=False, ignore_eos=ignore_eos
                )
                self.assertEqual(chunks, [CHUNK] * 7 + [2000 - 7 * CHUNK])


class TestWaitingRequest(PrefillTestCase):
    # The cadence evicts nothing here.
    eviction_interval = 1000

    # The next token of both running requests.
    FRONTIER = 304
    # Two steps for them and for the new one, of 6 draft tokens twice each.
    HEADROOM = 2 * 12 * 3

    def start(self, **options) -> tuple[PrefillRig, list[Req]]:
        """Two running requests and no free SWA slot."""
        options = dict(chunk=4 * CHUNK, sliding_window=WINDOW) | options
        rig = self.make_rig(**options)
        reqs = [self.make_req(rig, 4, rid=rid, first_token=ord(rid)) for rid in "ab"]
        rig.submit(*reqs)
        while len(reqs[0].output_ids) <= self.FRONTIER - 4:
            rig.iterate(accepted=4)
        self.others = leave_swa(rig, 0)
        return rig, reqs

    def make_req(self, rig, prompt_len: int, **options) -> Req:
        req = rig.make_req(prompt_len=prompt_len, **options)
        req.sampling_params.max_new_tokens = 400
        return req

    def next_prefill(self, rig) -> list[Req]:
        """The requests of a batch that the scheduler prefills, if any."""
        plan = rig.scheduler.get_new_batch_prefill(rig.running_batch)
        return plan.batch_to_run.reqs if plan.batch_to_run else []

    def admits(self, rig, prompt_len: int, *, ignore_eos: bool = False) -> bool:
        """Whether a new request of ``prompt_len`` tokens is admitted."""
        req = self.make_req(rig, prompt_len, rid="new", first_token=200)
        req.sampling_params.ignore_eos = ignore_eos
        rig.scheduler.waiting_queue[:] = [req]
        return self.next_prefill(rig) == [req]

    def assert_evicted(self, reqs, *lengths: int) -> None:
        self.assertEqual([swa_evicted_len(req) for req in reqs], list(lengths))

    def test_dead_slots_admit_it(self):
        for cache in prefix_cache_kinds():
            for page_size in (1, 16, 64):
                with self.subTest(cache=cache, page_size=page_size):
                    rig, reqs = self.start(cache=cache, page_size=page_size)
                    # A cache that shares prefixes keeps a page where that is more.
                    keep = WINDOW if cache == "chunk" else max(WINDOW, page_size)
                    dead = (self.FRONTIER - keep) // page_size * page_size
                    # Of the prompt, a tree has the whole pages.
                    cached = 0 if cache == "chunk" else 4 // page_size * page_size
                    # A page is added to the tokens, and a slot must be left over.
                    room = 2 * (dead - cached) - self.HEADROOM - 1
                    most = room // page_size * page_size - page_size
                    self.assertFalse(self.admits(rig, most + 1))
                    self.assert_evicted(reqs, 0, 0)
                    self.assertTrue(self.admits(rig, most))
                    self.assert_evicted(reqs, dead, dead)

    def test_ignore_eos(self):
        rig, reqs = self.start()
        dead = self.FRONTIER - WINDOW
        most = 2 * dead - self.HEADROOM - 1
        self.assertFalse(self.admits(rig, most + 1, ignore_eos=True))
        self.assert_evicted(reqs, 0, 0)
        self.assertTrue(self.admits(rig, most, ignore_eos=True))
        self.assert_evicted(reqs, dead, dead)

    def test_room_leaves_them_alone(self):
        for ignore_eos, room in ((False, 102), (True, 101)):
            with self.subTest(ignore_eos=ignore_eos):
                rig, reqs = self.start()
                rig.allocator.swa_attn_allocator.free(self.others[:room])
                self.assertTrue(self.admits(rig, 100, ignore_eos=ignore_eos))
                self.assert_evicted(reqs, 0, 0)

    def test_short_full_side_is_no_reason(self):
        for ignore_eos in (False, True):
            with self.subTest(ignore_eos=ignore_eos):
                rig, reqs = self.start()
                full = rig.allocator.full_attn_allocator
                full.alloc(full.available_size())
                self.assertFalse(self.admits(rig, 100, ignore_eos=ignore_eos))
                self.assert_evicted(reqs, 0, 0)

    def full_needed(self, rig, reqs, ignore_eos: bool) -> int:
        """The least free full slots that admit a request; fewer leave ``reqs`` alone."""
        full = rig.allocator.full_attn_allocator
        for free, slot in enumerate(full.alloc(full.available_size()).split(1)):
            if self.admits(rig, 100, ignore_eos=ignore_eos):
                return free
            self.assert_evicted(reqs, 0, 0)
            full.free(slot)
        self.fail("not admitted")

    def test_full_side_decides_as_without_shortage(self):
        for ignore_eos in (False, True):
            with self.subTest(ignore_eos=ignore_eos):
                rig, reqs = self.start()
                rig.allocator.swa_attn_allocator.free(self.others)
                needed = self.full_needed(rig, reqs, ignore_eos)
                rig, reqs = self.start()
                self.assertEqual(self.full_needed(rig, reqs, ignore_eos), needed)

    def test_window_that_a_host_holds_needs_room_too(self):
        rig, reqs = self.start()
        most = 2 * (self.FRONTIER - WINDOW) - self.HEADROOM - 2
        init = Req.init_next_round_input

        def hit(req, *args, **kwargs):
            init(req, *args, **kwargs)
            req.swa_host_hit_length = 1

        with patch.object(Req, "init_next_round_input", hit):
            self.assertFalse(self.admits(rig, most))
        self.assert_evicted(reqs, 0, 0)
        self.assertTrue(self.admits(rig, most))

    if HAS_SWA_RINGS:

        def test_ring_of_a_request_has_nothing_dead(self):
            for ignore_eos in (False, True):
                with self.subTest(ignore_eos=ignore_eos):
                    rig, reqs = self.start()
                    no_slot = SimpleNamespace(available_size=lambda: 0)
                    with patch.multiple(
                        rig.allocator,
                        _swa_req_ring=True,
                        _swa_ring_cost=WINDOW,
                        _req_to_token_pool=no_slot,
                    ):
                        self.assertFalse(self.admits(rig, 4, ignore_eos=ignore_eos))
                    self.assert_evicted(reqs, 0, 0)

    def leave_dead(self, rig, reqs, tokens: int) -> None:
        """Evict ``reqs`` but for the last ``tokens`` that each could give."""
        for req in reqs:
            ScheduleBatch._evict_swa(rig.running_batch, req, req.seqlen - 1 - tokens)
        leave_swa(rig, 0)

    def test_only_what_died_since_the_last_eviction_counts(self):
        rig, reqs = self.start()
        self.leave_dead(rig, reqs, 100)
        most = 2 * 100 - self.HEADROOM - 2
        self.assertFalse(self.admits(rig, most + 1))
        self.assertTrue(self.admits(rig, most))

    def test_short_prompt_needs_a_window(self):
        for ignore_eos in (False, True):
            with self.subTest(ignore_eos=ignore_eos):
                rig, reqs = self.start()
                self.leave_dead(rig, reqs, (self.HEADROOM + WINDOW) // 2)
                before = [swa_evicted_len(req) for req in reqs]
                self.assertFalse(self.admits(rig, 4, ignore_eos=ignore_eos))
                self.assert_evicted(reqs, *before)

    def test_long_prompt_needs_a_chunk(self):
        for ignore_eos in (False, True):
            with self.subTest(ignore_eos=ignore_eos):
                rig, reqs = self.start(chunk=CHUNK)
                self.assertTrue(self.admits(rig, 4 * CHUNK, ignore_eos=ignore_eos))
                self.assertEqual(rig.scheduler.chunked_req.rid, "new")

    def test_request_within_its_window(self):
        rig, reqs = self.start()
        free = rig.allocator.swa_attn_allocator.free
        free(self.others)
        young = self.make_req(rig, 4, rid="c", first_token=ord("c"))
        rig.submit(young)
        rig.iterate()
        rig.iterate()
        leave_swa(rig, 0)
        dead = self.FRONTIER + 1 - WINDOW
        self.assertTrue(self.admits(rig, 2 * dead - self.HEADROOM // 3 * 4 - 2))
        self.assert_evicted([*reqs, young], dead, dead, 0)

    def test_extend_in_flight_is_left_alone(self):
        rig, reqs = self.start(overlap=True)
        dead = reqs[0].seqlen - 1 - WINDOW
        for clock, evicted in ((0, 0), (1, dead)):
            with self.subTest(decode_batch_idx=clock):
                reqs[0].decode_batch_idx = clock
                most = evicted + dead - self.HEADROOM - 2
                self.assertFalse(self.admits(rig, most + 1))
                self.assert_evicted(reqs, 0, 0)
        self.assertTrue(self.admits(rig, most))
        self.assert_evicted(reqs, dead, dead)

    def test_request_without_kv_is_skipped(self):
        rig, reqs = self.start()
        rig.release(reqs[0])
        leave_swa(rig, 0)
        dead = self.FRONTIER - WINDOW
        self.assertTrue(self.admits(rig, dead - self.HEADROOM - 2))
        self.assertEqual(swa_evicted_len(reqs[1]), dead)

    def test_prefix_that_it_locks_is_no_room(self):
        # The tree could give the prefix away, but not to the request that hits it.
        for cache in prefix_cache_kinds()[1:]:
            with self.subTest(cache=cache):
                rig, reqs = self.start(cache=cache)
                rig.allocator.swa_attn_allocator.free(self.others)
                cached = self.make_req(rig, 60, rid="cached", first_token=200)
                rig.start([cached])
                rig.release(cached)
                leave_swa(rig, 0)
                self.assertTrue(self.admits(rig, 90))
                self.assert_evicted(reqs, *[self.FRONTIER - WINDOW] * 2)

    def test_prefix_that_it_shares_is_kept(self):
        # A running request gives up its lock on the prefix that this one has found.
        for cache, page_size in product(prefix_cache_kinds()[1:], (1, 16)):
            with self.subTest(cache=cache, page_size=page_size):
                rig = self.make_rig(
                    chunk=4 * CHUNK,
                    sliding_window=WINDOW,
                    cache=cache,
                    page_size=page_size,
                )
                prompt_len = 2 * CHUNK
                old = self.make_req(rig, prompt_len, rid="old", first_token=1)
                rig.submit(old)
                while len(old.output_ids) <= self.FRONTIER:
                    rig.iterate(accepted=4)
                leave_swa(rig, 0)
                new = self.make_req(rig, prompt_len + WINDOW, rid="new", first_token=1)
                rig.scheduler.waiting_queue[:] = [new]
                self.assertEqual(self.next_prefill(rig), [new])
                row = rig.req_to_token_pool.req_to_token[
                    (new.kv if hasattr(new.kv, "req_pool_idx") else new).req_pool_idx
                ].long()
                mapping = rig.allocator.full_to_swa_index_mapping
                window = row[prompt_len - WINDOW : prompt_len + WINDOW]
                self.assertTrue(bool((mapping[window] > 0).all()))

    def swa_room(self, rig) -> int:
        """SWA slots that are free, or the tree's to give."""
        tree = rig.tree_cache
        return rig.allocator.swa_available_size() + tree.swa_evictable_size()

    def test_prompt_that_many_share_is_counted_for_none(self):
        # Each of its holders has left it behind, but it is freed once.
        holders = "abcdefgh"
        headroom = self.HEADROOM // 3 * (len(holders) + 1)
        for cache, dead in product(prefix_cache_kinds()[1:], (20, 60)):
            with self.subTest(cache=cache, dead=dead):
                rig = self.make_rig(
                    chunk=4 * CHUNK, sliding_window=WINDOW, cache=cache, max_reqs=9
                )
                reqs = [self.make_req(rig, 37, rid=rid) for rid in holders]
                rig.submit(*reqs)
                while len(reqs[0].output_ids) <= WINDOW + dead:
                    rig.iterate(accepted=4)
                leave_swa(rig, 0)
                for prompt_len in range(600, WINDOW, -1):
                    admitted = self.admits(rig, prompt_len)
                    gained = self.swa_room(rig) + admitted * prompt_len
                    if gained:
                        break
                if dead * len(holders) < headroom:
                    self.assertEqual(gained, 0)
                else:
                    self.assertTrue(admitted)
                    self.assertGreater(gained, prompt_len + 1 + headroom)

    def start_chunked(self, room: int, **options) -> tuple[PrefillRig, list[Req], Req]:
        """:meth:`start`, and a request whose first chunk is the tree's. Of the SWA
        slots ``room`` are free, and the tree has none to give."""
        rig, reqs = self.start(chunk=CHUNK, **options)
        rig.allocator.swa_attn_allocator.free(self.others)
        chunked = self.make_req(rig, 3 * CHUNK, rid="chunked", first_token=200)
        rig.submit(chunked)
        rig.iterate()
        rig.scheduler.stash_chunked_request(chunked)
        tree = rig.tree_cache
        tree.evict(EvictParams(0, swa_num_tokens=tree.swa_evictable_size()))
        leave_swa(rig, room)
        return rig, reqs, chunked

    def test_chunk_goes_on_beside_them(self):
        # A page is kept beside the chunk, so that only a second one is room.
        for cache in prefix_cache_kinds()[1:]:
            for room, evicted in ((2, False), (1, True), (0, True)):
                with self.subTest(cache=cache, room=room):
                    rig, reqs, chunked = self.start_chunked(room, cache=cache)
                    self.assertEqual(self.next_prefill(rig), [chunked])
                    dead = evicted * (self.FRONTIER - WINDOW)
                    self.assert_evicted(reqs, dead, dead)

    def test_one_chunked_request_at_a_time(self):
        # Room for a second one would have it cut as well.
        for cache in prefix_cache_kinds()[1:]:
            with self.subTest(cache=cache):
                rig, reqs, chunked = self.start_chunked(20, cache=cache)
                waiting = self.make_req(rig, 3 * CHUNK, rid="new", first_token=100)
                rig.submit(waiting)
                self.assertEqual(self.next_prefill(rig), [chunked])
                self.assertEqual(rig.waiting(), [chunked, waiting])

    def test_full_attention_chunk_goes_on_beside_one(self):
        rig = self.make_rig(
            chunk=CHUNK, sliding_window=WINDOW, swa_size=0, hybrid_swa=False
        )
        rig.submit(self.make_req(rig, 4))
        rig.iterate()
        rig.iterate()
        rig.submit(self.make_req(rig, 3 * CHUNK, rid="chunked", first_token=200))
        chunks = [rig.iterate().extend_num_tokens for _ in range(3)]
        self.assertEqual(chunks, [CHUNK] * 3)

    def test_nobody_runs(self):
        rig = self.make_rig(chunk=CHUNK, sliding_window=WINDOW, swa_size=50)
        self.assertFalse(self.admits(rig, 60, ignore_eos=True))
        # Who builds a batch without a running one passes None.
        with self.assertRaisesRegex(AssertionError, "too small"):
            rig.prefill([self.make_req(rig, 60)])


if __name__ == "__main__":
    unittest.main()
