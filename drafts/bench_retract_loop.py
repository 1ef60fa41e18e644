"""What a retraction costs, patched beside pristine, in one run.

    bench_retract_loop.py PRISTINE PATCHED [--rounds N] [--requests N]

Both arguments are trees with a ``python/sglang``. One process per tree stays
alive, and they take turns, so that a busy machine slows both. Each round makes
fresh requests, takes all memory of one side, and times the memory check and
``retract_decode`` until the rest fits. Prints JSON, one object for each page
size, cache, short side and need:

* ``pristine``, ``patched``: milliseconds of CPU time, the median of all rounds;
* ``ratio``: patched by pristine, the median of the rounds' ratios;
* ``retracted``: how many requests each of them retracted.

No request is longer than its window, so that no SWA slot is dead, and both
retract the same requests: the ratio is the price of having looked.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from statistics import median

PAGE_SIZES = (1, 64)
CACHES = ("chunk", "unified")
SHORT_SIDES = ("full", "swa", "both")
WINDOW = 128
ACCEPTED = 4


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
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, **options):
        """The answer to one measurement."""
        print(json.dumps(options), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"the worker ended with {self._process.wait()}")
        return json.loads(answer)

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()
        self._process.wait()


def compare(pristine: Worker, patched: Worker, *, rounds: int, requests: int) -> list:
    """All figures, as the JSON that is printed."""
    return [
        _compare_one(
            {"pristine": pristine, "patched": patched},
            rounds,
            page_size=page_size,
            cache=cache,
            short=short,
            requests=requests,
        )
        for page_size, cache, short in product(PAGE_SIZES, CACHES, SHORT_SIDES)
    ]


def _compare_one(workers: dict[str, Worker], rounds: int, **options) -> dict:
    times: dict[str, list[float]] = {name: [] for name in workers}
    retracted = {}
    for _ in range(rounds):
        for name, worker in workers.items():
            elapsed, retracted[name] = worker.ask(**options)
            times[name].append(elapsed)
    ratios = [b / a for a, b in zip(*times.values())]
    figures = {name: round(median(values), 3) for name, values in times.items()}
    ratio = round(median(ratios), 3)
    return {**options, **figures, "ratio": ratio, "retracted": retracted}


def work() -> None:
    """Answer measurements until the input ends."""
    bench = make_bench()
    # Whatever SGLang prints must not stand between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        print(json.dumps(bench.retract(**json.loads(line))), file=answers, flush=True)


def make_bench():
    """The measurement of one process; this imports SGLang."""
    import gc
    import inspect

    from sglang.srt.runtime_context import get_server_args
    from sglang.test.kits.spec_retract_kit import RetractTestCase

    class Bench(RetractTestCase):
        def runTest(self) -> None:
            """Named by unittest; nothing to run."""

        def retract(self, *, requests: int, short: str, page_size: int, cache: str):
            """Milliseconds of one retraction, and how many requests it took."""
            self.doCleanups()
            self.setUp()
            rig = self.make_rig(
                cache=cache,
                page_size=page_size,
                sliding_window=WINDOW,
                full_size=1 << 18,
                swa_size=1 << 17,
                max_reqs=requests,
                max_context_len=1024,
            )
            reqs = [
                rig.make_req(prompt_len=8, rid=str(n), first_token=n)
                for n in range(requests)
            ]
            batch = rig.start(reqs)
            for _ in range(WINDOW // 4 // ACCEPTED):
                rig.step(batch, accepted=ACCEPTED)
            # The next step needs at least a page of every request.
            while batch.new_tokens_required_next_decode() < requests * page_size:
                rig.step(batch, accepted=ACCEPTED)
            assert batch.reqs[0].seqlen <= WINDOW
            self.take(rig, short)
            arguments = (
                (get_server_args(),)
                if inspect.signature(batch.retract_decode).parameters
                else ()
            )
            # The thread's own time, since other processes share the cores.
            gc.disable()
            started = time.thread_time()
            fits = batch.check_decode_mem()
            retracted = [] if fits else batch.retract_decode(*arguments)[0]
            elapsed = (time.thread_time() - started) * 1e3
            gc.enable()
            return elapsed, len(retracted)

        def take(self, rig, short: str) -> None:
            """Leave nothing free on the side that is short."""
            sides = {
                "full": [rig.allocator.full_attn_allocator],
                "swa": [rig.allocator.swa_attn_allocator],
            }
            sides["both"] = [*sides["full"], *sides["swa"]]
            for side in sides[short]:
                side.alloc(side.available_size())

    return Bench()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trees", nargs="*", metavar="TREE")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--requests", type=int, default=256)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work()
        return
    if len(options.trees) != 2:
        parser.error("name the pristine tree and the patched one")
    workers = [Worker(tree) for tree in options.trees]
    figures = compare(*workers, rounds=options.rounds, requests=options.requests)
    print(json.dumps(figures, indent=1))
    for worker in workers:
        worker.close()


if __name__ == "__main__":
    main()
