"""Processes that serve loads, each with one tree's sglang."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dspark_patches.proof import runner

_HERE = Path(__file__).parents[1]
_TAIL = 40


class ChildFailed(Exception):
    """A process ended before it had answered; the end of what it printed."""


def answers(tree: Path, tasks: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Serve loads with a tree's scheduler, one after the other.

    Raises:
        ChildFailed: not all of them were answered.
    """
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as printed:
        given.writelines(json.dumps(task).encode() + b"\n" for task in tasks)
        given.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-m", "kv_engine"],
            env=environment(tree),
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=printed,
        )
        answered = 0
        try:
            for line in process.stdout:
                answered += 1
                yield json.loads(line)
        finally:
            process.kill()
            process.wait()
        if answered < len(tasks):
            printed.seek(0)
            tail = printed.read().decode(errors="replace").splitlines()[-_TAIL:]
            raise ChildFailed("\n".join(tail))


def environment(tree: Path, *paths: Path) -> dict[str, str]:
    """What makes a tree the sglang of a process, on a CPU and with ``kv_engine``.

    Args:
        paths: more to import from.
    """
    given = runner.environment(tree)
    added = (_HERE, _HERE / "kv_engine" / "stubs", *paths)
    path = [given["PYTHONPATH"], *map(os.fspath, added)]
    # Read as the release's modules are imported: upstream's own switch for a CPU.
    return given | dict(PYTHONPATH=os.pathsep.join(path), SGLANG_USE_CPU_ENGINE="1")
