"""What a node is asked to do: each task is a configuration in, a record out.

Every task is a pure function of its configuration and of the release that it runs
on, apart from the times that it measures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Union

import msgspec

from sglang.test.kits.spec_decode_caches import prefix_cache_kinds  # noqa: F401

from .config import NodeConfig
from .cost import (
    CheckCost,
    CheckCostRecord,
    PrepareCost,
    PrepareCostRecord,
    check_cost,
    prepare_cost,
)
from .forward import Accepted, acceptance
from .load import Load, LoadRecord, load
from .node import Node
from .overload import Overload, OverloadRecord, overload

Progress = Callable[[int, int], None]


class LongGeneration(msgspec.Struct, frozen=True, kw_only=True, tag="long_generation"):
    """One request that never stops by itself, alone on the node.

    Attributes:
        prompt_len, max_new_tokens: in tokens.
        sample_every: output tokens between two samples of the pools.
    """

    node: NodeConfig
    seed: int = 0
    accepted: Accepted = None
    prompt_len: int = 8
    max_new_tokens: int = 100_000
    sample_every: int = 1_000


class LongGenerationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What became of it. Pool figures are in tokens.

    Attributes:
        steps: decode steps.
        output_tokens: tokens generated.
        outcome: ``finished``, ``aborted`` or ``retracted``.
        swa_peak, full_peak: the most that was allocated after any step.
        swa_samples: ``(output tokens, SWA tokens allocated)``.
    """

    steps: int
    output_tokens: int
    outcome: str
    swa_peak: int
    full_peak: int
    swa_samples: tuple[tuple[int, int], ...]


class Together(msgspec.Struct, frozen=True, kw_only=True, tag="together"):
    """Equal requests with different prompts, submitted at once.

    The run ends at the first retraction or abort: it asks whether so many fit.
    """

    node: NodeConfig
    requests: int
    seed: int = 0
    accepted: Accepted = None
    prompt_len: int = 1_024
    max_new_tokens: int = 32_768


class TogetherRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Whether they ran together from the first step to the last.

    Attributes:
        steps: decode steps.
        fit: no request was retracted, aborted, or kept waiting while others
            decoded their last token.
        most_running: the largest decode batch.
        swa_peak, full_peak: the most tokens that were allocated after any step.
    """

    steps: int
    fit: bool
    most_running: int
    swa_peak: int
    full_peak: int


Task = Union[LongGeneration, Together, Load, Overload, PrepareCost, CheckCost]
Record = Union[
    LongGenerationRecord,
    TogetherRecord,
    LoadRecord,
    OverloadRecord,
    PrepareCostRecord,
    CheckCostRecord,
]


def run(task: Task, progress: Progress = lambda done, total: None) -> Record:
    """Run a task of any kind."""
    runners = {
        LongGeneration: long_generation,
        Together: together,
        Load: load,
        Overload: overload,
        PrepareCost: prepare_cost,
        CheckCost: check_cost,
    }
    return runners[type(task)](task, progress)


def long_generation(
    task: LongGeneration, progress: Progress = lambda done, total: None
) -> LongGenerationRecord:
    """Run :class:`LongGeneration`; progress is told in output tokens."""
    samples, swa_peak, full_peak, next_sample = [], 0, 0, 0
    with Node(task.node, acceptance(task)) as node:
        req = node.submit(
            prompt_len=task.prompt_len, max_new_tokens=task.max_new_tokens
        )
        while not node.idle and not node.counters.retracted:
            node.turn()
            swa_used = node.swa_used()
            swa_peak = max(swa_peak, swa_used)
            full_peak = max(full_peak, node.full_used())
            if len(req.output_ids) >= next_sample:
                samples.append((len(req.output_ids), swa_used))
                progress(len(req.output_ids), task.max_new_tokens)
                next_sample += task.sample_every
        return LongGenerationRecord(
            steps=node.counters.decode_steps,
            output_tokens=min(len(req.output_ids), task.max_new_tokens),
            outcome=_outcome(node, req.rid),
            swa_peak=swa_peak,
            full_peak=full_peak,
            swa_samples=tuple(samples),
        )


def together(
    task: Together, progress: Progress = lambda done, total: None
) -> TogetherRecord:
    """Run :class:`Together`; progress is told in output tokens of the first."""
    swa_peak = full_peak = most_running = 0
    with Node(task.node, acceptance(task)) as node:
        reqs = [
            node.submit(
                prompt_len=task.prompt_len,
                max_new_tokens=task.max_new_tokens,
                rid=f"r{i}",
                first_token=i,
            )
            for i in range(task.requests)
        ]
        counters = node.counters
        while not node.idle and not counters.retracted and not counters.aborted:
            batch = node.turn()
            most_running = max(most_running, len(batch.reqs) if batch else 0)
            swa_peak = max(swa_peak, node.swa_used())
            full_peak = max(full_peak, node.full_used())
            if counters.finished and node.scheduler.waiting_queue:
                break
            if counters.turns % 500 == 0:
                progress(len(reqs[0].output_ids), task.max_new_tokens)
        return TogetherRecord(
            steps=counters.decode_steps,
            fit=len(counters.finished) == task.requests,
            most_running=most_running,
            swa_peak=swa_peak,
            full_peak=full_peak,
        )


def _outcome(node: Node, rid: str) -> str:
    if rid in node.counters.finished:
        return "finished"
    return "aborted" if rid in node.counters.aborted else "retracted"
