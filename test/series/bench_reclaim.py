"""What forced SWA reclamation costs, patched beside pristine, in one run.

    bench_reclaim.py PRISTINE PATCHED [--rounds N]

Both arguments are trees with a ``python/sglang``. One process per tree stays
alive, and they take turns, so that a busy machine slows both. Prints JSON:

* ``check``: microseconds of a memory check that succeeds, and the ratio;
* ``pass``: microseconds per request of the forced pass, of the release's own
  regular eviction of the same slots, and of a pass that finds nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

REQUESTS = (1, 32, 256)
WINDOW = 128
INTERVAL = 128
# Of the window's end; one more than an interval is due under every cadence.
DEAD = INTERVAL + 4
ACCEPTED = 6


class Worker:
    """A process in which ``sglang`` is the one of ``tree``."""

    def __init__(self, tree: str) -> None:
        path = [str(Path(tree).resolve() / "python"), os.environ.get("PYTHONPATH", "")]
        environ = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            "OMP_NUM_THREADS": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", __file__, "--worker"],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, what: str, **options):
        """The answer to one measurement."""
        print(json.dumps([what, options]), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"the worker ended with {self._process.wait()}")
        return json.loads(answer)

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()
        self._process.wait()


def compare(pristine: Worker, patched: Worker, rounds: int) -> dict:
    """All figures, as the JSON that is printed."""
    return {
        "check": [
            compare_check(pristine, patched, rounds, cache=cache, requests=requests)
            for cache in pristine.ask("caches")
            for requests in REQUESTS
        ],
        "pass": [
            measure_pass(patched, rounds, page_size=page_size, requests=requests)
            for page_size in (1, 64)
            for requests in REQUESTS
        ],
    }


def compare_check(pristine, patched, rounds: int, **options) -> dict:
    """The same check on both, in turn."""
    times = {"pristine": [], "patched": []}
    for _ in range(rounds):
        times["pristine"].append(pristine.ask("check", **options))
        times["patched"].append(patched.ask("check", **options))
    ratios = [b / a for a, b in zip(*times.values())]
    figures = {name: round(median(values), 3) for name, values in times.items()}
    return {**options, **figures, "ratio": round(median(ratios), 3)}


def measure_pass(worker: Worker, rounds: int, **options) -> dict:
    """The forced pass and the regular eviction, each on fresh requests, in turn."""
    times: dict[str, list[float]] = {"regular": [], "forced": [], "empty": []}
    for _ in range(max(3, rounds // 3)):
        for kind, values in times.items():
            values.append(worker.ask("evict", kind=kind, **options))
    ratios = [b / a for a, b in zip(times["regular"], times["forced"])]
    figures = {name: round(median(values), 3) for name, values in times.items()}
    return {**options, **figures, "ratio": round(median(ratios), 3)}


def work() -> None:
    """Answer measurements until the input ends."""
    bench = make_bench()
    # Whatever SGLang prints must not stand between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        what, options = json.loads(line)
        print(json.dumps(getattr(bench, what)(**options)), file=answers, flush=True)


def make_bench():
    """The measurements of one process; this imports SGLang."""
    from unittest.mock import patch

    from sglang.srt.managers.schedule_batch import ScheduleBatch
    from sglang.test.kits.spec_decode_caches import prefix_cache_kinds
    from sglang.test.kits.spec_decode_kit import SpecDecodeTestCase

    class Bench(SpecDecodeTestCase):
        eviction_interval = INTERVAL

        def runTest(self) -> None:
            """Named by unittest; nothing to run."""

        def caches(self) -> tuple[str, ...]:
            return prefix_cache_kinds()

        def start(self, requests: int, dead: int, **options):
            """Running requests with ``dead`` tokens out of their windows."""
            self.doCleanups()
            self.setUp()
            rig = self.make_rig(
                sliding_window=WINDOW,
                full_size=1 << 18,
                swa_size=1 << 17,
                max_reqs=requests,
                max_context_len=1024,
                **options,
            )
            reqs = [
                rig.make_req(prompt_len=8, rid=str(n), first_token=n)
                for n in range(requests)
            ]
            batch = rig.start(reqs)
            with patch.object(ScheduleBatch, "maybe_evict_swa", lambda batch: None):
                for _ in range((WINDOW + dead) // ACCEPTED):
                    rig.step(batch, accepted=ACCEPTED)
            return rig, batch

        def check(self, *, requests: int, cache: str) -> float:
            key = (requests, cache)
            if getattr(self, "key", None) != key:
                self.key = key
                self.batch = self.start(requests, 0, cache=cache)[1]
            calls = max(20, 4000 // requests)
            return _best(self.batch.check_decode_mem, calls)

        def evict(self, *, kind: str, requests: int, page_size: int) -> float:
            self.key = None
            rig, batch = self.start(requests, DEAD, page_size=page_size)
            batch.forward_iter = 0  # due under an iteration cadence, too
            available = rig.allocator.swa_available_size()
            if kind == "empty":
                batch._reclaim_swa(batch.reqs, 1)
                return _best(lambda: batch._reclaim_swa(batch.reqs, 1), 3) / requests
            started = time.perf_counter()
            if kind == "regular":
                batch.maybe_evict_swa()
            else:
                batch._reclaim_swa(batch.reqs, 1)
            elapsed = time.perf_counter() - started
            freed = rig.allocator.swa_available_size() - available
            assert freed >= requests * min(DEAD, 64), (kind, freed)
            return elapsed / requests * 1e6

    return Bench()


def _best(call, calls: int) -> float:
    """Microseconds of one of ``calls``, in the least disturbed of five runs."""
    runs = []
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(calls):
            call()
        runs.append((time.perf_counter() - started) / calls * 1e6)
    return min(runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trees", nargs="*", metavar="TREE")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work()
        return
    if len(options.trees) != 2:
        parser.error("name the pristine tree and the patched one")
    workers = [Worker(tree) for tree in options.trees]
    print(json.dumps(compare(*workers, options.rounds), indent=1))
    for worker in workers:
        worker.close()


if __name__ == "__main__":
    main()
