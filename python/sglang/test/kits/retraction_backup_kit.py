"""What becomes of the KV of a retracted request, and of the client that waits."""

from __future__ import annotations

import asyncio
from unittest import TestCase

from sglang.srt.managers.io_struct import AbortReq, GenerateReqInput
from sglang.srt.managers.schedule_batch import Req
from sglang.srt.mem_cache.common import restore_kv_cache, retraction_restore
from sglang.srt.observability.req_time_stats import APIServerReqTimeStats
from sglang.srt.runtime_context import get_server_args
from sglang.test.kits.features import (
    HAS_BACKUP_IN_KV,
    HAS_RESTORE_KV_CACHE,
    HAS_RETRACTION_BACKUP,
)
from sglang.test.kits.spec_retract_kit import RetractRig


def restore_backup(req: Req, rig: RetractRig) -> None:
    """Bring the KV of ``req`` back from the host, into the slots of its row."""
    pools = (rig.req_to_token_pool, rig.allocator)
    if HAS_RESTORE_KV_CACHE:
        restore_kv_cache(req, rig.tree_cache, *pools, "cpu_tensor")
    elif HAS_RETRACTION_BACKUP:
        retraction_restore(req, rig.tree_cache, *pools, "cpu_tensor")
    else:
        req.load_kv_cache(*pools)


def holds_backup(req: Req) -> bool:
    """Whether ``req`` has a copy on the host to resume from."""
    if HAS_BACKUP_IN_KV:
        return req.kv.retraction_backup is not None
    elif HAS_RETRACTION_BACKUP:
        return req.retraction_backup is not None
    else:
        return hasattr(req, "kv_cache_cpu")


def client_error(abort: AbortReq) -> Exception:
    """What the client's pending call raises once the tokenizer has ``abort``."""
    # Brings the HTTP stack along, for which only these tests should pay.
    from sglang.srt.managers.tokenizer_manager import ReqState, TokenizerManager

    manager = TokenizerManager.__new__(TokenizerManager)
    state = ReqState(
        out_list=[],
        finished=False,
        event=asyncio.Event(),
        obj=GenerateReqInput(text="", rid=abort.rid),
        time_stats=APIServerReqTimeStats(),
    )
    vars(manager).update(
        rid_to_state={abort.rid: state},
        server_args=get_server_args(),
        enable_lora=False,
        _config_updates={},
        child_rid_to_logical_rid={},
        incremental_streaming_output=False,
    )
    manager._handle_abort_req(abort)
    (out,) = state.out_list
    with TestCase().assertRaises(Exception) as raised:
        asyncio.run(manager._handle_abort_finish_reason(out, state, is_stream=False))
    return raised.exception
