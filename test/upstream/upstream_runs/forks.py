"""Run test files of a tree, each in a fork of a process that has loaded SGLang.

Started in the tree as ``forks.py SCRATCH LIMIT JOBS FILE...``. Writes a line of JSON
for each file: its path, and ``{test: [status, reason]}``, where the empty name stands
for the file itself.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

PRELOAD = ("sglang.srt.managers.schedule_batch", "sglang.test.test_utils")
_REASON_KEPT = 3000


class Fork:
    """A process that runs one file and writes what becomes of its tests."""

    def __init__(self, scratch: str, number: int, file: str, limit: float) -> None:
        self.file = file
        self._told = Path(scratch, f"{number}.told")
        self._output = Path(scratch, f"{number}.output")
        self._limit, self._end = limit, time.monotonic() + limit
        self._told.touch()
        self._pid = os.fork()
        if not self._pid:
            try:
                self._run()
            finally:
                # What the server has begun is not for a fork to end.
                os._exit(70)
        self.ended = os.pidfd_open(self._pid)

    def over(self) -> bool:
        return time.monotonic() > self._end or self._has_ended()

    def finish(self) -> dict[str, list[str]]:
        """End it with all that it started; what became of its tests."""
        hung = not self._has_ended()
        for end in (os.killpg, os.kill):
            with suppress(ProcessLookupError):
                end(self._pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        os.close(self.ended)
        lines = map(json.loads, self._told.read_text().splitlines())
        found = {name: [state, reason] for name, state, reason in lines}
        if not found.pop("end", None):
            how = signal.Signals(-status).name if status < 0 else f"status {status}"
            fate = ["died", f"its process ended with {how}"]
            if hung:
                fate = ["hung", f"killed after {self._limit:g} seconds"]
            found = {k: fate if v[0] == "running" else v for k, v in found.items()}
            output = self._output.read_bytes()[-_REASON_KEPT:].decode(errors="replace")
            found[""] = [fate[0], f"{fate[1]}\n{output}"]
        return found or {"": ["skipped", "has no tests"]}

    def _has_ended(self) -> bool:
        return bool(select.select([self.ended], [], [], 0)[0])

    def _run(self) -> None:
        # A session of its own, so that whatever the tests start can be ended with it.
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # A crash is told; its core dump would be the size of all of torch.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with open(os.devnull) as nothing, open(self._output, "w") as output:
            for descriptor, source in enumerate((nothing, output, output)):
                os.dup2(source.fileno(), descriptor)
        told = Told(self._told)
        pytest.main(["-p", "no:cacheprovider", "--tb=short", self.file], [told])
        told.tell("end", "passed")
        os._exit(0)


class Told:
    """A plugin that tells of each test as it goes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def tell(self, nodeid: str, status: str, reason: str = "") -> None:
        name = nodeid.partition("::")[2] if nodeid != "end" else nodeid
        with open(self._path, "a") as stream:
            stream.write(json.dumps([name, status, reason[-_REASON_KEPT:]]) + "\n")

    def pytest_runtest_logstart(self, nodeid, location) -> None:
        self.tell(nodeid, "running")

    def pytest_runtest_logreport(self, report) -> None:
        status = "error" if report.failed and report.when != "call" else report.outcome
        if status != "passed" or report.when == "call":
            self.tell(report.nodeid, status, report.longreprtext)

    def pytest_collectreport(self, report) -> None:
        if report.failed:
            self.tell(report.nodeid, "error", report.longreprtext)


def main(scratch: str, limit: float, jobs: int, files: list[str]) -> None:
    # The interpreter put our folder first, whose names tests must not find.
    sys.path.pop(0)
    # What a module prints while it is loaded is no answer.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    # Loads its plugins too.
    pytest.main(["--version"])
    for name in PRELOAD:
        found = importlib.import_module(name).__file__
        if not os.path.realpath(found).startswith(os.path.realpath("python") + os.sep):
            sys.exit(f"{name} comes from {found}, not from the tree")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    running: list[Fork] = []
    try:
        while files or running:
            while files and len(running) < jobs:
                running.append(Fork(scratch, len(files), files.pop(0), limit))
            select.select([fork.ended for fork in running], [], [], 1)
            for fork in [fork for fork in running if fork.over()]:
                running.remove(fork)
                answers.write(json.dumps([fork.file, fork.finish()]) + "\n")
    finally:
        for fork in running:
            fork.finish()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
