"""Watch the decode preparation of a batch without replacing any of it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from sglang.srt.managers.schedule_batch import ScheduleBatch

# Each names alloc_for_spec_decode in its own module.
_ALLOC_CALLERS = (
    "sglang.srt.speculative.eagle_utils",
    "sglang.srt.speculative.dflash_info_v2",
)


@contextmanager
def record_decode_calls(
    batch: ScheduleBatch,
) -> Iterator[list[tuple[str, list[int]]]]:
    """Yield a list that receives ``("evict" | "alloc", clocks)`` per call, in
    order, where ``clocks`` are the requests' ``decode_batch_idx`` at that time."""
    calls: list[tuple[str, list[int]]] = []

    def watched(name, function):
        def call(*args, **kwargs):
            calls.append((name, [req.decode_batch_idx for req in batch.reqs]))
            return function(*args, **kwargs)

        return call

    with ExitStack() as stack:
        evict = watched("evict", ScheduleBatch.maybe_evict_swa)
        stack.enter_context(patch.object(ScheduleBatch, "maybe_evict_swa", evict))
        for name in _ALLOC_CALLERS:
            module = importlib.import_module(name)
            alloc = watched("alloc", module.alloc_for_spec_decode)
            stack.enter_context(patch.object(module, "alloc_for_spec_decode", alloc))
        yield calls
