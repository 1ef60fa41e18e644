"""Run regression tests in a process whose sglang is the tree under test.

One process runs all the tests of a tree, since importing SGLang takes most of
the time. It reports into a file as it goes, so that a crash or a hang costs
the tests that had not ended yet, and nothing else.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from .errors import Precondition
from .outcomes import Outcome, WrongTree, outcomes, read_events

TIMEOUT = 900.0

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
) -> tuple[Outcome, ...]:
    """Run tests in one process and return what became of each.

    Args:
        tree: the tree under test, a folder that holds ``python/sglang``.
        selectors: ``PATH[::CLASS[.TEST]]``, paths relative to the tree.
        python: the interpreter to run them with.
        timeout: seconds for the whole process, importing included.
        cancel: set from another thread to call the run off.

    Raises:
        Precondition: the interpreter does not start, or it imports an sglang
            other than the tree's.
        Cancelled: ``cancel`` was set.
    """
    tree = tree.resolve()
    with tempfile.TemporaryDirectory(prefix="dspark-run-") as scratch:
        report, log = Path(scratch, "report"), Path(scratch, "log")
        report.touch()
        command = [python, str(_PACKAGE / "runner_child.py"), str(tree), str(report)]
        with log.open("wb") as output:
            process = _start([*command, *selectors], tree, Path(scratch), output)
        ending = _wait(process, timeout, cancel or threading.Event())
        events, printed = read_events(report.read_bytes()), log.read_bytes()
    for event in events:
        if isinstance(event, WrongTree):
            raise Precondition(
                f"the tests would run against {event.found}",
                cause=f"sglang was expected below {tree}",
                next_step="use a Python environment without an sglang of its own",
            )
    return outcomes(events, printed, selectors, ending)


def environment(tree: Path, python: str = sys.executable) -> dict[str, str]:
    """The environment that makes ``tree`` the sglang that Python imports.

    No setting of the user's reaches the tests. A GPU stays out of sight, as
    on upstream's CPU runners, and one thread is fastest for tiny tensors.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_SCRUBBED)}
    path = [str(tree / "python")]
    if _lacks_torchvision(python, kept):
        path.append(str(_PACKAGE / "stubs"))
    return kept | {
        "PYTHONPATH": os.pathsep.join(path),
        # Compiling anew costs a second; stale bytecode costs an evening.
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": _NO_GPU,
    }


def _lacks_torchvision(python: str, env: dict[str, str]) -> bool:
    probe = (
        "import importlib.util as u, sys; sys.exit(u.find_spec('torchvision') is None)"
    )
    try:
        return (
            subprocess.run([python, "-c", probe], env=env, check=False).returncode != 0
        )
    except OSError as error:
        raise Precondition(f"{python} does not start", cause=str(error)) from error


def _start(
    command: list[str], tree: Path, scratch: Path, output
) -> subprocess.Popen[bytes]:
    # A session of its own, so that whatever the tests start can be ended with
    # them. Their temporary files go when ours do.
    temporary = scratch / "tmp"
    temporary.mkdir()
    return subprocess.Popen(
        command,
        cwd=tree,
        env=environment(tree, command[0]) | {"TMPDIR": str(temporary)},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _wait(
    process: subprocess.Popen[bytes], timeout: float, cancel: threading.Event
) -> str:
    """How the process ended; empty when it reported everything."""
    deadline = time.monotonic() + timeout
    try:
        while process.poll() is None:
            if cancel.is_set():
                raise Cancelled
            if time.monotonic() > deadline:
                _dump_stacks(process)
                return f"the tests' process hung: no end after {timeout:g} seconds"
            time.sleep(_POLL)
    finally:
        _kill(process)
    status = process.returncode
    if status < 0:
        return f"the tests' process was killed by {signal.Signals(-status).name}"
    return f"the tests' process ended with status {status}" if status else ""


def _dump_stacks(process: subprocess.Popen[bytes]) -> None:
    """Let faulthandler print where every thread stands, and the process end."""
    process.send_signal(signal.SIGABRT)
    try:
        process.wait(_DUMP_GRACE)
    except subprocess.TimeoutExpired:
        pass


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the whole session, also what outlived the tests' own process."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
