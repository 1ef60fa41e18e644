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
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import Precondition
from . import outcomes
from .outcomes import Outcome

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
# A process that is too late shows where it stands, and ends, by itself.
_GRACE = 60.0

# A device that is not there hides those that are. SGLang's test_utils reads the
# first character as a digit, so it cannot be the usual empty value.
_NO_GPU = "99"

# What a user's settings could change in a tree's behaviour or module path.
_SCRUBBED = ("PYTHON", "SGLANG_", "SGL_")


def run(
    tree: Path,
    selectors: Sequence[str],
    *,
    python: str = sys.executable,
    timeout: float = TIMEOUT,
    server: Server | None = None,
) -> tuple[Outcome, ...]:
    """Run tests in one process and return what became of each.

    Args:
        tree: the tree under test, a folder that holds ``python/sglang``.
        selectors: ``PATH[::CLASS[.TEST]]``, paths relative to the tree.
        timeout: seconds for the whole process, importing included.
        server: the process to fork from, whose interpreter then counts.

    Raises:
        Precondition: the interpreter does not start, or it imports an sglang
            other than the tree's.
    """
    tree = tree.resolve()
    with (
        nullcontext(server) if server else Server(python) as server,
        tempfile.TemporaryDirectory(prefix="dspark-run-") as scratch,
    ):
        report, log = Path(scratch, "report"), Path(scratch, "log")
        report.touch()
        log.touch()
        job = dict(tree=str(tree), report=str(report), log=str(log), timeout=timeout)
        # The tests' temporary files go when ours do.
        job["env"] = environment(tree, server.python) | {"TMPDIR": scratch}
        ending = server.run(job | {"selectors": list(selectors)}, timeout)
        output = log.read_bytes()
        if ending.endswith(" 1") and b"Timeout (" in output:
            ending = f"the tests' process hung: no end after {timeout:g} seconds"
        return outcomes.read(report.read_bytes(), output, selectors, ending)


class Server:
    """A process that forks once for each run, for as long as the context.

    It loads the modules of ``preload`` first; one that fails to is left out.

    Raises:
        Precondition: the interpreter does not start.
    """

    def __init__(self, python: str = sys.executable, preload: Sequence[str] = ()):
        self.python = python
        self._child = 0
        self._scratch = tempfile.TemporaryDirectory(prefix="dspark-run-")
        try:
            self._process = subprocess.Popen(
                [python, str(_PACKAGE / "runner_child.py"), *preload],
                # A line that waits in a buffer of ours would be no news to select().
                bufsize=0,
                env=environment(None, python) | {"TMPDIR": self._scratch.name},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except BaseException:
            self._scratch.cleanup()
            raise

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
        self._scratch.cleanup()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def kill(self) -> None:
        """End it and what runs in it; a run that another thread awaits ends too."""
        for leader in filter(None, (self._child, self.pid)):
            _kill(leader)

    def run(self, job: dict[str, Any], timeout: float) -> str:
        """Run one job, and tell how its process ended."""
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
        self._child = int(self._answer(timeout + _GRACE) or 0)
        try:
            status = self._answer(timeout + _GRACE) if self._child else b""
            if not status:
                self.kill()
                status = self._process.wait()
                return f"the process to fork from ended with status {status}"
        finally:
            self._child = 0
        if int(status) < 0:
            name = signal.Signals(-int(status)).name
            return f"the tests' process was killed by {name}"
        return f"the tests' process ended with status {int(status)}"

    def _answer(self, seconds: float) -> bytes:
        """The next line that it writes; none when it ended or time is up."""
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        return self._process.stdout.readline() if ready else b""


def environment(tree: Path | None, python: str = sys.executable) -> dict[str, str]:
    """The environment that makes ``tree`` the sglang that Python imports.

    A GPU stays out of sight, as on upstream's CPU runners, and one thread is
    fastest for tiny tensors.
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


# Asked for a server and for each of its runs.
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


def _kill(leader: int) -> None:
    """End a whole session, also what outlived its own process."""
    for end in (os.killpg, os.kill):
        with suppress(ProcessLookupError):
            end(leader, signal.SIGKILL)
    # It dies a little later, and may write until then.
    with suppress(OSError, AttributeError):
        descriptor = os.pidfd_open(leader)
        select.select([descriptor], [], [])
        os.close(descriptor)
