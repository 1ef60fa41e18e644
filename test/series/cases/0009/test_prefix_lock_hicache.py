"""Giving up a prefix lock while HiCache moves the prefix between device and host.

Real are the host pools, the controller and the tree's transfers; the copy kernel has
a stand-in that copies when the test lets it land. Until then nobody may have the
slots that it reads or writes, whatever is split, given up and evicted meanwhile.
"""

import unittest
from functools import partial
from itertools import product
from types import SimpleNamespace
from unittest.mock import patch

import psutil
import torch

from sglang.srt.mem_cache.base_prefix_cache import EvictParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.hybrid_cache import hybrid_pool_assembler as assembler
from sglang.srt.mem_cache.pool_host import mha
from sglang.srt.mem_cache.unified_radix_cache import ComponentType
from sglang.srt.runtime_context import get_server_args
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.kits.spec_decode_kit import SpecDecodeTestCase
from sglang.test.kits.spec_retract_kit import RetractRig, RetractTestCase, leave_swa

register_cpu_ci(est_time=20, suite="base-a-test-cpu")

WINDOW, ACCEPTED = 32, 4
PROMPT_LEN = 4 * WINDOW
# Part of the prompt is dead, or all of it.
AGES = (3, WINDOW // ACCEPTED + 2)


def positions(first):
    """What the tokens of a prompt have for KV, from the token ``first`` on."""
    return torch.arange(first, max(first, PROMPT_LEN)).half().view(-1, 1, 1)


def each_case(test):
    def run(self):
        for page_size, steps in product((1, 16), AGES):
            with self.subTest(page_size=page_size, steps=steps):
                test(self, self.start_rig(page_size), steps)

    return run


class Transfers:
    """The direct copies between device and host, in flight until they land."""

    def __init__(self):
        self.in_flight, self.submitted, self.landed = [], 0, 0

    def submit(self, src_layers, dst_layers, src_indices, dst_indices, page_size):
        before = [layer[src_indices].clone() for layer in src_layers]
        copy = src_layers, dst_layers, src_indices, dst_indices, before
        self.in_flight.append(copy)
        self.submitted += 1

    def land(self, case):
        """Copy, after it is seen that no source was written to meanwhile."""
        for src_layers, dst_layers, src, dst, before in self.in_flight:
            for source, target, expected in zip(src_layers, dst_layers, before):
                case.assertTrue(source[src].equal(expected), "overwritten")
                target[dst] = source[src]
        self.in_flight.clear()
        self.landed = self.submitted

    def event_class(transfers):
        """An event that is done when what was submitted before it has landed."""

        class Event(torch.cpu.Event):
            after = 0

            def record(self, stream=None):
                self.after = transfers.submitted

            def query(self):
                return self.after <= transfers.landed

        return Event


class TestPrefixLockUnderHiCache(RetractTestCase):
    eviction_interval = 1

    def setUp(self):
        super().setUp()
        self.transfers = Transfers()
        host_pool = assembler.get_mha_host_pool_cls
        # The release wants 10 GB of host memory to stay free.
        memory = SimpleNamespace(available=1 << 40, total=1 << 40)
        for stand_in in (
            patch.object(mha, "transfer_kv_direct", self.transfers.submit, create=True),
            patch.object(
                assembler,
                "get_mha_host_pool_cls",
                lambda pool: partial(host_pool(pool), pin_memory=False),
            ),
            patch.object(psutil, "virtual_memory", lambda: memory),
            patch.object(torch.cpu, "Event", self.transfers.event_class()),
        ):
            stand_in.start()
            self.addCleanup(stand_in.stop)

    def start_rig(self, page_size):
        rig = SpecDecodeTestCase.make_rig(
            self,
            rig_class=RetractRig,
            cache="unified",
            page_size=page_size,
            sliding_window=WINDOW,
            server_args=dict(
                hicache_io_backend="direct",
                hicache_mem_layout="layer_first",
            ),
        )
        params = CacheInitParams(
            disable=False,
            req_to_token_pool=rig.req_to_token_pool,
            token_to_kv_pool_allocator=rig.allocator,
            page_size=page_size,
            sliding_window_size=WINDOW,
            tree_components=(ComponentType.FULL, ComponentType.SWA),
        )
        rig.tree_cache.init_hicache(get_server_args(), params)
        self.idle, self.host_idle = rig.free_counts(), self.host_free(rig)
        return rig

    def host_free(self, rig):
        entries = rig.tree_cache.cache_controller.mem_pool_host.entries
        return [entry.host_pool.available_size() for entry in entries]

    def start(self, rig, rid):
        """A request whose prefill has written each token's position as its KV."""
        req = rig.make_req(prompt_len=PROMPT_LEN, rid=rid)
        batch = rig.prefill([req])
        rig.tree_cache.ready_to_load_host_cache()
        for layer, slots in self.kv(rig, req, batch.prefix_lens[0], PROMPT_LEN):
            layer[slots] = positions(batch.prefix_lens[0])
        rig.process_result()
        rig.set_draft_input(batch)
        return batch

    def kv(self, rig, req, first, last):
        """The layers and the slots in them of the tokens ``first`` to ``last``."""
        holder = req.kv if hasattr(req.kv, "req_pool_idx") else req
        row = rig.req_to_token_pool.req_to_token[holder.req_pool_idx]
        full = row[first:last].long()
        swa = rig.allocator.full_to_swa_index_mapping[full]
        self.assertTrue(bool((swa > 0).all()))
        pool = rig.allocator.get_kvcache()
        for side, slots in ((pool.full_kv_pool, full), (pool.swa_kv_pool, swa)):
            yield side.k_buffer[0], slots
            yield side.v_buffer[0], slots

    def reclaim(self, rig, batch):
        """A memory check that finds no SWA slot, and others who then write to all
        that it has freed or let the tree evict."""
        while not batch.new_tokens_required_next_decode():
            rig.step(batch, accepted=1)
        taken = [self.take_all(rig)]
        batch.check_decode_mem()
        taken.append(self.take_all(rig))
        rig.allocator.swa_attn_allocator.free(torch.cat(taken))

    def take_all(self, rig):
        cache, pool = rig.tree_cache, rig.allocator.get_kvcache().swa_kv_pool
        evictable = cache.swa_evictable_size()
        cache.evict(EvictParams(num_tokens=0, swa_num_tokens=evictable))
        slots = leave_swa(rig, 0)
        pool.k_buffer[0][slots] = pool.v_buffer[0][slots] = -1
        return slots

    def assert_window_is_there(self, rig, req):
        first = max(0, req.seqlen - 1 - WINDOW)
        for layer, slots in self.kv(rig, req, first, PROMPT_LEN):
            self.assertTrue(layer[slots].equal(positions(first)))

    def acknowledge(self, rig):
        """Let all transfers land, and the cache see it."""
        rig.tree_cache.check_hicache_events()
        while self.transfers.in_flight:
            self.transfers.land(self)
            rig.tree_cache.check_hicache_events()
        # A split half whose backup nobody awaits would stay so.
        nodes = [rig.tree_cache.root_node]
        for node in nodes:
            self.assertIsNone(node.write_through_pending_id)
            nodes.extend(node.children.values())

    def finish(self, rig, *reqs):
        """All slots come back, on the device and on the host."""
        for req in reqs:
            rig.release(req)
        self.acknowledge(rig)
        self.assert_idle(rig, self.idle)
        cache = rig.tree_cache
        cache.sanity_check()
        cache.evict(EvictParams(num_tokens=cache.full_evictable_size()))
        self.acknowledge(rig)
        self.assertEqual(rig.free_counts(), self.idle)
        cache.evict_host(1 << 20)
        self.assertEqual(self.host_free(rig), self.host_idle)

    @each_case
    def test_write_through_in_flight(self, rig, steps):
        batch = self.start(rig, "a")
        # Where backups wait for the event loop, this submits them.
        rig.tree_cache.check_hicache_events()
        self.assertNotEqual(self.transfers.in_flight, [])
        for _ in range(steps):
            rig.step(batch, accepted=ACCEPTED)
        self.reclaim(rig, batch)
        self.acknowledge(rig)
        self.reclaim(rig, batch)
        self.assert_window_is_there(rig, batch.reqs[0])
        needed = max(0, PROMPT_LEN - (batch.reqs[0].seqlen - 1 - WINDOW))
        self.assertLess(rig.tree_cache.swa_protected_size(), needed + rig.page_size)
        self.finish(rig, batch.reqs[0])

    @each_case
    def test_prefix_is_loaded_back(self, rig, steps):
        batch = self.start(rig, "old")
        self.acknowledge(rig)
        for _ in range(WINDOW // ACCEPTED + 2):
            rig.step(batch, accepted=ACCEPTED)
        self.reclaim(rig, batch)
        # What it gave up is on the host alone, and comes back for the next one.
        young = self.start(rig, "young")
        self.assertGreater(young.prefix_lens[0], 0)
        self.assertNotEqual(self.transfers.in_flight, [])
        self.reclaim(rig, batch)
        rig.release(batch.reqs[0])
        rig.allocator.swa_attn_allocator.free(self.take_all(rig))
        self.transfers.land(self)
        self.assert_window_is_there(rig, young.reqs[0])
        # Landed, and not yet seen by the cache.
        for _ in range(steps):
            rig.step(young, accepted=ACCEPTED)
        self.reclaim(rig, young)
        self.acknowledge(rig)
        self.reclaim(rig, young)
        self.assert_window_is_there(rig, young.reqs[0])
        self.finish(rig, young.reqs[0])


if __name__ == "__main__":
    unittest.main()
