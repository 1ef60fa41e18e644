"""CPU stand-ins for the Triton kernels on the path of a decode preparation, with
the kernels' own contracts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch

from sglang.test.test_utils import maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.mem_cache import allocation  # noqa: E402
from sglang.srt.mem_cache.allocator import paged  # noqa: E402
from sglang.srt.platforms.cpu import CpuSRTPlatform  # noqa: E402
from sglang.test.kits.features import HAS_PLATFORM_KERNELS  # noqa: E402


@contextmanager
def cpu_stand_ins() -> Iterator[None]:
    """Put the stand-ins into the place of the kernels."""
    if HAS_PLATFORM_KERNELS:
        # Without Triton an allocator extends on the CPU by itself.
        extend = patch.object(paged, "current_platform", CpuSRTPlatform())
    else:
        extend = patch.object(paged, "alloc_extend_kernel", _AllocExtend())
    with (
        extend,
        patch.object(allocation, "assign_req_to_token_pool_func", _assign_req_to_token),
    ):
        yield


class _AllocExtend:
    """``alloc_extend_kernel`` for a CPU: launched as the kernel is, with the same
    contract."""

    def __getitem__(self, grid):
        return _alloc_extend


def _alloc_extend(
    prefix_lens, seq_lens, last_loc, free_pages, out_indices, bs_upper, page_size
) -> None:
    """Request ``i`` takes slots for its tokens ``[prefix_lens[i], seq_lens[i])``:
    the rest of the page that ``last_loc[i]`` lies in, then pages off the front of
    ``free_pages``, in the order of the requests."""
    del bs_upper
    slots, taken = [], 0
    runs = zip(prefix_lens.tolist(), seq_lens.tolist(), last_loc.tolist())
    for before, after, last in runs:
        held = -(-before // page_size)
        new = -(-after // page_size) - held
        old_page = min(after, held * page_size) - before
        slots.extend(range(last + 1, last + 1 + old_page))
        if new:
            for page in free_pages[taken : taken + new].tolist():
                slots.extend(range(page * page_size, (page + 1) * page_size))
            del slots[len(slots) + after - (held + new) * page_size :]
            taken += new
    # The kernel reads on past a list that is too short; the caller checks later.
    out_indices[: len(slots)] = torch.tensor(slots, dtype=out_indices.dtype)


def _assign_req_to_token(
    req_pool_indices, req_to_token, start_offset, end_offset, out_cache_loc, batch_size
) -> None:
    """The contract of ``assign_req_to_token_pool``: row ``i`` of the table takes
    its run of ``out_cache_loc`` at ``[start_offset[i], end_offset[i])``."""
    del batch_size
    table, slots, taken = req_to_token.numpy(), out_cache_loc.numpy(), 0
    runs = zip(req_pool_indices.tolist(), start_offset.tolist(), end_offset.tolist())
    for row, start, end in runs:
        table[row, start:end] = slots[taken : taken + end - start]
        taken += end - start
