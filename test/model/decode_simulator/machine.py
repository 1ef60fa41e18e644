"""A Hypothesis state machine over a node: any order of what can happen to it.

After every rule the whole state is checked, and at the end that all memory
returns. The machine keeps its own account of the decode steps of each request: a
bound that reads the release's clock holds vacuously where that clock stands still.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
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

from sglang.test.kits.spec_decode_compat import prefix_cache_kinds

# isort: split
from sglang.srt.managers import scheduler as scheduler_module
from sglang.srt.managers.schedule_batch import Req, ScheduleBatch

from . import audit, state
from .config import NodeConfig
from .node import Node

DRAFT_TOKENS = 4
LONG_RUN = 40
MAX_REQS = 5
MAX_TURNS = 4_000

# What may be left out, for a release whose defect would hide the others.
CHECKS = ("clock", "bound", "retraction")


class Steps:
    """The machine's own account of one request since its (last) admission.

    Attributes:
        retractions: how often it had been retracted when the account began.
        count: decode preparations.
        frontier: positions before which no key is needed any more, as of the
            last preparation.
        due: the same, as of the last preparation that fell on the phase of the
            eviction interval; None if there was none yet.
    """

    def __init__(self, req: Req) -> None:
        self.retractions = req.retraction_count
        self.count = 0
        self.frontier = 0
        self.due: int | None = None


class Pattern:
    """The accepted numbers of one turn: they differ from request to request."""

    def __init__(self) -> None:
        self.first = 1

    def __call__(self, req: Req) -> int:
        return 1 + (self.first + int(req.rid[1:])) % DRAFT_TOKENS


class DecodeMachine(RuleBasedStateMachine):
    """Submit, decode, stop, retract, abort, and pools that shrink and grow.

    Attributes:
        turns_taken: turns of all machines of this process.
    """

    turns_taken = 0
    checks = tuple(os.environ.get("DECODE_MACHINE_CHECKS", ",".join(CHECKS)).split(","))

    @initialize(
        mode=st.sampled_from(
            [("null", cache) for cache in prefix_cache_kinds()] + [("decode", "chunk")]
        ),
        page_size=st.sampled_from((1, 4, 16)),
        overlap=st.booleans(),
        window=st.sampled_from((4, 16)),
        interval=st.sampled_from((8, 24)),
        pools=st.sampled_from(((96, 12), (96, 24), (32, 32), (24, 24))),
        drain=st.booleans(),
        chunked=st.booleans(),
        algorithm=st.sampled_from(("DSPARK", "DFLASH")),
    )
    def open_node(
        self,
        mode,
        page_size,
        overlap,
        window,
        interval,
        pools,
        drain,
        chunked,
        algorithm,
    ) -> None:
        # Pools of a few requests' size, so that memory does run out.
        unit = max(page_size, 4)
        self._stack = ExitStack()
        self.node = Node(
            NodeConfig(
                full_size=pools[0] * unit,
                swa_size=pools[1] * unit,
                page_size=page_size,
                sliding_window=window,
                disaggregation=mode[0],
                cache=mode[1],
                overlap=overlap,
                algorithm=algorithm,
                draft_tokens=DRAFT_TOKENS,
                eviction_interval=interval,
                chunked_prefill_size=32 if chunked else None,
                max_reqs=MAX_REQS,
                max_context_len=1_024,
            ),
            Pattern(),
        )
        self._stack.enter_context(self.node)
        self.reqs: list[Req] = []
        self.steps: dict[str, Steps] = {}
        self.held: list[tuple[object, torch.Tensor]] = []
        self.false_retractions: list[str] = []
        self._forced = False
        self._drain = drain
        for name, watch in (
            ("check_decode_mem", self._watched_check),
            ("retract_decode", self._watched_retraction),
            ("prepare_for_decode", self._watched_prepare),
        ):
            watched = watch(getattr(ScheduleBatch, name))
            self._stack.enter_context(patch.object(ScheduleBatch, name, watched))

    @rule(
        prompt_len=st.integers(1, 70),
        max_new_tokens=st.integers(1, 200),
        first_token=st.integers(0, 2),
        count=st.integers(1, 3),
    )
    def submit(
        self, prompt_len: int, max_new_tokens: int, first_token: int, count: int
    ) -> None:
        for i in range(count):
            self.reqs.append(
                self.node.submit(
                    prompt_len=prompt_len,
                    max_new_tokens=max_new_tokens + i,
                    rid=f"r{len(self.reqs):03}",
                    first_token=first_token + i,
                    ignore_eos=False,
                )
            )

    @precondition(lambda self: self._live())
    @rule(first=st.integers(0, DRAFT_TOKENS - 1), turns=st.integers(1, 12))
    def decode(self, first: int, turns: int) -> None:
        for i in range(turns):
            self.node._accept.first = first + i
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
        self._forced = True
        with (
            patch.object(scheduler_module, "TEST_RETRACT", True),
            patch.object(scheduler_module, "TEST_RETRACT_INTERVAL", 1),
        ):
            self._turn()
        self._forced = False

    @precondition(lambda self: self._live())
    @rule(full=st.booleans(), share=st.integers(1, 3))
    def shrink(self, full: bool, share: int) -> None:
        """Take a part of what is free out of one pool, or all of it."""
        allocator = self.node.rig.allocator
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
        swa = self.node.rig.allocator.swa_attn_allocator
        held = {True: [], False: []}
        for pool, slots in self.held:
            held[pool is swa].extend(slots.tolist())
        audit.check_ownership(self.node.rig, self.reqs, held[False], held[True])

    @invariant()
    def windows_whole(self) -> None:
        for req in self.reqs:
            if state.holds_kv(req):
                audit.check_window(self.node.rig, req)

    @invariant()
    def no_false_retraction(self) -> None:
        if "retraction" in self.checks:
            assert not self.false_retractions, self.false_retractions[0]

    def teardown(self) -> None:
        if not hasattr(self, "node"):
            return
        try:
            while self.held:
                self.grow()
            if self._drain:
                self.decode(0, LONG_RUN)
            for rid in self._live():
                self.node.abort(rid)
            for _ in range(MAX_TURNS):
                if self.node.idle:
                    break
                self._turn()
            assert self.node.idle, "aborted requests never end"
            self._check_ends()
            audit.check_empty(self.node.rig)
        finally:
            self._stack.close()

    totals: dict = {}

    def _check_ends(self) -> None:
        c = self.node.counters
        for k, v in dict(
            natural=getattr(self, "nat", 0),
            retr=c.retracted,
            fin=len(c.finished),
            ab=len(c.aborted),
            rep=c.reprefilled_tokens,
        ).items():
            self.totals[k] = self.totals.get(k, 0) + v
        ended = self.node.counters.finished + self.node.counters.aborted
        assert sorted(ended) == sorted(req.rid for req in self.reqs), ended
        for req in self.reqs:
            assert req.rid in self.node.counters.aborted or (
                req.finished_len is not None
                and 1 <= req.finished_len <= req.sampling_params.max_new_tokens
            ), f"{req.rid} ended after {req.finished_len} tokens"
            assert state.host_copy(req) is None, f"{req.rid} left a copy on the host"

    def _live(self) -> list[str]:
        counters = self.node.counters
        ended = {*counters.finished, *counters.aborted}
        return [req.rid for req in self.reqs if req.rid not in ended]

    def _turn(self) -> None:
        type(self).turns_taken += 1
        self.node.turn()

    def _watched_check(self, check_decode_mem):
        """Every memory check: whatever it reclaims, not from a running prefill."""

        def watched(batch: ScheduleBatch, *args, **kwargs):
            fresh = [
                (req, state.swa_evicted_len(req))
                for req in batch.reqs
                if state.holds_kv(req) and not self._steps_of(req).count
            ]
            enough = check_decode_mem(batch, *args, **kwargs)
            for req, cursor in fresh:
                assert (
                    state.swa_evicted_len(req) == cursor
                ), f"{req.rid}: evicted during its prefill"
            return enough

        return watched

    def _watched_prepare(self, prepare_for_decode):
        """Every decode preparation, with an account of each request before and
        after it."""

        def watched(batch: ScheduleBatch):
            interval_phase = (batch.forward_iter or 0) % self._interval == 0
            before = [(state.swa_evicted_len(r), r.seqlen - 1) for r in batch.reqs]
            prepare_for_decode(batch)
            for req, (cursor, pre_len) in zip(batch.reqs, before):
                steps = self._steps_of(req)
                self._account(steps, req, cursor, pre_len, due=interval_phase)

        return watched

    def _steps_of(self, req: Req) -> Steps:
        steps = self.steps.get(req.rid)
        if steps is None or steps.retractions != req.retraction_count:
            steps = self.steps[req.rid] = Steps(req)
        return steps

    def _account(
        self, steps: Steps, req: Req, cursor: int, pre_len: int, *, due: bool
    ) -> None:
        after = state.swa_evicted_len(req)
        assert after >= cursor, f"{req.rid}: its cursor went back to {after}"
        if steps.count == 0:
            # Its prefill may still be writing what an eviction would give away.
            assert after == cursor, f"{req.rid}: evicted during its prefill"
        else:
            steps.frontier = max(0, pre_len - self._retained())
            if due:
                steps.due = steps.frontier
        steps.count += 1
        if "clock" in self.checks:
            assert req.decode_batch_idx == steps.count, (
                f"{req.rid}: its clock shows {req.decode_batch_idx} after "
                f"{steps.count} decode steps"
            )
        if "bound" in self.checks:
            self._check_bound(req, steps)

    def _check_bound(self, req: Req, steps: Steps) -> None:
        """Releases evict on the phase of the interval, or once an interval of
        tokens is out of the window: what is behind the looser of both is given
        back, down to a whole page."""
        if steps.due is None:
            return
        page_size = self.node.config.page_size
        promised = (
            min(steps.due, steps.frontier - self._interval) // page_size * page_size
        )
        cursor = max(state.swa_evicted_len(req), state.cache_protected_len(req))
        assert cursor >= promised, (
            f"{req.rid}: SWA given back up to {cursor}, promised up to {promised} "
            f"of {req.seqlen} tokens"
        )

    @property
    def _interval(self) -> int:
        return self.node.config.eviction_interval

    def _retained(self) -> int:
        """Tokens that a request keeps behind its last one: the window, and with a
        prefix cache whole pages of at least one."""
        config = self.node.config
        if config.cache == "chunk":
            return config.sliding_window
        return -(-max(config.sliding_window, config.page_size) // config.page_size) * (
            config.page_size
        )

    def _watched_retraction(self, retract_decode):
        def watched(batch: ScheduleBatch, *args, **kwargs):
            if not self._forced:
                self.nat = getattr(self, "nat", 0) + 1
                self._check_retraction(batch)
            return retract_decode(batch, *args, **kwargs)

        return watched

    def _check_retraction(self, batch: ScheduleBatch) -> None:
        """Before the release retracts for lack of SWA memory: whether requests that
        have decoded hold any that they no longer need."""
        allocator = self.node.rig.allocator
        needed = batch.new_tokens_required_next_decode()
        if allocator.full_available_size() < needed:
            return
        before = allocator.swa_available_size()
        for req in batch.reqs:
            if self._steps_of(req).count:
                batch._evict_swa(req, req.seqlen - 1)
        dead = allocator.swa_available_size() - before
        if dead:
            self.false_retractions.append(
                f"retracted for {needed} SWA tokens while {before} were free and "
                f"{dead} dead"
            )
