"""A scheduler of the release that has what its loop reads, and nothing else.

``Scheduler.__init__`` starts model workers and sockets. Here the object is made
without it and given its real pools, prefix cache, policy, token ratio and result
processor; every optional feature is off; what only reports outward is counted.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from types import SimpleNamespace
from typing import Any

from sglang.srt.disaggregation.utils import DisaggregationMode
from sglang.srt.managers.schedule_batch import ScheduleBatch
from sglang.srt.managers.schedule_policy import SchedulePolicy
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.managers.scheduler_components.batch_result_processor import (
    SchedulerBatchResultProcessor,
)
from sglang.srt.managers.scheduler_components.new_token_ratio_tracker import (
    NewTokenRatioTracker,
)
from sglang.srt.runtime_context import get_server_args
from sglang.test.kits.spec_decode_kit import VOCAB_SIZE, SpecDecodeRig

from .config import NodeConfig
from .counters import Counters

_OFF = dict.fromkeys(
    (
        "abort_on_priority_when_disabled",
        "enable_continuous_input_polling",
        "enable_decode_hicache",
        "enable_dynamic_chunking",
        "enable_fpm",
        "enable_hicache_storage",
        "enable_hierarchical_cache",
        "enable_hisparse",
        "enable_lmcache",
        "enable_lora",
        "enable_overlap_mlx",
        "enable_priority_preemption",
        "enable_priority_scheduling",
        "enable_unified_cache_external_linker",
        "is_mixed_chunk",
        "require_mlp_sync",
        "schedule_low_priority_values_first",
    ),
    False,
)
_ABSENT = dict.fromkeys(
    (
        "_pending_chunked_abort_req",
        "chunked_req",
        "decode_offload_manager",
        "dllm_config",
        "draft_worker",
        "dynamic_chunk_sizer",
        "hisparse_coordinator",
        "last_batch",
        "logprob_result_processor",
        "lora_drainer",
        "max_queued_requests",
        "min_free_slots_delayer",
        "mm_receiver",
        "prefill_bs_tracker",
        "prefill_delayer",
        "rust_server",
        "scheduler_stage_metrics",
        "truncation_align_size",
    )
)
_ZERO = dict.fromkeys(
    (
        "_prefill_decode_interval_remaining",
        "forward_ct",
        "max_prefill_bs",
        "prefill_decode_interval",
        "priority_scheduling_preemption_threshold",
        "processed_tokens_counter",
    ),
    0,
)


class Sink:
    """An edge that only reports outward: takes every call and answers None.

    What the release reads from such an object is given as a field.
    """

    def __init__(self, **fields: Any) -> None:
        vars(self).update(fields)

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return _ignore


def make_scheduler(
    fixture: SpecDecodeRig, config: NodeConfig, counters: Counters
) -> Scheduler:
    """A scheduler over the pools and prefix cache of ``fixture``."""
    scheduler = Scheduler.__new__(Scheduler)
    fields = (
        _OFF
        | _ABSENT
        | _ZERO
        | _memory(fixture)
        | _policy(fixture, config)
        | _edges(counters)
        | dict(
            server_args=get_server_args(),
            enable_overlap=config.overlap,
            # Set by the aggregated overlap loop of the releases that have it.
            enable_skip_finishing_decode=(
                config.overlap and config.disaggregation == "null"
            ),
            disaggregation_mode=DisaggregationMode(config.disaggregation),
            running_batch=ScheduleBatch(reqs=[], batch_is_full=False),
            waiting_queue=[],
            result_queue=deque(),
            device="cpu",
            ps=SimpleNamespace(pp_size=1, dp_rank=0, gpu_id=0),
        )
    )
    vars(scheduler).update(fields)
    scheduler.batch_result_processor = _make_result_processor(scheduler, counters)
    return scheduler


def _memory(fixture: SpecDecodeRig) -> dict[str, Any]:
    return dict(
        req_to_token_pool=fixture.req_to_token_pool,
        token_to_kv_pool_allocator=fixture.allocator,
        tree_cache=fixture.tree_cache,
        page_size=fixture.page_size,
        spec_algorithm=fixture.algorithm,
        is_hybrid_swa=fixture.tree_cache.supports_swa(),
        sliding_window_size=fixture.tree_cache.sliding_window_size,
        is_generation=True,
        model_config=SimpleNamespace(
            vocab_size=VOCAB_SIZE,
            is_encoder_decoder=False,
            is_multimodal=False,
            num_hidden_layers=2,
            think_end_id=None,
            think_end_ids=None,
            self_opened_think_start_ids=None,
        ),
    )


def _policy(fixture: SpecDecodeRig, config: NodeConfig) -> dict[str, Any]:
    tracker = NewTokenRatioTracker
    if hasattr(tracker, "from_config"):
        new_token_ratio = tracker.from_config()
    else:
        new_token_ratio = tracker.from_server_args(get_server_args())
    return dict(
        policy=SchedulePolicy("fcfs", fixture.tree_cache, False, False, False),
        new_token_ratio_tracker=new_token_ratio,
        chunked_prefill_size=config.chunked_prefill_size,
        max_prefill_tokens=config.full_size,
        max_running_requests=config.max_reqs,
    )


def _edges(counters: Counters) -> dict[str, Any]:
    return dict(
        metrics_reporter=Sink(
            enable_metrics=True,
            metrics_collector=counters,
            num_generated_tokens=0,
            forward_ct_decode=0,
        ),
        ipc_channels=SimpleNamespace(send_to_tokenizer=counters),
        output_streamer=counters,
        load_inquirer=SimpleNamespace(_get_num_pending_tokens=lambda **_: 0),
        grammar_manager=Sink(has_waiting_grammars=lambda: False),
        beam_coordinator=Sink(pending_member_rows=lambda batch: 0),
        dp_attn_adapter=SimpleNamespace(
            maybe_prepare_mlp_sync_batch=_same,
            maybe_convert_decode_to_extend=_same,
        ),
        ngram_embedding_manager=SimpleNamespace(prepare_for_forward=_same),
        tp_worker=SimpleNamespace(
            model_runner=SimpleNamespace(attn_backend=None, prefill_aware_swa=False)
        ),
        model_worker=Sink(prepare_for_kv_cache_release=None),
        metrics_collector=Sink(),
    )


def _make_result_processor(
    scheduler: Scheduler, counters: Counters
) -> SchedulerBatchResultProcessor:
    known = vars(scheduler) | dict(abort_request=scheduler.abort_request)
    names = [field.name for field in dataclasses.fields(SchedulerBatchResultProcessor)]
    return SchedulerBatchResultProcessor(**{name: known[name] for name in names})


def _same(batch, **_: Any):
    return batch


def _ignore(*_: Any, **__: Any) -> None:
    return None
