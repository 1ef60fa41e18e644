"""Serve requests with a booted scheduler, and record what was seen."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

import msgspec

from sglang.srt.managers.scheduler import Scheduler

from . import text
from .boot import boot
from .client import Client, Done, Request
from .connect import connect
from .engine import Engine
from .watch import Retraction, Watch
from .worker import KVWorker


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the requests.

    Attributes:
        died: the exception that ended the scheduler's loop; empty if none did.
        wrong_text: requests whose output is not the one that their prompt defines.
        aborted: requests that ended otherwise than by their length.
        turns: of the event loop.
        computed, hit: tokens that prefills computed, and found in the cache.
        again: tokens that were computed once more, of what was computed.
        read: cells that forwards read, each right.
        swa_peak, swa_held_peak: most sliding-window slots that were taken, and of
            them those that the tree could not have given back.
        missing: slots of each pool that at the end are neither free nor evictable.
    """

    died: str
    wrong_text: list[str]
    aborted: list[str]
    retractions: list[Retraction]
    turns: int
    prefills: int
    decodes: int
    computed: int
    again: int
    hit: int
    read: int
    swa_peak: int
    swa_held_peak: int
    missing: dict[str, int]


def serve(
    engine: Engine,
    requests: list[Request],
    folder: Path,
    *,
    seed: int = 0,
    turns: int = 5000,
    sabotage: Callable[[Scheduler], None] | None = None,
) -> Record:
    """Run the release's event loop until all of them have ended.

    Args:
        folder: where a model's configuration may be written.
        seed: of the draft.
        turns: of the event loop, at most.
        sabotage: puts a defect into the scheduler.
    """
    client = Client(requests, turns)
    scheduler = boot(engine, client, folder)
    worker = scheduler.draft_worker
    connect(scheduler, worker, draft_tokens=engine.draft_tokens, seed=seed)
    watch = Watch(scheduler, worker, lambda: client.turn)
    if sabotage:
        sabotage(scheduler)
    died = ""
    try:
        scheduler.run_event_loop()
    except Done:
        pass
    except Exception as error:
        # Whatever leaves the loop ends the server's process.
        traceback.print_exc()
        died = f"{type(error).__name__}: {error}".splitlines()[0].rstrip(": ")
    return _record(requests, client, worker, watch, died)


def _record(
    requests: list[Request], client: Client, worker: KVWorker, watch: Watch, died: str
) -> Record:
    counts = worker.counts
    right = {
        request.rid: text.continued(
            request.prompt, request.new_tokens, worker.reader.window
        )
        for request in requests
    }
    return Record(
        died=died,
        wrong_text=[rid for rid in right if client.text.get(rid) != right[rid]],
        aborted=sorted(
            rid for rid, why in client.reasons.items() if why["type"] != "length"
        ),
        retractions=watch.retractions,
        turns=client.turn,
        prefills=counts.prefills,
        decodes=counts.decodes,
        computed=counts.computed,
        again=counts.again,
        hit=counts.hit,
        read=worker.reader.count,
        swa_peak=watch.swa_peak,
        swa_held_peak=watch.swa_held_peak,
        missing={} if died else watch.missing(),
    )
