"""Stands for the simulator: made-up records, at once, without SGLang.

Run as ``decode_simulator`` in a fake release's tree. Files beside it tell it to
behave worse: ``die`` to exit instead of a record, ``leave`` to exit after one; and,
after the first figure, ``fail`` to tell that a task raised, ``killed`` to die as if
memory were short, ``hang`` to take no end of it (the process id goes to ``hung``).
"""

import json
import os
import sys
import time
from pathlib import Path

import sglang

HERE = Path(__file__).parent
SUMMARY = [20_000, 30_000]


def record(task):
    kind = task["type"]
    if kind == "long_generation":
        aborted = dict(steps=9, output_tokens=500, outcome="aborted", swa_peak=512)
        return dict(aborted, full_peak=512, swa_samples=[[0, 256], [500, 512]])
    if kind == "together":
        fits = task["requests"] <= 13
        peak = task["node"]["full_size"] * task["requests"] // 13
        running = dict(steps=9, fit=fits, most_running=task["requests"])
        return dict(running, swa_peak=1, full_peak=peak)
    if kind == "load":
        counts = ("decode_steps", "retracted", "aborted", "finished")
        sample = dict.fromkeys((*counts, "reprefilled_tokens"), 5)
        whole = dict(hit_rate=0.5, prefilled_tokens=9, mean_running=3, output_tokens=7)
        return dict(whole, dead_swa=[[0, 0], [256, 0]], samples=[sample])
    if kind == "overload":
        counts = ("finished", "aborted", "retracted", "decode_steps")
        return dict.fromkeys(counts, 4) | dict(died="OSError: no")
    if kind == "prepare_cost":
        return dict(nanoseconds=SUMMARY)
    return dict.fromkeys(("fits", "short", "short_again", "reclaimed"), SUMMARY)


def tell(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)


def misbehave(task):
    """Whether there is no record to tell."""
    if (HERE / "die").exists():
        sys.exit("out of luck")
    if task["type"] == "long_generation":
        return False
    if (HERE / "fail").exists():
        tell("failed", traceback="Oops")
        return True
    if (HERE / "killed").exists():
        os.kill(os.getpid(), 9)
    if (HERE / "hang").exists():
        with open(HERE / "hung", "a") as stream:
            stream.write(f"{os.getpid()}\n")
        time.sleep(600)
    return False


def main():
    where = os.path.realpath(sglang.__file__)
    tell("ready", sglang_file=where, python="3", torch="2", caches=["chunk"])
    for line in sys.stdin:
        task = json.loads(line)
        tell("progress", done=1, of=2)
        leave = (HERE / "leave").exists()
        if leave:
            # Before the record, so that the next task finds nobody.
            os.close(0)
        if not misbehave(task):
            tell("record", record=record(task), cpu_seconds=0.5)
        if leave:
            os._exit(0)


if __name__ == "__main__":
    main()
