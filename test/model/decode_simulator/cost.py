"""What decoding costs the scheduler, in CPU time of its thread: other processes
share the cores. Each task measures once, so that releases can take turns.
"""

from __future__ import annotations

import gc
import inspect
import time
from contextlib import ExitStack
from unittest.mock import patch

import msgspec

from sglang.srt.managers.schedule_batch import ScheduleBatch
from sglang.srt.runtime_context import get_server_args
from sglang.test.kits.spec_retract_kit import RetractTestCase

from .node_task import NodeTask

# So long that every request is past its prompt's window and has been evicted.
WARM_UP_STEPS = 300


class _Steady(NodeTask, frozen=True, kw_only=True):
    """A batch of ``requests`` that have all been decoding for a while."""

    requests: int
    prompt_len: int = 256


class PrepareCost(_Steady, frozen=True, kw_only=True, tag="prepare_cost"):
    """Time ``prepare_for_decode`` of a batch of long requests, ``steps`` times."""

    steps: int = 256

    def run(self) -> dict:
        """Nanoseconds of each timed preparation, in order."""
        node = _open(self)
        times: list[int] = []
        prepare_for_decode = ScheduleBatch.prepare_for_decode

        def timed(batch: ScheduleBatch) -> None:
            started = time.thread_time_ns()
            prepare_for_decode(batch)
            times.append(time.thread_time_ns() - started)

        with patch.object(ScheduleBatch, "prepare_for_decode", timed):
            _decode(node, self.steps)
        return dict(nanoseconds=times)


class CheckCost(_Steady, frozen=True, kw_only=True, tag="check_cost"):
    """Time ``check_decode_mem`` of such a batch, with SWA memory and without,
    ``rounds`` times each and some decode steps apart."""

    rounds: int = 24

    def run(self) -> dict:
        """Nanoseconds of each check, with memory to spare (``fits``); with no free
        SWA slot, whatever the release then does about it (``short``); and right
        after, when there is nothing left to reclaim (``short_again``). ``reclaimed``
        is how many SWA tokens each check of ``short`` freed."""
        node = _open(self)
        swa = node.fixture.allocator.swa_attn_allocator
        fits, short, again, reclaimed = [], [], [], []
        for _ in range(self.rounds):
            _decode(node, 7)
            batch = node.scheduler.running_batch
            # The first one after a step finds cold caches.
            _time_check(batch)
            fits.append(_time_check(batch))
            held = swa.alloc(swa.available_size())
            # Free counts as none while it is held; every other token is in use.
            before = swa.available_size()
            short.append(_time_check(batch))
            reclaimed.append(swa.available_size() - before)
            more = swa.available_size()
            held_again = swa.alloc(more) if more else None
            again.append(_time_check(batch))
            for slots in (held, held_again):
                if slots is not None:
                    swa.free(slots)
        return dict(fits=fits, short=short, short_again=again, reclaimed=reclaimed)


class RetractLoop(msgspec.Struct, frozen=True, kw_only=True, tag="retract_loop"):
    """Time one memory check and the retraction that follows, with no memory free.

    No request is longer than the window, so that no SWA slot is dead: every release
    retracts the same requests, and what one takes longer is the price of looking.
    """

    cache: str
    page_size: int
    requests: int
    window: int = 128
    accepted: int = 4

    def run(self) -> dict:
        """Milliseconds, and how many requests were retracted."""
        case = _Retraction()
        case.setUp()
        try:
            return case.retract(self)
        finally:
            case.doCleanups()


class _Retraction(RetractTestCase):
    def runTest(self) -> None:
        """Named by unittest; nothing to run."""

    def retract(self, task: RetractLoop) -> dict:
        fixture = self.make_rig(
            cache=task.cache,
            page_size=task.page_size,
            sliding_window=task.window,
            full_size=1 << 18,
            swa_size=1 << 17,
            max_reqs=task.requests,
            max_context_len=1_024,
        )
        batch = fixture.start(
            [
                fixture.make_req(prompt_len=8, rid=str(n), first_token=n)
                for n in range(task.requests)
            ]
        )
        for _ in range(task.window // 4 // task.accepted):
            fixture.step(batch, accepted=task.accepted)
        # The next step needs at least a page of every request.
        while batch.new_tokens_required_next_decode() < task.requests * task.page_size:
            fixture.step(batch, accepted=task.accepted)
        assert batch.reqs[0].seqlen <= task.window
        allocator = fixture.allocator
        for pool in (allocator.full_attn_allocator, allocator.swa_attn_allocator):
            pool.alloc(pool.available_size())
        takes_server_args = inspect.signature(batch.retract_decode).parameters
        arguments = (get_server_args(),) if takes_server_args else ()
        gc.disable()
        started = time.thread_time()
        fits = batch.check_decode_mem()
        retracted = [] if fits else batch.retract_decode(*arguments)[0]
        elapsed = time.thread_time() - started
        gc.enable()
        return dict(milliseconds=elapsed * 1e3, retracted=len(retracted))


def _time_check(batch: ScheduleBatch) -> int:
    started = time.thread_time_ns()
    batch.check_decode_mem()
    return time.thread_time_ns() - started


# The node of the last measurement, which goes on where the next is of its kind.
_last = (None, None, ExitStack())


def _open(task: _Steady):
    """The open node of this configuration, or a new one in its place."""
    global _last
    key, node, stack = _last
    if key == task:
        return node
    stack.close()
    node = stack.enter_context(task.open())
    _last = (task, node, stack)
    for i in range(task.requests):
        node.submit(
            rid=f"r{i}",
            prompt_len=task.prompt_len,
            max_new_tokens=task.node.max_context_len - task.prompt_len,
            first_token=i,
        )
    _decode(node, WARM_UP_STEPS)
    return node


def _decode(node, steps: int) -> None:
    until = node.counters.decode_steps + steps
    while node.counters.decode_steps < until:
        batch = node.turn()
        assert batch is not None, "the requests have ended: max_context_len"
