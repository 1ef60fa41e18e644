"""What must not be left half done by one who presses Ctrl-C twice."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Put interruptions off to the end of the context. For what takes a moment.

    Raises:
        KeyboardInterrupt: at its end, where one came.
    """
    if threading.current_thread() is not threading.main_thread():
        # Only the main thread is interrupted.
        yield
        return
    came: list[int] = []
    wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    # Those that are ignored, or end the process, stay as they are.
    before = {n: signal.getsignal(n) for n in wanted if callable(signal.getsignal(n))}
    for number in before:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            raise KeyboardInterrupt
