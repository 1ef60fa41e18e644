"""What a decode step promises each request, watched as it happens.

The account of a request's decode steps is kept here: a bound that reads the
release's own clock holds vacuously where that clock stands still.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from unittest.mock import patch

from sglang.srt.managers.schedule_batch import Req, ScheduleBatch

from . import state
from .dead import dead_swa
from .node import Node

# May be left out one by one, where the defect of one would hide the others.
CHECKS = ("clock", "bound", "retraction", "handoff", "backup", "kv")


class Steps:
    """The account of one request since its (last) admission.

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


class Invariants:
    """Watches the decode preparations and memory checks of a node.

    Args:
        node: the node.
        checks: those of :data:`CHECKS` to make; the others go unsaid.
        reqs: all requests that may hold slots.
        taken: pools, and slots that were taken out of them.

    Attributes:
        ignore_retractions: set while a retraction is wanted.
        false_retractions: what was retracted while dead SWA slots were held.
    """

    def __init__(
        self,
        node: Node,
        checks: Iterable[str] = CHECKS,
        reqs: Sequence[Req] = (),
        taken: Sequence[tuple] = (),
    ) -> None:
        self.ignore_retractions = False
        self.false_retractions: list[str] = []
        self._node = node
        self._reqs = reqs
        self._taken = taken
        self._checks = frozenset(checks)
        self._steps: dict[str, Steps] = {}

    def watch(self, stack: ExitStack) -> None:
        """Watch as long as ``stack`` lives."""
        for name, watched in (
            ("prepare_for_decode", self._watched_prepare),
            ("check_decode_mem", self._watched_check),
            ("retract_decode", self._watched_retraction),
        ):
            method = watched(getattr(ScheduleBatch, name))
            stack.enter_context(patch.object(ScheduleBatch, name, method))

    def _watched_prepare(self, prepare_for_decode):
        def watched(batch: ScheduleBatch):
            interval = self._node.config.eviction_interval
            on_phase = (batch.forward_iter or 0) % interval == 0
            before = [(state.swa_evicted_len(r), r.seqlen - 1) for r in batch.reqs]
            prepare_for_decode(batch)
            for req, (cursor, pre_len) in zip(batch.reqs, before):
                self._count(req, cursor, pre_len, on_phase)

        return watched

    def _watched_check(self, check_decode_mem):
        def watched(batch: ScheduleBatch, *args, **kwargs):
            fresh = [
                (req, state.swa_evicted_len(req))
                for req in batch.reqs
                if state.holds_kv(req) and not self._steps_of(req).count
            ]
            enough = check_decode_mem(batch, *args, **kwargs)
            for req, cursor in fresh:
                if state.holds_kv(req):
                    self._check_untouched(req, cursor)
            return enough

        return watched

    def _watched_retraction(self, retract_decode):
        def watched(batch: ScheduleBatch, *args, **kwargs):
            if not self.ignore_retractions and "retraction" in self._checks:
                self._check_retraction(batch)
            return retract_decode(batch, *args, **kwargs)

        return watched

    def _steps_of(self, req: Req) -> Steps:
        steps = self._steps.get(req.rid)
        if steps is None or steps.retractions != req.retraction_count:
            steps = self._steps[req.rid] = Steps(req)
        return steps

    def _count(self, req: Req, cursor: int, pre_len: int, on_phase: bool) -> None:
        steps = self._steps_of(req)
        after = state.swa_evicted_len(req)
        assert after >= cursor, f"{req.rid}: its cursor went back to {after}"
        if steps.count == 0:
            self._check_untouched(req, cursor)
        else:
            steps.frontier = max(0, pre_len - state.retained_len(self._node.config))
            if on_phase:
                steps.due = steps.frontier
        steps.count += 1
        if "clock" in self._checks:
            assert req.decode_batch_idx == steps.count, (
                f"{req.rid}: its clock shows {req.decode_batch_idx} after "
                f"{steps.count} decode steps"
            )
        if "bound" in self._checks:
            self._check_bound(req, steps)

    def _check_untouched(self, req: Req, cursor: int) -> None:
        """A prefill may still be running, and reads a window before its tokens."""
        after = state.swa_evicted_len(req)
        read_from = state.prefix_len(req) - self._node.config.sliding_window
        # The cursor of a prefix cache begins behind what the cache owns.
        most = max(cursor, read_from, state.cache_protected_len(req))
        assert after <= most, f"{req.rid}: evicted to {after} during its prefill"

    def _check_bound(self, req: Req, steps: Steps) -> None:
        """Releases evict on the phase of the interval, or once an interval of
        tokens is out of the window: what is behind the looser of both is given
        back, down to a whole page."""
        if steps.due is None:
            return
        config = self._node.config
        promised = min(steps.due, steps.frontier - config.eviction_interval)
        promised = promised // config.page_size * config.page_size
        cursor = max(state.swa_evicted_len(req), state.cache_protected_len(req))
        assert cursor >= promised, (
            f"{req.rid}: SWA given back up to {cursor}, promised up to {promised} "
            f"of {req.seqlen} tokens"
        )

    def _check_retraction(self, batch: ScheduleBatch) -> None:
        """Before the release retracts for lack of SWA memory: whether requests own
        or lock dead pages beyond those that a cache of whole pages keeps."""
        fixture = self._node.fixture
        needed = batch.new_tokens_required_next_decode()
        if fixture.allocator.full_available_size() < needed:
            return
        decoding = [req for req in batch.reqs if self._steps_of(req).count]
        others = [req for req in self._reqs or batch.reqs if req not in decoding]
        swa = fixture.allocator.swa_attn_allocator
        taken = [slots for pool, slots in self._taken if pool is swa]
        dead = dead_swa(fixture, decoding, others, taken)
        config = self._node.config
        kept = state.retained_len(config) - config.sliding_window
        spared = -(-kept // config.page_size) * config.page_size * len(decoding)
        # A lock ends with a whole page, and under overlap one result later.
        page_each = config.page_size * len(batch.reqs)
        if dead.owned > spared or dead.owned + dead.locked > spared + page_each:
            self.false_retractions.append(
                f"retracted for {needed} SWA tokens while "
                f"{fixture.allocator.swa_available_size()} were free and {dead} dead"
            )
