"""Stands for the simulator: made-up records, at once, without SGLang.

Run as ``decode_simulator`` in a fake release's tree. Files beside it tell it to
behave worse after the first figure: ``die`` to exit, ``fail`` to tell that a task
raised, ``hang`` to take no end of it (the process id goes to ``hung``).
"""

import json
import os
import sys
import time
from pathlib import Path

import sglang

HERE = Path(__file__).parent
TIMES = [20_000, 30_000]


def record(task):
    kind = task["type"]
    if kind == "long_generation":
        aborted = dict(steps=9, output_tokens=500, outcome="aborted", swa_peak=512)
        return dict(aborted, full_peak=512, swa_samples=[[0, 256], [500, 512]])
    if kind == "capacity":
        fits = dict(fit=True, swa_peak=37_274, full_peak=1)
        together = {str(n): fits for n in task["requests"]}
        return dict(together=together, most=13, fails=dict(full_peak=1))
    if kind == "load":
        counts = ("decode_steps", "retracted", "aborted", "finished")
        sample = dict.fromkeys((*counts, "reprefilled_tokens"), 5)
        whole = dict(hit_rate=0.5, mean_running=3, dead_swa=[[0, 0], [256, 0]])
        return dict(whole, samples=[sample])
    if kind == "overload":
        counts = ("finished", "aborted", "retracted", "decode_steps")
        return dict.fromkeys(counts, 4) | dict(died="OSError: no")
    if kind == "retract_loop":
        return dict(milliseconds=9.5, retracted=200)
    names = ("nanoseconds", "fits", "short", "short_again", "reclaimed")
    return dict.fromkeys(names, TIMES)


def answer(**fields):
    print(json.dumps(fields), flush=True)


def misbehave(task):
    """Whether there is no record to tell."""
    if task["type"] == "long_generation":
        return False
    if (HERE / "die").exists():
        sys.exit("out of luck")
    if (HERE / "fail").exists():
        answer(failed="Oops")
        return True
    if (HERE / "hang").exists():
        with open(HERE / "hung", "a") as stream:
            stream.write(f"{os.getpid()}\n")
        time.sleep(600)
    return False


where = os.path.realpath(sglang.__file__)
answer(sglang_file=where, host="Python 3, torch 2", caches=["chunk", "unified"])
for line in sys.stdin:
    task = json.loads(line)
    if not misbehave(task):
        answer(record=record(task), cpu_seconds=0.5)
