"""A process that runs the simulator's tasks in one tree."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from .. import bases, runner
from ..errors import Precondition

# A task that tells no progress for so long hangs.
SILENCE = 600.0

_LOG_LINES = 15


class SimulatorFailed(Exception):
    """A task ended with an exception: a bug of the simulator, or of the release."""


class Ready(msgspec.Struct, frozen=True):
    """What a worker says of itself."""

    sglang_file: str
    python: str
    torch: str
    caches: tuple[str, ...]


class Outcome(msgspec.Struct, frozen=True):
    """What became of a task."""

    record: dict[str, Any]
    cpu_seconds: float


class Worker:
    """A context in which tasks run one after the other.

    Args:
        tree: the folder that holds ``python/sglang``.
    """

    def __init__(self, tree: Path) -> None:
        self._tree = tree.resolve()

    def __enter__(self) -> Worker:
        simulator = bases.data_root() / "test" / "model"
        environment = runner.environment(self._tree)
        path = os.pathsep.join([environment["PYTHONPATH"], str(simulator)])
        self._log = tempfile.TemporaryFile()
        # A session of its own, so that whatever it starts can be ended with it.
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "decode_simulator"],
            cwd=self._tree,
            env=environment | {"PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )
        try:
            self.ready = msgspec.convert(self._event(), Ready, strict=False)
            if not Path(self.ready.sglang_file).is_relative_to(self._tree):
                raise Precondition(
                    f"the simulator would run {self.ready.sglang_file}",
                    cause=f"sglang was expected below {self._tree}",
                    next_step="use an environment without an sglang of its own",
                )
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            stream.close()

    def run(
        self,
        task: dict[str, Any],
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Outcome:
        """Run one task to its end.

        Raises:
            SimulatorFailed: it ended with an exception.
            Precondition: the process died or hung.
        """
        self._process.stdin.write(msgspec.json.encode(task) + b"\n")
        self._process.stdin.flush()
        while True:
            event = self._event()
            if event["event"] == "record":
                return msgspec.convert(event, Outcome)
            if event["event"] == "failed":
                raise SimulatorFailed(f"{self._tree}: {task}:\n{event['traceback']}")
            progress(event["done"], event["of"])

    def _event(self) -> dict[str, Any]:
        watchdog = threading.Timer(SILENCE, self._process.kill)
        watchdog.start()
        try:
            line = self._process.stdout.readline()
        finally:
            watchdog.cancel()
        if line:
            return msgspec.json.decode(line)
        status = self._process.wait()
        self._log.seek(0)
        said = self._log.read().decode("utf-8", "replace").splitlines()
        raise Precondition(
            f"the simulator ended with status {status} in {self._tree}",
            cause="\n".join(said[-_LOG_LINES:]),
            next_step="install the CPU environment: pip install 'dspark-patches[cpu]'",
        )
