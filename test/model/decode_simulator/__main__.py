"""Run tasks that arrive on standard input, one JSON object a line.

Answers likewise on standard output: what this process is, once; then for each task
its record and CPU time, or the traceback of what it raised. The process ends with
its input. Whatever else prints goes to standard error.
"""

from __future__ import annotations

import logging
import os
import platform
import sys
import time
import traceback

import msgspec
import torch

from sglang.test.kits.spec_decode_caches import prefix_cache_kinds

from . import tasks


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    # Each retraction is a warning, and a load can make thousands of them.
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    import sglang

    def answer(**fields) -> None:
        answers.write(msgspec.json.encode(fields) + b"\n")

    answer(
        sglang_file=os.path.realpath(sglang.__file__ or ""),
        host=f"Python {platform.python_version()}, torch {torch.__version__}",
        caches=prefix_cache_kinds(),
    )
    for line in sys.stdin.buffer:
        started = time.process_time()
        try:
            record = msgspec.json.decode(line, type=tasks.Task).run()
        except Exception:
            answer(failed=traceback.format_exc())
        else:
            seconds = time.process_time() - started
            answer(record=record, cpu_seconds=round(seconds, 3))


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    # Tearing torch down takes seconds; everything that counts has been written.
    os._exit(0)
