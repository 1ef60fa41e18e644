"""The release's scheduler, built as its own process would build it."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sglang.srt import runtime_context
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.managers.scheduler_components import ipc_channels
from sglang.srt.mem_cache import registry
from sglang.srt.model_executor import pool_configurator
from sglang.srt.server_args import PortArgs, ServerArgs

from . import stand_ins, target
from .client import Client
from .engine import Engine
from .worker import KVWorker

SWA_RADIX = "swa-radix"


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
    os.environ.update(engine.environment())
    if engine.cache == "radix":
        registry.register_radix_cache_backend(SWA_RADIX, _swa_radix_cache())
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
    size_by_ratio()
    wanted = inspect.signature(Scheduler.__init__).parameters
    scheduler = Scheduler(**{name: known[name] for name in known if name in wanted})
    client.serves(scheduler)
    return scheduler


def size_by_ratio() -> None:
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
    fields = engine.settings(model, ServerArgs.__annotations__)
    if engine.cache == "radix":
        fields["radix_cache_backend"] = SWA_RADIX
    return ServerArgs(**fields, skip_tokenizer_init=True)
