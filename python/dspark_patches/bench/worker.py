"""A process that runs the simulator's tasks in one tree."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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


class Workers:
    """All processes of a run, so that whoever stops it can end them.

    A thread that waits for its process cannot be told to stop; it finds that the
    process has ended.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._live: set[Worker] = set()
        self._stopped = False

    @contextmanager
    def start(self, tree: Path) -> Iterator[Worker]:
        """A context in which a process waits for tasks.

        Args:
            tree: the folder that holds ``python/sglang``.

        Raises:
            Precondition: it does not start, or the run was stopped.
        """
        worker = Worker(tree)
        with self._lock:
            if self._stopped:
                raise Precondition("the run was stopped")
            worker.start()
            self._live.add(worker)
        try:
            worker.await_ready()
            yield worker
        finally:
            with self._lock:
                self._live.discard(worker)
                worker.end()

    def stop(self) -> None:
        """End every process; none starts from now on."""
        with self._lock:
            self._stopped = True
            for worker in self._live:
                worker.kill()


class Worker:
    """A process that runs tasks one after the other, see :class:`Workers`.

    Args:
        tree: the folder that holds ``python/sglang``.
    """

    def __init__(self, tree: Path) -> None:
        self._tree = tree.resolve()

    def start(self) -> None:
        """Start the process, and do not wait for it."""
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

    def await_ready(self) -> None:
        """Wait until it has imported SGLang.

        Raises:
            Precondition: it ended, or imported another SGLang.
        """
        self.ready = msgspec.convert(self._event(), Ready, strict=False)
        if not Path(self.ready.sglang_file).is_relative_to(self._tree):
            raise Precondition(
                f"the simulator would run {self.ready.sglang_file}",
                cause=f"sglang was expected below {self._tree}",
                next_step="use an environment without an sglang of its own",
            )

    def kill(self) -> None:
        """Kill the process and all that it started; to be called before ``end``."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill it, and let nothing of it stay."""
        self.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            # What it was not told any more is still in the buffer.
            with suppress(BrokenPipeError):
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
        # One that has died is noticed below: it tells nothing more.
        with suppress(BrokenPipeError):
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
        hung = threading.Event()
        watchdog = threading.Timer(SILENCE, lambda: (hung.set(), self.kill()))
        watchdog.start()
        try:
            line = self._process.stdout.readline()
        finally:
            watchdog.cancel()
        # One that is killed may leave half a line.
        if line.endswith(b"\n"):
            return msgspec.json.decode(line)
        raise self._ended(hung.is_set())

    def _ended(self, hung: bool) -> Precondition:
        """What is to be told of its end."""
        status = self._process.wait()
        self._log.seek(0)
        said = self._log.read().decode("utf-8", "replace").splitlines()
        message = f"the simulator ended with status {status} in {self._tree}"
        helps = "install the CPU environment: pip install 'dspark-patches[cpu]'"
        if hung:
            message = f"the simulator told nothing for {SILENCE:g} s in {self._tree}"
            helps = "run again, with fewer --jobs where the machine is busy"
        elif status == -signal.SIGKILL:
            helps = "run again, with fewer --jobs: it may have been short of memory"
        cause = "\n".join(said[-_LOG_LINES:])
        return Precondition(message, cause=cause, next_step=helps)
