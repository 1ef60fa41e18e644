"""A tree's server, started as a user starts one, and its clients."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from kv_engine import target, words
from kv_engine.engine import Engine

from . import children

# Generous: a machine may be busy.
START_SECONDS = 1800
ANSWER_SECONDS = 1800

_HOST = "127.0.0.1"
_POLL_SECONDS = 0.5
_FAKE_BOOTSTRAP_HOST = "2.2.2.2"

# A proxy is nothing for loopback.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))

# SGLang finds plugins as any package's entry points.
_ENTRY_POINTS = """\
[sglang.srt.plugins]
kv_engine = kv_engine.plugin:install
no_host_copy = kv_engine.plugin:no_host_copy
"""


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What a client was told.

    Attributes:
        status: of HTTP; 0 when the server went away.
        error: the error's type, and ``message`` its text, if it was one.
        text: the output.
    """

    status: int
    error: str = ""
    message: str = ""
    text: str = ""


class Server:
    """A running server.

    Args:
        process: its main process, which leads a session of its own.
        log: where all of its processes write.
    """

    def __init__(self, process: subprocess.Popen, port: int, log: Path, fake: bool):
        self._process = process
        self._url = f"http://{_HOST}:{port}"
        self._log = log
        self._fake = fake

    def health(self) -> int:
        """The status of ``/health``; 0 when nobody answers."""
        return self._ask("/health").status

    def started(self) -> bool:
        """Wait until it is healthy, or has ended, or ``START_SECONDS`` are over."""
        end = time.monotonic() + START_SECONDS
        while self._process.poll() is None and time.monotonic() < end:
            if self.health() == 200:
                return True
            time.sleep(_POLL_SECONDS)
        return False

    def generate(
        self, rid: str, prompt: Sequence[int], new_tokens: int, stream: bool = False
    ) -> Said:
        """Ask for a continuation, greedily and past any end of text."""
        params = dict(temperature=0.0, max_new_tokens=new_tokens, ignore_eos=True)
        body = dict(
            rid=rid, text=words.words(prompt), sampling_params=params, stream=stream
        )
        if self._fake:
            body |= dict(bootstrap_host=_FAKE_BOOTSTRAP_HOST, bootstrap_room=0)
        return self._ask("/generate", body)

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> Said:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._url + path, data, {"Content-Type": "application/json"}
        )
        try:
            with _direct.open(request, timeout=ANSWER_SECONDS) as answer:
                return _said(answer.status, answer.read())
        except urllib.error.HTTPError as error:
            return _said(error.code, error.read())
        except (OSError, http.client.HTTPException) as error:
            return Said(status=0, error=type(error).__name__, message=str(error))


@contextmanager
def serve(
    tree: Path, engine: Engine, folder: Path, plugins: Sequence[str] = ()
) -> Iterator[Server]:
    """A server, for as long as the context.

    Args:
        folder: for the model and all that it writes.
        plugins: more of ``kv_engine.plugin``.
    """
    model = target.write(folder / "model")
    words.write(model)
    found = folder / "plugins" / "kv_engine-0.dist-info"
    found.mkdir(parents=True)
    Path(found, "entry_points.txt").write_text(_ENTRY_POINTS)
    Path(found, "METADATA").write_text("Name: kv-engine\nVersion: 0\n")
    (folder / "tmp").mkdir()
    port, log = _free_port(), folder / "log"
    command = [sys.executable, "-m", "sglang.launch_server"]
    command += _flags(_settings(tree, engine, model, port))
    environment = children.environment(tree, found.parent) | engine.environment()
    environment |= dict(
        SGLANG_PLUGINS=",".join(["kv_engine", *plugins]),
        TMPDIR=str(folder / "tmp"),
        no_proxy=_HOST,
        # A minute in which a server whose scheduler is dead waits for GPU dumps.
        SGLANG_PYSPY_DUMP_BEFORE_CRASH="False",
        SGLANG_CUDA_COREDUMP_BEFORE_CRASH="False",
        # Its processes import the same; empty is as unset.
        PYTHONDONTWRITEBYTECODE="",
    )
    process = None
    try:
        with log.open("wb") as writer:
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=writer,
                stderr=writer,
                # What it starts stays in the group, also when it is gone itself.
                start_new_session=True,
            )
        yield Server(process, port, log, engine.disaggregation != "null")
    finally:
        if process:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _settings(tree: Path, engine: Engine, model: Path, port: int) -> dict[str, Any]:
    srt = tree / "python/sglang/srt"
    # Later releases keep them by groups.
    sources = [srt / "server_args.py", *sorted((srt / "arg_groups").glob("*.py"))]
    known = "".join(source.read_text() for source in sources)
    return engine.settings(model, known) | dict(
        host=_HOST, port=port, decode_log_interval=1
    )


def _flags(settings: dict[str, Any]) -> list[str]:
    flags: list[str] = []
    for name, value in settings.items():
        if value is not False:
            flags.append("--" + name.replace("_", "-"))
            flags.extend([] if value is True else [str(value)])
    return flags


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind((_HOST, 0))
        return listener.getsockname()[1]


def _said(status: int, body: bytes) -> Said:
    # The last event of a stream has all of the text.
    events = [line[6:] for line in body.splitlines() if line.startswith(b"data: {")]
    try:
        answer = json.loads(events[-1] if events else body)
    except ValueError:
        return Said(status=status)
    error = answer.get("error", answer)
    reason = answer.get("meta_info", {}).get("finish_reason", {})
    if reason.get("type") == "abort":
        return Said(
            status=reason.get("status_code") or status,
            error=reason.get("err_type") or "",
            message=reason.get("message") or "",
        )
    return Said(
        status=status,
        error=error.get("type", ""),
        message=error.get("message", ""),
        text=answer.get("text", ""),
    )
