"""The loads of a whole server, and what its clients and its log say of them."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
from kv_engine import target, text, words
from kv_engine.engine import Engine

from . import matrix, servers
from .servers import Said, Server

# Nothing is speculated.
NONE = "none"
UNAVAILABLE = HTTPStatus.SERVICE_UNAVAILABLE.value
# A request's window, an eviction interval and the blocks in flight, and to spare.
SWA_BOUND = 128

_PROMPT = tuple(range(5, 15))
# A decode node admits nothing whose output might not fit into either pool.
_DECODE = dict(cache="chunk", disaggregation="decode", full_size=2100, new_tokens=64)
_CROWD = 3
_TAIL = 500


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that are sent at the same time.

    Attributes:
        stream: whether the clients want the text as it comes.
        aborts: how many cannot be served, because all do not fit and a retracted
            one cannot be kept.
    """

    requests: int
    new_tokens: int
    stream: bool = False
    aborts: int = 0


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """An engine, plugins of ``kv_engine.plugin``, and what it is to serve."""

    engine: Engine
    rounds: tuple[Round, ...]
    plugins: tuple[str, ...] = ()


class Seen(msgspec.Struct, kw_only=True):
    """What was seen of a server.

    Attributes:
        started: whether it became healthy.
        health: of ``/health``, before the load and after each round.
        answers: of each round.
        wrong_text: requests of status 200 without the text that is right.
        swa_peak: the greatest ``#swa token`` of its log.
        error: the exception that ended its scheduler, if one did.
        seconds: until it was healthy, and for the load.
    """

    started: bool = False
    health: list[int] = []
    answers: list[list[Said]] = []
    wrong_text: list[str] = []
    swa_peak: int = 0
    error: str = ""
    seconds: list[float] = []


def long(algorithm: str) -> Load:
    """One generation of more tokens than the sliding-window pool has slots."""
    return Load(
        engine=_engine(algorithm, full_size=2560, swa_size=400),
        rounds=(Round(requests=1, new_tokens=1500),),
    )


def backup(algorithm: str) -> Load:
    """A decode node takes out a request, and its pool has no copy to the host."""
    return Load(
        engine=_engine(algorithm, swa_size=2100, **_DECODE),
        plugins=("no_host_copy",),
        rounds=_crowds(),
    )


def sample(algorithm: str) -> Load:
    """Such a decode node has both the long generation and the crowd."""
    return Load(
        engine=_engine(algorithm, swa_size=1200, **_DECODE),
        plugins=("no_host_copy",),
        rounds=(Round(requests=1, new_tokens=1900), *_crowds()),
    )


LOADS: dict[str, Callable[[str], Load]] = {
    load.__name__: load for load in (long, backup, sample)
}


def serve(tree: Path, load: Load) -> Seen:
    """Start a tree's server, and have the load served."""
    seen = Seen()
    with (
        tempfile.TemporaryDirectory(prefix="engine-server-") as folder,
        # Around the server, without which no client waits for an answer.
        ThreadPoolExecutor() as clients,
        servers.serve(tree, load.engine, Path(folder), load.plugins) as server,
    ):
        begin = time.monotonic()
        seen.started = server.started()
        seen.seconds.append(round(time.monotonic() - begin, 1))
        if seen.started:
            begin = time.monotonic()
            _have_served(server, clients, load, seen)
            seen.seconds.append(round(time.monotonic() - begin, 1))
        log = server.log()
    seen.swa_peak = max(map(int, re.findall(r"#swa token: (\d+)", log)), default=0)
    seen.error = _error(log) or ("" if seen.started else log[-_TAIL:])
    return seen


def trouble(load: Load, seen: Seen) -> list[str]:
    """What should not have been seen of a patched tree."""
    if not seen.started:
        return [f"does not start: {seen.error}"]
    found = [f"wrong text: {rid}" for rid in seen.wrong_text]
    if set(seen.health) != {HTTPStatus.OK.value}:
        found.append(f"/health: {seen.health}")
    for number, (wanted, said) in enumerate(zip(load.rounds, seen.answers)):
        refused = [out for out in said if out.status != HTTPStatus.OK]
        if [out.status for out in refused] != [UNAVAILABLE] * wanted.aborts:
            found.append(f"round {number}: refused: {refused}")
    requests = max(wanted.requests for wanted in load.rounds)
    if seen.swa_peak > requests * SWA_BOUND:
        found.append(f"#swa token: {seen.swa_peak}")
    if seen.error:
        found.append(seen.error)
    return found


def _engine(algorithm: str, **fields: Any) -> Engine:
    if algorithm == NONE:
        return Engine(algorithm="", **fields)
    draft_tokens = matrix.ALGORITHMS[algorithm]
    return Engine(algorithm=algorithm, draft_tokens=draft_tokens, **fields)


def _crowds() -> tuple[Round, ...]:
    """Two of them fit, three do not. Both kinds of client: one is told of the
    status, and the other of the error's type."""
    crowd = Round(requests=_CROWD, new_tokens=900, aborts=1)
    return crowd, msgspec.structs.replace(crowd, stream=True)


def _have_served(
    server: Server, clients: ThreadPoolExecutor, load: Load, seen: Seen
) -> None:
    seen.health.append(server.health())
    for number, wanted in enumerate(load.rounds):
        seen.answers.append([])
        rids = [f"round{number}-{request}" for request in range(wanted.requests)]
        prompts = [_prompt(number, request) for request in range(wanted.requests)]

        def ask(rid: str, prompt: Sequence[int]) -> Said:
            return server.generate(rid, prompt, wanted.new_tokens, wanted.stream)

        answers = list(clients.map(ask, rids, prompts))
        for rid, prompt, said in zip(rids, prompts, answers):
            right = text.continued(prompt, wanted.new_tokens, target.WINDOW)
            # Behind the prompt it begins with a space.
            if said.status == HTTPStatus.OK and said.text.strip() != words.words(right):
                seen.wrong_text.append(rid)
        # Of some thousand words each.
        seen.answers[-1] = [
            msgspec.structs.replace(said, text=f"{len(said.text.split())} words")
            for said in answers
        ]
        seen.health.append(server.health())
        if seen.health[-1] != HTTPStatus.OK:
            break


def _prompt(number: int, request: int) -> tuple[int, ...]:
    return (number + 1, request + 1, *_PROMPT)


def _error(log: str) -> str:
    """The last line of the traceback that a scheduler logs as it ends."""
    _, hit, rest = log.partition("Scheduler hit an exception:")
    errors = re.findall(r"^\w[\w.]*(?:Error|KV|Exception)\b.*", rest, re.MULTILINE)
    return errors[0] if hit and errors else hit
