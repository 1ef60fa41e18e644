"""Waiting ends when the work does, and earlier when one is interrupted."""

from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from dspark_patches.waiting import as_completed


def test_gives_each_when_it_is_done():
    first = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        waits = pool.submit(first.wait)
        other = pool.submit(int)
        done = as_completed([waits, other])
        assert next(done) is other
        first.set()
        assert list(done) == [waits]


def test_a_signal_that_another_thread_receives_is_noticed():
    class Interrupted(Exception):
        pass

    def interrupt(number, frame):
        raise Interrupted

    end = threading.Event()
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with ThreadPoolExecutor(2) as pool:
            pool.submit(_signal_oneself)
            started = time.monotonic()
            try:
                with pytest.raises(Interrupted):
                    list(as_completed([pool.submit(end.wait, 20)]))
            finally:
                end.set()
            assert time.monotonic() - started < 10
    finally:
        signal.signal(signal.SIGUSR1, before)


def _signal_oneself() -> None:
    time.sleep(0.5)
    signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
