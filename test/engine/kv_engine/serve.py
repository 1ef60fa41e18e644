"""Serve requests with a booted scheduler, and record what was seen."""

from __future__ import annotations

from pathlib import Path

import msgspec

from . import text
from .boot import Engine, boot
from .cells import Cells
from .client import Client, Done, Request
from .target import WINDOW  # noqa: F401
from .watch import Retraction, Watch, _before


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the requests.

    Attributes:
        died: the exception that ended the scheduler's loop; empty if none did.
        wrong_text: requests whose output is not the one that their prompt defines.
        aborted: requests that ended otherwise than by their length.
        computed: tokens that prefills computed; ``again`` of them for requests
            that had been retracted.
        hit: tokens that prefills found in the cache, ``hit_first`` of them when
            a request came first.
        read: cells that forwards read, each right.
        not_free: slots of each pool that were neither free nor evictable at the end.
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
    hit_first: int
    read: int
    swa_peak: int
    swa_held_peak: int
    not_free: dict[str, int]


def serve(
    engine: Engine,
    requests: list[Request],
    folder: Path,
    *,
    seed: int = 0,
    turns: int = 20000,
) -> Record:
    """Run the release's event loop until all of them have ended."""
    client = Client(requests, turns)
    scheduler = boot(engine, client, folder)
    worker = scheduler.draft_worker
    cells = Cells(scheduler.token_to_kv_pool_allocator)
    worker.attach(cells, scheduler.sliding_window_size, engine.draft_tokens)
    worker.seed = seed
    watch = Watch(scheduler, worker, lambda: client.turn)
    _before(scheduler, "process_batch_result", lambda batch, result: worker.finish(result))
    died = ""
    try:
        scheduler.run_event_loop()
    except Done:
        pass
    except Exception as error:
        # Whatever leaves the loop ends the server's process.
        died = f"{type(error).__name__}: {error}".splitlines()[0].rstrip(": ")
        import traceback; traceback.print_exc()
    counts = worker.counts
    _debug(requests, client, scheduler.sliding_window_size)
    return Record(
        died=died,
        wrong_text=_wrong(requests, client, scheduler.sliding_window_size),
        aborted=sorted(
            rid for rid, why in client.reasons.items() if why["type"] != "length"
        ),
        retractions=watch.retractions,
        turns=client.turn,
        prefills=counts.prefills,
        decodes=counts.decodes,
        computed=sum(map(sum, counts.computed.values())),
        again=sum(sum(lens[1:]) for lens in counts.computed.values()),
        hit=sum(map(sum, counts.hit.values())),
        hit_first=sum(lens[0] for lens in counts.hit.values()),
        read=counts.read,
        swa_peak=watch.swa_peak,
        swa_held_peak=watch.swa_held_peak,
        not_free={
            pool: size - free for pool, (free, size) in watch.free().items()
        },
    )


def _debug(requests, client, window):
    for r in requests:
        a, b = client.text.get(r.rid,[]), text.continued(r.prompt, r.new_tokens, window)
        if a != b: print(r.rid, len(a), len(b), r.new_tokens, next((i for i,(x,y) in enumerate(zip(a,b)) if x!=y), None), a[-8:], b[-8:], client.reasons.get(r.rid))


def _wrong(requests: list[Request], client: Client, window: int) -> list[str]:
    return [
        request.rid
        for request in requests
        if client.text.get(request.rid)
        != text.continued(request.prompt, request.new_tokens, window)
    ]
