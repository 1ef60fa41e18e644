"""Run tasks that arrive on standard input, one JSON object a line.

What happens is told on standard output, likewise: ``ready`` once, then for each
task any number of ``progress`` and one ``record`` or ``failed``. The process ends
with its input. Whatever else prints goes to standard error.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import traceback
from typing import Any

import msgspec
import torch

from . import tasks


class Events:
    """The events, on a descriptor of their own: any module may print."""

    def __init__(self) -> None:
        self._stream = os.fdopen(os.dup(1), "wb", buffering=0)
        os.dup2(2, 1)

    def emit(self, event: str, **fields: Any) -> None:
        self._stream.write(msgspec.json.encode({"event": event, **fields}) + b"\n")


def main() -> None:
    events = Events()
    # Each retraction is a warning, and a load can make thousands of them.
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    import sglang

    events.emit(
        "ready",
        sglang_file=os.path.realpath(sglang.__file__ or ""),
        python=sys.version.split()[0],
        torch=str(torch.__version__),
        caches=tasks.prefix_cache_kinds(),
    )
    for line in sys.stdin.buffer:
        started = time.process_time()
        try:
            task = msgspec.json.decode(line, type=tasks.Task)
            record = tasks.run(task, lambda d, t: events.emit("progress", done=d, of=t))
        except Exception:
            events.emit("failed", traceback=traceback.format_exc())
        else:
            seconds = time.process_time() - started
            events.emit("record", record=record, cpu_seconds=round(seconds, 3))


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    # Tearing torch down takes seconds; everything that counts has been written.
    os._exit(0)
