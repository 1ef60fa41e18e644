"""A Hypothesis state machine over a node: any order of what can happen to it, the
whole state checked after every rule, and at the end that all memory returns."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import hypothesis.strategies as st
import torch
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from sglang.srt.managers import scheduler as scheduler_module
from sglang.srt.managers.schedule_batch import Req
from sglang.test.kits.spec_decode_caches import prefix_cache_kinds

from . import audit, pd, state
from .config import NodeConfig
from .forward import Pattern
from .invariants import CHECKS, Invariants
from .node import Node

DRAFT_TOKENS = 4
LONG_RUN = 40
MAX_REQS = 5
MAX_TURNS = 4_000
MODES = [("null", cache) for cache in prefix_cache_kinds()] + [("decode", "chunk")]


class DecodeMachine(RuleBasedStateMachine):
    """Submit, decode, stop, retract, abort, and pools that shrink and grow.

    Attributes:
        checks: those of :data:`CHECKS` that are made; ``handoff`` brings nodes behind
            a prefill node, ``backup`` pools that cannot copy to the host, ``kv`` what
            forwards read.
        totals: what happened in all machines of this process.
    """

    checks = tuple(os.environ.get("DECODE_MACHINE_CHECKS", ",".join(CHECKS)).split(","))
    totals = dict.fromkeys(
        ("turns", "decode steps", "KV reads", "retracted", "finished", "aborted"), 0
    )

    @initialize(
        mode=st.sampled_from(MODES),
        page_size=st.sampled_from((1, 4, 16)),
        sliding_window=st.sampled_from((4, 16)),
        eviction_interval=st.sampled_from((8, 24)),
        pools=st.sampled_from(((96, 12), (96, 24), (32, 32), (24, 24))),
        overlap=st.booleans(),
        host_copy=st.booleans(),
        chunked=st.booleans(),
        drain=st.booleans(),
        algorithm=st.sampled_from(("DSPARK", "DFLASH")),
    )
    def open_node(
        self, mode, page_size, pools, host_copy, chunked, drain, **options
    ) -> None:
        if "handoff" not in self.checks:
            mode = ("null", mode[1])
        if "backup" not in self.checks:
            host_copy = True
        if mode[0] == "decode" and not pd.counts_whole_pages():
            page_size = 1
        # Pools of a few requests' size, so that memory does run out.
        unit = max(page_size, 4)
        self._pattern = Pattern(DRAFT_TOKENS)
        self.node = Node(
            NodeConfig(
                full_size=pools[0] * unit,
                swa_size=pools[1] * unit,
                page_size=page_size,
                disaggregation=mode[0],
                cache=mode[1],
                host_copy=host_copy,
                draft_tokens=DRAFT_TOKENS,
                chunked_prefill_size=32 if chunked else None,
                max_reqs=MAX_REQS,
                max_context_len=1_024,
                **options,
            ),
            self._pattern,
            reads_kv="kv" in self.checks,
        )
        self.drain = drain
        self.shares = not state.loses_shared_swa()
        self.failed = False
        self.reqs: list[Req] = []
        self.held: list[tuple[object, torch.Tensor]] = []
        self.watched = Invariants(self.node, self.checks, self.reqs, self.held)
        self.stack = ExitStack()
        self.stack.enter_context(self.node)
        self.watched.watch(self.stack)

    @rule(
        prompt_len=st.integers(1, 70),
        max_new_tokens=st.integers(1, 200),
        first_token=st.integers(0, 2),
        count=st.integers(1, 3),
    )
    def submit(self, prompt_len, max_new_tokens, first_token, count) -> None:
        for i in range(count):
            token = first_token + i if self.shares else len(self.reqs)
            self.reqs.append(
                self.node.submit(
                    prompt_len=prompt_len,
                    max_new_tokens=max_new_tokens + i,
                    rid=f"r{len(self.reqs):03}",
                    first_token=token,
                    ignore_eos=False,
                )
            )

    @precondition(lambda self: self._live())
    @rule(first=st.integers(0, DRAFT_TOKENS - 1), turns=st.integers(1, 12))
    def decode(self, first: int, turns: int) -> None:
        for i in range(turns):
            self._pattern.first = first + i
            self._turn()

    @precondition(lambda self: self._live())
    @rule(first=st.integers(0, DRAFT_TOKENS - 1))
    def decode_on(self, first: int) -> None:
        self.decode(first, LONG_RUN)

    @precondition(lambda self: self._live())
    @rule(data=st.data())
    def stop(self, data) -> None:
        """Let the model end a request by a stop token."""
        self.node.forward.stop.add(data.draw(st.sampled_from(self._live())))

    @precondition(lambda self: self._live())
    @rule(data=st.data())
    def abort(self, data) -> None:
        self.node.abort(data.draw(st.sampled_from(self._live())))

    @precondition(lambda self: self._live())
    @rule()
    def retract(self) -> None:
        """A turn with the release's own switch for testing retraction."""
        self.watched.ignore_retractions = True
        with (
            patch.object(scheduler_module, "TEST_RETRACT", True),
            patch.object(scheduler_module, "TEST_RETRACT_INTERVAL", 1),
        ):
            self._turn()
        self.watched.ignore_retractions = False

    @precondition(lambda self: self._live())
    @rule(full=st.booleans(), share=st.integers(1, 3))
    def shrink(self, full: bool, share: int) -> None:
        """Take a part of what is free out of one pool, or all of it."""
        allocator = self.node.fixture.allocator
        pool = allocator.full_attn_allocator if full else allocator.swa_attn_allocator
        pages = pool.available_size() // self.node.config.page_size * share // 3
        if pages:
            self.held.append((pool, pool.alloc(pages * self.node.config.page_size)))

    @precondition(lambda self: self.held)
    @rule()
    def grow(self) -> None:
        pool, slots = self.held.pop()
        pool.free(slots)

    @invariant()
    def owned_once(self) -> None:
        swa = self.node.fixture.allocator.swa_attn_allocator
        held = {True: [], False: []}
        for pool, slots in self.held:
            held[pool is swa].extend(slots.tolist())
        with self._noted():
            audit.check_ownership(self.node.fixture, self.reqs, held[False], held[True])

    @invariant()
    def windows_whole(self) -> None:
        with self._noted():
            for req in self.reqs:
                if state.holds_kv(req):
                    audit.check_window(self.node.fixture, req)

    @invariant()
    def no_false_retraction(self) -> None:
        with self._noted():
            assert not self.watched.false_retractions, self.watched.false_retractions

    def teardown(self) -> None:
        if not hasattr(self, "stack"):
            return
        with self.stack:
            if self.failed:
                # What follows would fail as well, and hide the reason.
                return
            while self.held:
                self.grow()
            if self.drain:
                self.decode(0, LONG_RUN)
            for rid in self._live():
                self.node.abort(rid)
            for _ in range(MAX_TURNS):
                if self.node.idle:
                    break
                self._turn()
            assert self.node.idle, "aborted requests never end"
            self._check_ends()
            audit.check_empty(self.node.fixture)

    def _check_ends(self) -> None:
        counters = self.node.counters
        for name in ("finished", "aborted"):
            self.totals[name] += len(getattr(counters, name))
        self.totals["decode steps"] += counters.decode_steps
        if self.node.forward.kv:
            self.totals["KV reads"] += self.node.forward.kv.reads
        self.totals["retracted"] += counters.retracted
        ended = sorted(counters.finished + counters.aborted)
        assert ended == [req.rid for req in self.reqs], f"only {ended} ended"
        for req in self.reqs:
            assert state.host_copy(req) is None, f"{req.rid} left a copy on the host"
            if req.rid in counters.finished:
                length, limit = req.finished_len, req.sampling_params.max_new_tokens
                assert 1 <= length <= limit, f"{req.rid} ended after {length} tokens"

    def _live(self) -> list[str]:
        counters = self.node.counters
        ended = {*counters.finished, *counters.aborted}
        return [req.rid for req in self.reqs if req.rid not in ended]

    def _turn(self) -> None:
        self.totals["turns"] += 1
        with self._noted():
            self.node.turn()

    @contextmanager
    def _noted(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.failed = True
            raise
