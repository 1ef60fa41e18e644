"""The release's scheduler, built as its own process would build it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from sglang.srt import runtime_context
from sglang.srt.environ import envs
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.managers.scheduler_components import ipc_channels
from sglang.srt.mem_cache import registry
from sglang.srt.model_executor import pool_configurator
from sglang.srt.server_args import PortArgs, ServerArgs

from . import stand_ins, target
from .client import Client
from .worker import KVWorker

SWA_RADIX = "swa-radix"


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """What a scheduler is made of.

    Attributes:
        cache: ``unified``, the default of hybrid models in every release; ``radix``,
            the older tree of v0.5.16 to v0.5.20; or ``chunk``, no prefix cache.
        full_size, swa_size: slots of the two pools.
        eviction_interval: SGLANG_SWA_EVICTION_INTERVAL.
        new_token_ratio: the share of a request's output that admission sets aside.
        disaggregation: ``null``, or ``decode`` with the fake transfer backend.
    """

    algorithm: str = "DSPARK"
    cache: str = "unified"
    page_size: int = 1
    overlap: bool = True
    full_size: int = 1600
    swa_size: int = 400
    eviction_interval: int = 16
    draft_tokens: int = 6
    max_reqs: int = 16
    new_token_ratio: float = 0.01
    chunked_prefill_size: int = 4096
    disaggregation: str = "null"


class Absent(Exception):
    """The release has no such thing."""


def boot(engine: Engine, client: Client, folder: Path) -> Scheduler:
    """Build it, with the KV worker in the place of the models' forwards.

    Args:
        client: the other end of its sockets.
        folder: where the target's configuration may be written.

    Raises:
        Absent: the release has no such cache.
    """
    ipc_channels.get_zmq_socket = client.socket
    stand_ins.install(KVWorker)
    _set_environment(engine)
    server_args = _server_args(engine, target.write(folder))
    ranks = {}
    if hasattr(server_args, "resolve_once"):
        server_args.resolve_once()
    if hasattr(runtime_context, "SpawnRanks"):
        ranks["ranks"] = runtime_context.SpawnRanks(
            world_rank=0, dp_rank=None, gpu_id=0
        )
    if hasattr(runtime_context, "publish"):
        runtime_context.publish(server_args, role="scheduler", **ranks)
    known = dict(
        server_args=server_args,
        port_args=PortArgs.init_new(server_args),
        gpu_id=0,
        tp_rank=0,
        moe_ep_rank=0,
        pp_rank=0,
        attn_cp_rank=0,
        moe_dp_rank=0,
        dp_rank=None,
    )
    _size_by_ratio()
    wanted = inspect.signature(Scheduler.__init__).parameters
    scheduler = Scheduler(**{name: known[name] for name in known if name in wanted})
    client.serves(scheduler)
    return scheduler


def _set_environment(engine: Engine) -> None:
    envs.SGLANG_SWA_EVICTION_INTERVAL.set(engine.eviction_interval)
    # Upstream's own checks, after every step and at rest.
    envs.SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY.set(1)
    envs.SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE.set(True)
    envs.SGLANG_CHECK_KV_PAGE_INVARIANTS.set(True)
    envs.SGLANG_INIT_NEW_TOKEN_RATIO.set(engine.new_token_ratio)
    if hasattr(envs, "SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND"):
        # The other core is a Rust extension that no wheel for a CPU carries.
        envs.SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND.set("python")
    if engine.cache == "radix":
        registry.register_radix_cache_backend(SWA_RADIX, _swa_radix_cache())


def _size_by_ratio() -> None:
    """Without a prefix cache a release sizes the sliding-window pool by the most
    requests that may run, so that it never falls short. Here it is to fall short."""
    for name in ("SWAChunkCapPoolConfigurator", "SWARequestCapPoolConfigurator"):
        if hasattr(pool_configurator, name):
            capped = getattr(pool_configurator, name)
            capped.is_applicable = staticmethod(lambda configurator: False)


def _swa_radix_cache() -> Callable[[Any], Any]:
    try:
        from sglang.srt.mem_cache.swa_radix_cache import SWARadixCache
    except ImportError as error:
        raise Absent("no SWARadixCache") from error
    return lambda context: SWARadixCache(params=context.params)


def _server_args(engine: Engine, model: Path) -> ServerArgs:
    fields = dict(
        model_path=str(model),
        skip_tokenizer_init=True,
        load_format="dummy",
        device="cpu",
        dtype="float32",
        attention_backend="torch_native",
        speculative_algorithm=engine.algorithm,
        speculative_draft_model_path=str(target.write_draft(model)),
        speculative_num_draft_tokens=engine.draft_tokens,
        max_total_tokens=engine.full_size,
        swa_full_tokens_ratio=engine.swa_size / engine.full_size,
        page_size=engine.page_size,
        max_running_requests=engine.max_reqs,
        chunked_prefill_size=engine.chunked_prefill_size,
        # Nothing is to follow from the memory that the machine has left.
        mem_fraction_static=0.5,
        disable_cuda_graph=True,
        disable_overlap_schedule=not engine.overlap,
        disable_radix_cache=engine.cache == "chunk",
        radix_cache_backend=SWA_RADIX if engine.cache == "radix" else None,
        random_seed=0,
        disaggregation_mode=engine.disaggregation,
    )
    if engine.disaggregation == "decode":
        fields |= dict(
            disaggregation_transfer_backend="fake",
            # The default sets aside more than a tiny pool has.
            num_reserved_decode_tokens=16,
        )
        if "disaggregation_decode_retraction_backup" in ServerArgs.__annotations__:
            # The pinned host pool wants a GPU.
            fields["disaggregation_decode_retraction_backup"] = "cpu_tensor"
    return ServerArgs(**fields)
