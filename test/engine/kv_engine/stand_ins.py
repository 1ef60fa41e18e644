"""What a machine without a GPU lacks, each with its reason."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch

from sglang.srt.arg_groups import speculative_hook
from sglang.srt.mem_cache import kv_cache_builder
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.test.kits.spec_decode_kernels import cpu_stand_ins

_for_good = ExitStack()


def install(worker: type) -> None:
    """Put them in, for the life of the process.

    Args:
        worker: the class that stands for the draft and target workers.
    """
    for name in ("_handle_dflash", "_handle_dspark"):
        setattr(speculative_hook, name, _as_on_cuda(getattr(speculative_hook, name)))
    # The draft model needs CUDA kernels, and its answers are to be chosen here.
    SpeculativeAlgorithm.create_worker = lambda self, server_args: worker
    # It has no KV of its own; the releases that have this function read it unasked.
    if hasattr(kv_cache_builder, "get_draft_kv_pool"):
        kv_cache_builder.get_draft_kv_pool = lambda **_: None
    # A CPU has no streams to keep a tensor alive for.
    torch.Tensor.record_stream = lambda self, stream: None
    # Triton kernels; their equals for a CPU are tested against them.
    _for_good.enter_context(cpu_stand_ins())


def import_the_rest() -> None:
    """Import what a scheduler imports as it starts."""
    from sglang.srt.model_executor import model_runner  # noqa: F401
    from sglang.srt.models import registry  # noqa: F401


def _as_on_cuda(handle: Callable[[Any], None]) -> Callable[[Any], None]:
    """Both algorithms refuse a CPU for want of kernels, and nothing else of what
    they check or set asks for the device."""

    def wrapper(server_args: Any) -> None:
        view = getattr(speculative_hook, "resolving_view", None)
        if view is None:
            server_args.device = "cuda"
            try:
                handle(server_args)
            finally:
                server_args.device = "cpu"
            return
        speculative_hook.resolving_view = lambda args: _OnCuda(view(args))
        try:
            handle(server_args)
        finally:
            speculative_hook.resolving_view = view

    return wrapper


class _OnCuda:
    """The view of the settings that a release reads, but for the device."""

    device = "cuda"

    def __init__(self, view: Any) -> None:
        self._view = view

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)
