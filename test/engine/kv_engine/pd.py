"""The prefill node of a decode node: what its transfer would have written."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from sglang.srt.disaggregation import decode
from sglang.srt.disaggregation.base.conn import StateType
from sglang.srt.disaggregation.fake.conn import FakeKVReceiver
from sglang.srt.managers.schedule_batch import Req, ScheduleBatch
from sglang.srt.managers.scheduler import Scheduler

from . import text
from .worker import KVWorker


def connect(scheduler: Scheduler, worker: KVWorker) -> None:
    """Let the fake backend's transfers write KV, where they are told to and as
    soon as they are told: a real one does not wait for the decode node's stream.

    A request that starts to decode, fresh or resumed, is made known to the worker.
    """
    send, prebuilt = FakeKVReceiver.send_metadata, ScheduleBatch.process_prebuilt

    def send_metadata(
        receiver: FakeKVReceiver,
        kv_indices: Any,
        aux_index: Optional[int] = None,
        state_indices: Optional[list] = None,
        **kwargs: Any,
    ) -> None:
        _transfer(scheduler, worker, receiver, kv_indices, aux_index, state_indices)
        send(receiver, kv_indices, aux_index, state_indices, **kwargs)

    def process_prebuilt(batch: ScheduleBatch, *args: Any, **kwargs: Any) -> Any:
        for req in batch.reqs:
            worker.adopt(req)
        return prebuilt(batch, *args, **kwargs)

    if hasattr(decode, "_generate_fake_prefill_handoff_output_id"):
        # Later releases draw the first token of a fake transfer at random.
        decode._generate_fake_prefill_handoff_output_id = lambda req: _first_token(
            worker, req
        )
    FakeKVReceiver.send_metadata = send_metadata
    ScheduleBatch.process_prebuilt = process_prebuilt


def _transfer(scheduler, worker, receiver, pages, aux_index, states) -> None:
    queue = scheduler.disagg_decode_prealloc_queue
    req = next(
        waiting.req for waiting in queue.queue if waiting.kv_receiver is receiver
    )
    worker.cells.poison_free()
    tags = np.array(text.tags_of(req.origin_input_ids), dtype=np.uint64)
    page_size = scheduler.page_size
    _write(worker.cells.full, np.asarray(pages), tags, page_size)
    state_types = queue.kv_manager.kv_args.state_types
    swa = states[state_types.index(StateType.SWA)]
    _write(worker.cells.swa, np.asarray(swa), tags, page_size)
    first = _first_token(worker, req)
    scheduler.disagg_metadata_buffers.output_ids[aux_index][0] = first


def _first_token(worker: KVWorker, req: Req) -> int:
    return text.continued(req.origin_input_ids, 1, worker.reader.window)[0]


def _write(layer, pages: np.ndarray, tags: np.ndarray, page_size: int) -> None:
    """Write the last tokens, as many pages as there are."""
    slots = pages[:, None].astype(np.int64) * page_size + np.arange(page_size)
    start = (-(-len(tags) // page_size) - len(pages)) * page_size
    positions = np.arange(start, len(tags))
    layer.write(slots.reshape(-1)[: len(positions)], positions, tags[start:])
