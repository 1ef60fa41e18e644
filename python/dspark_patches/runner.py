"""Run regression tests in a process whose sglang is the tree under test.

One process runs all the tests of a tree, since importing SGLang takes most of
the time. It is forked from one that has loaded what SGLang imports, and reports
into a file as it goes, so that a crash or a hang costs the tests that had not
ended yet, and nothing else.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any

from .errors import Precondition
from .outcomes import Outcome, WrongTree, outcomes, read_events

TIMEOUT = 900.0

# What every release imports on its way to the scheduler: over half of the time
# that a tree takes. A package that is absent is the tree's to miss.
PRELOAD = (
    "torch",
    "torch.fx.experimental.symbolic_shapes",
    "transformers.models.auto.processing_auto",
    "transformers.models.auto.modeling_auto",
    "aiohttp",
    "compressed_tensors",
    "datasets",
    "fastapi",
    "gguf",
    "IPython",
    "networkx",
    "openai",
    "triton",
    "uvicorn",
    "xgrammar",
)

_PACKAGE = Path(__file__).resolve().parent
_POLL = 0.1
_DUMP_GRACE = 10.0

# A device that is not there hides those that are. SGLang's test_utils reads the
# first character as a digit, so it cannot be the usual empty value.
_NO_GPU = "99"

# What a user's settings could change in a tree's behaviour or module path.
_SCRUBBED = ("PYTHON", "SGLANG_", "SGL_")


class Cancelled(Exception):
    """The run was called off; its process is gone."""


def run(
    tree: Path,
    selectors: Sequence[str],
    *,
    python: str = sys.executable,
    timeout: float = TIMEOUT,
    cancel: threading.Event | None = None,
    parent: Parent | None = None,
) -> tuple[Outcome, ...]:
    """Run tests in one process and return what became of each.

    Args:
        tree: the tree under test, a folder that holds ``python/sglang``.
        selectors: ``PATH[::CLASS[.TEST]]``, paths relative to the tree.
        python: the interpreter to run them with.
        timeout: seconds for the whole process, importing included.
        cancel: set from another thread to call the run off.
        parent: the process to fork from, whose interpreter then counts; a new
            one that has loaded nothing unless told.

    Raises:
        Precondition: the interpreter does not start, or it imports an sglang
            other than the tree's.
        Cancelled: ``cancel`` was set.
    """
    tree = tree.resolve()
    with (
        nullcontext(parent) if parent else start_parent(python) as parent,
        tempfile.TemporaryDirectory(prefix="dspark-run-") as scratch,
    ):
        report, log = Path(scratch, "report"), Path(scratch, "log")
        for file in (report, log):
            file.touch()
        # Their temporary files go when ours do.
        temporary = Path(scratch, "tmp")
        temporary.mkdir()
        job = dict(
            tree=str(tree),
            report=str(report),
            log=str(log),
            selectors=list(selectors),
            env=environment(tree, parent.python) | {"TMPDIR": str(temporary)},
        )
        ending = parent.run(job, timeout, cancel or threading.Event())
        events, printed = read_events(report.read_bytes()), log.read_bytes()
    for event in events:
        if isinstance(event, WrongTree):
            raise Precondition(
                f"the tests would run against {event.found}",
                cause=f"sglang was expected below {tree}",
                next_step="use a Python environment without an sglang of its own",
            )
    return outcomes(events, printed, selectors, ending)


@contextmanager
def start_parent(
    python: str = sys.executable, preload: Sequence[str] = ()
) -> Iterator[Parent]:
    """A process to fork from, for as long as the context.

    Args:
        python: its interpreter.
        preload: modules that it loads first; one that fails to is left out.

    Raises:
        Precondition: the interpreter does not start.
    """
    command = [python, str(_PACKAGE / "runner_child.py"), *preload]
    with tempfile.TemporaryDirectory(prefix="dspark-run-") as scratch:
        process = subprocess.Popen(
            command,
            # A line that waits in a buffer of ours would be no news to select().
            bufsize=0,
            env=environment(None, python) | {"TMPDIR": scratch},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield Parent(python, process)
        finally:
            _kill(process.pid)
            process.wait()
            process.stdin.close()
            process.stdout.close()


class Parent:
    """A process that forks once for each run, see :func:`start_parent`."""

    def __init__(self, python: str, process: subprocess.Popen[bytes]) -> None:
        self.python = python
        self.pid = process.pid
        self._process = process

    def run(self, job: dict[str, Any], timeout: float, cancel: threading.Event) -> str:
        """Run one job; how its process ended, empty when it reported everything.

        Raises:
            Cancelled: ``cancel`` was set.
        """
        deadline = time.monotonic() + timeout
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
            self._process.stdin.flush()
        child = self._line(deadline, cancel)
        if not child:
            return self._overdue(None, timeout)
        try:
            status = self._line(deadline, cancel)
        except Cancelled:
            _kill(int(child))
            raise
        return _ending(int(status)) if status else self._overdue(int(child), timeout)

    def _line(self, deadline: float, cancel: threading.Event) -> bytes:
        """The next line that it writes; none when it ended or time is up."""
        while not select.select([self._process.stdout], [], [], _POLL)[0]:
            if cancel.is_set():
                raise Cancelled
            if time.monotonic() > deadline:
                return b""
        return self._process.stdout.readline()

    def _overdue(self, child: int | None, timeout: float) -> str:
        """Let faulthandler print where every thread of the child stands."""
        with suppress(subprocess.TimeoutExpired):
            # One that closed its end is about to be gone.
            status = self._process.wait(_POLL)
            if child is not None:
                _kill(child)
            return f"the process to fork from ended with status {status}"
        if child is not None:
            os.kill(child, signal.SIGABRT)
            if not select.select([self._process.stdout], [], [], _DUMP_GRACE)[0]:
                _kill(child)
            self._process.stdout.readline()
        return f"the tests' process hung: no end after {timeout:g} seconds"


def environment(tree: Path | None, python: str = sys.executable) -> dict[str, str]:
    """The environment that makes ``tree`` the sglang that Python imports.

    No setting of the user's reaches the tests. A GPU stays out of sight, as
    on upstream's CPU runners, and one thread is fastest for tiny tensors.
    """
    path = [str(tree / "python")] if tree else []
    if _lacks_torchvision(python):
        path.append(str(_PACKAGE / "stubs"))
    return _scrubbed() | {
        "PYTHONPATH": os.pathsep.join(path),
        # Compiling anew costs a second; stale bytecode costs an evening.
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": _NO_GPU,
    }


def _scrubbed() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith(_SCRUBBED)}


# Asked for a parent and for each of its runs.
@cache
def _lacks_torchvision(python: str) -> bool:
    probe = (
        "import importlib.util as u, sys; sys.exit(u.find_spec('torchvision') is None)"
    )
    try:
        done = subprocess.run([python, "-c", probe], env=_scrubbed(), check=False)
    except OSError as error:
        raise Precondition(f"{python} does not start", cause=str(error)) from error
    return done.returncode != 0


def _ending(status: int) -> str:
    if status < 0:
        return f"the tests' process was killed by {signal.Signals(-status).name}"
    return f"the tests' process ended with status {status}" if status else ""


def _kill(leader: int) -> None:
    """End a whole session, also what outlived its own process."""
    for end in (os.killpg, os.kill):
        with suppress(ProcessLookupError):
            end(leader, signal.SIGKILL)
