"""A process that runs the simulator's tasks in one tree."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from dspark_patches import runner
from dspark_patches.errors import Precondition

SIMULATOR = Path(__file__).resolve().parents[1] / "test" / "model"

_HINT = "install the CPU environment: pip install 'dspark-patches[cpu]'"


class TaskFailed(Exception):
    """A task ended with an exception: a bug of the simulator, or of the release."""


class Workers:
    """All processes of a run, so that whoever stops it can end them."""

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
            Precondition: it does not start, imports another SGLang, or the run was
                stopped.
        """
        with self._lock:
            if self._stopped:
                raise Precondition("the run was stopped")
            worker = Worker(tree.resolve())
            self._live.add(worker)
        try:
            worker.await_ready()
            yield worker
        finally:
            worker.end()
            self._live.discard(worker)

    def stop(self) -> None:
        """End every process; none starts from now on. Whoever waits for an answer
        finds that there is none."""
        with self._lock:
            self._stopped = True
            for worker in list(self._live):
                worker.kill()


class Worker:
    """A process that runs tasks one after the other, see :class:`Workers`.

    Attributes:
        caches: the kinds of prefix cache that the release has.
        host: Python and torch, in words.
    """

    def __init__(self, tree: Path) -> None:
        self._tree = tree
        environment = runner.environment(tree)
        path = os.pathsep.join([environment["PYTHONPATH"], str(SIMULATOR)])
        self._log = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "decode_simulator"],
            cwd=tree,
            env=environment | {"PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        self.kill = self._process.kill

    def await_ready(self) -> None:
        """Wait until it has imported SGLang."""
        ready = self._answer()
        if not Path(ready["sglang_file"]).is_relative_to(self._tree):
            raise Precondition(
                f"the simulator would run {ready['sglang_file']}",
                cause=f"sglang was expected below {self._tree}",
                next_step="use an environment without an sglang of its own",
            )
        self.caches, self.host = ready["caches"], ready["host"]

    def run(self, task: dict[str, Any]) -> tuple[dict[str, Any], float]:
        """Run one task to its end; its record, and the CPU seconds that it took.

        Raises:
            TaskFailed: it ended with an exception.
            Precondition: the process died.
        """
        try:
            self._process.stdin.write(msgspec.json.encode(task) + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None
        answer = self._answer()
        if "failed" in answer:
            raise TaskFailed(f"{self._tree}: {task}:\n{answer['failed']}")
        return answer["record"], answer["cpu_seconds"]

    def end(self) -> None:
        """Kill it, and let nothing of it stay."""
        self.kill()
        self._process.communicate()
        self._log.close()

    def _answer(self) -> dict[str, Any]:
        line = self._process.stdout.readline()
        # One that is killed may leave half a line.
        if not line.endswith(b"\n"):
            raise self._ended()
        return msgspec.json.decode(line)

    def _ended(self) -> Precondition:
        status = self._process.wait()
        self._log.seek(0)
        said = self._log.read().decode(errors="replace").splitlines()
        message = f"the simulator ended with status {status} in {self._tree}"
        cause = "\n".join(said[-15:])
        hint = "run again, with fewer --jobs: it may have been out of memory"
        return Precondition(
            message, cause=cause, next_step=hint if status == -9 else _HINT
        )
