"""The other end of the scheduler's sockets, in the same process.

Real sockets would let a message arrive some iterations sooner or later from run
to run. Messages are encoded and decoded by the release's own codec.
"""

from __future__ import annotations

import pickle
from array import array
from typing import Any

import msgspec
import zmq

from sglang.srt.disaggregation.utils import FAKE_BOOTSTRAP_HOST
from sglang.srt.managers.io_struct import (
    BatchTokenIDOutput,
    TokenizedGenerateReqInput,
    msgpack_decode,
    msgpack_encode,
)
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.sampling.sampling_params import SamplingParams

_IDLE_TURNS = 3


class Done(BaseException):
    """Leaves the event loop, which has no end, once every request has ended."""


class Stuck(AssertionError):
    """The scheduler does not end its requests."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request; it arrives when the event loop asks for the ``turn``-th time."""

    rid: str
    prompt: tuple[int, ...]
    new_tokens: int
    turn: int = 0


class Client:
    """Sends requests, and receives what becomes of them.

    Args:
        turns: the event loop may take no more.

    Attributes:
        turn: how often the loop has asked for messages.
        text: the output tokens, by request.
        reasons: why it ended, likewise.
    """

    def __init__(self, requests: list[Request], turns: int) -> None:
        self._waiting = sorted(requests, key=lambda request: request.turn)
        self._count = len(requests)
        self._turns = turns
        self._idle = 0
        self.turn = 0
        self.text: dict[str, list[int]] = {}
        self.reasons: dict[str, dict] = {}

    def serves(self, scheduler: Scheduler) -> None:
        """Tell it whose client it is."""
        self._scheduler = scheduler

    def socket(self, context: Any, kind: int, endpoint: str, bind: bool) -> Any:
        """The other end of a socket that the scheduler opens."""
        return _Silent() if kind == zmq.DEALER else self

    def recv(self, flags: int = 0) -> bytes:
        """As a socket that does not wait; so the others, by the codec in use."""
        return msgpack_encode(self._next())

    def recv_pyobj(self, flags: int = 0) -> Any:
        return pickle.loads(pickle.dumps(self._next()))

    def send(self, data: bytes, flags: int = 0) -> None:
        self._take(msgpack_decode(data))

    def send_pyobj(self, message: Any, flags: int = 0, protocol: int = -1) -> None:
        self._take(pickle.loads(pickle.dumps(message, protocol)))

    def _next(self) -> TokenizedGenerateReqInput:
        if self._waiting and self._waiting[0].turn <= self.turn:
            return _message(self._waiting.pop(0), self._scheduler)
        self.turn += 1
        if len(self.reasons) == self._count and self._scheduler.is_fully_idle():
            self._idle += 1
            # The checks at rest have run by then.
            if self._idle > _IDLE_TURNS:
                raise Done
        if self.turn > self._turns:
            ended = len(self.reasons)
            raise Stuck(f"{ended} of {self._count} ended in {self._turns} turns")
        raise zmq.Again

    def _take(self, output: Any) -> None:
        if not isinstance(output, BatchTokenIDOutput):
            rid = getattr(output, "rid", None)
            if rid is not None and getattr(output, "finished_reason", None):
                self.reasons[rid] = output.finished_reason
            return
        for rid, tokens, reason in zip(
            output.rids, output.output_ids, output.finished_reasons
        ):
            self.text.setdefault(rid, []).extend(tokens)
            if reason is not None:
                self.reasons[rid] = reason


class _Silent:
    """A socket on which nothing ever arrives."""

    def recv(self, flags: int = 0) -> Any:
        raise zmq.Again

    recv_pyobj = recv


def _message(request: Request, scheduler: Scheduler) -> TokenizedGenerateReqInput:
    params = SamplingParams(
        max_new_tokens=request.new_tokens, temperature=0.0, ignore_eos=True
    )
    params.normalize(None)
    fields: dict[str, Any] = {}
    if scheduler.disaggregation_mode.value == "decode":
        fields = dict(bootstrap_host=FAKE_BOOTSTRAP_HOST, bootstrap_room=0)
    return TokenizedGenerateReqInput(
        rid=request.rid,
        input_text="",
        input_ids=array("q", request.prompt),
        input_embeds=None,
        mm_inputs=None,
        token_type_ids=None,
        sampling_params=params,
        return_logprob=False,
        logprob_start_len=-1,
        top_logprobs_num=0,
        token_ids_logprob=None,
        stream=False,
        **fields,
    )
