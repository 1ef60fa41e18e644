"""``python -m kv_engine``: tasks on standard input, answers on standard output.

Both are lines of JSON. The release is what Python imports as ``sglang``. Each task
has a process of its own, forked once everything is imported, since a release keeps
one scheduler's settings in the modules.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

import msgspec

warnings.simplefilter("ignore")
# Not a line of a release's own on standard output.
_answers = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)

from .boot import Absent  # noqa: E402
from .load import overload  # noqa: E402
from .sabotage import SABOTAGES  # noqa: E402
from .serve import serve  # noqa: E402
from .stand_ins import import_the_rest  # noqa: E402
from .tasks import Answer, Task  # noqa: E402


def main() -> None:
    logging.disable(logging.WARNING)
    import_the_rest()
    for line in sys.stdin:
        task = msgspec.json.decode(line, type=Task)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            _answer(task, writer)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            encoded = pipe.read()
        _, status = os.waitpid(child, 0)
        if not encoded:
            ended = Answer(task=task, failed=f"its process ended with status {status}")
            encoded = msgspec.json.encode(ended)
        _answers.write(encoded + b"\n")
        _answers.flush()


def _answer(task: Task, writer: int) -> None:
    try:
        answer = Answer(task=task, record=_run(task))
    except Absent as error:
        answer = Answer(task=task, absent=str(error))
    except BaseException as error:
        traceback.print_exc()
        answer = Answer(task=task, failed=f"{type(error).__name__}: {error}")
    os.write(writer, msgspec.json.encode(answer))
    # Without the handlers of the parent or of the release.
    os._exit(0)


def _run(task: Task):
    requests = overload(task.seed, task.requests, task.shared, task.gap)
    with tempfile.TemporaryDirectory(prefix="kv-engine-") as folder:
        return serve(
            task.engine,
            requests,
            Path(folder),
            seed=task.seed,
            sabotage=SABOTAGES[task.sabotage] if task.sabotage else None,
        )


if __name__ == "__main__":
    main()
