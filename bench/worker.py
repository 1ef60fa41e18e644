"""A process that runs the simulator's tasks in one tree."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from dspark_patches.errors import Precondition
from dspark_patches.proof import runner

SIMULATOR = Path(__file__).resolve().parents[1] / "test" / "model"

_HINT = "install the CPU environment: pip install 'dspark-patches[cpu]'"
_KILLED = "run again, with fewer --jobs: it may have been out of memory"


class TaskFailed(Exception):
    """A task ended with an exception: a bug of the simulator, or of the release."""


class Worker:
    """A process that runs tasks one after the other.

    Args:
        tree: the folder that holds ``python/sglang``.

    Attributes:
        caches: the kinds of prefix cache that the release has.
        host: Python and torch, in words.
    """

    def __init__(self, tree: Path) -> None:
        self._tree = tree.resolve()
        environment = runner.environment(self._tree)
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
        """Wait until it has imported SGLang.

        Raises:
            Precondition: it does not start, or imports another one.
        """
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
        # One that has died is noticed below: it answers nothing.
        with suppress(BrokenPipeError):
            self._process.stdin.write(msgspec.json.encode(task) + b"\n")
            self._process.stdin.flush()
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
        if line.endswith(b"\n"):
            return msgspec.json.decode(line)
        status = self._process.wait()
        self._log.seek(0)
        said = self._log.read().decode(errors="replace").splitlines()
        raise Precondition(
            f"the simulator ended with status {status} in {self._tree}",
            cause="\n".join(said[-15:]),
            next_step=_KILLED if status == -9 else _HINT,
        )


@contextmanager
def start(tree: Path, live: list[Worker]) -> Iterator[Worker]:
    """A context in which a process waits for tasks; ``live`` holds it meanwhile, so
    that another thread can kill it."""
    process = Worker(tree)
    live.append(process)
    try:
        process.await_ready()
        yield process
    finally:
        process.end()
        live.remove(process)
