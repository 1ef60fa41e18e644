"""Where a release keeps what it knows of a request's KV."""

from __future__ import annotations

from typing import Any

from sglang.srt.managers.schedule_batch import Req


def row_of(req: Req) -> int:
    """Its row of the table of slots."""
    return _field(req, "req_pool_idx")


def committed_of(req: Req) -> int:
    """Its tokens whose KV is known to be right."""
    return _field(req, "kv_committed_len")


def allocated_of(req: Req) -> int:
    """Its tokens that have slots."""
    return _field(req, "kv_allocated_len")


def _field(req: Req, name: str) -> Any:
    """Of the request itself, or of its KV's record in later releases."""
    return getattr(req if hasattr(req, name) else req.kv, name)
