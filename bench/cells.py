"""What the tables say: of each figure the columns, and the cell of one release."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import fmean, median
from typing import Any

from .results import PATCHED, RELEASED, Row

# The rows of one release and task, by tree.
Trees = Mapping[str, Row]
Cell = Callable[[Trees], str]

# Released versions that the cost is compared with: the first one with a fix of its
# own, and the newest.
REFERENCES = ("v0.5.18", "v0.5.23")
# What a retraction may cost of a released one's.
BOUND = 1.1
LOADS_NOTE = (
    "Per 1,000 decode steps: requests *retracted*, *aborted* and *finished*, and "
    "*tokens prefilled again*. *gave up with dead SWA*: of the batches that gave up "
    "requests, how many did so while SWA tokens were dead: not free, read by no "
    "running request again, and not for the prefix cache to give back at once. "
    "*owned*, *locked*: how many of them requests owned, or held a lock on in the "
    "prefix cache, on average over all batches that gave up requests. *prefix hits*: "
    "the part of all prompt tokens that the prefix cache held; *running*: requests "
    "per step. *small pool*: 131,072 full-attention tokens, prompts of 64 to 1,024 "
    "tokens; *reported pool*: 778,496, prompts of 64 to 4,096; SWA a tenth of it, "
    "outputs of 64 to 1,024 tokens, 8 requests always waiting."
)


def pair(say: Callable[[Any], str]) -> Cell:
    """A cell that says what became of a record: *as released -> patched*."""
    return _pair_of_rows(lambda row: say(row.record))


def _pair_of_rows(say: Callable[[Row], str]) -> Cell:
    def cell(trees: Trees) -> str:
        before, after = (
            say(trees[tree]) if tree in trees else "?" for tree in (RELEASED, PATCHED)
        )
        return before if before == after else f"{before} -> {after}"

    return cell


def _count(name: str) -> Cell:
    return pair(lambda record: _number(record[name]))


def _number(value: float) -> str:
    return f"{round(value):,}"


def _steady(record) -> str:
    settled = [swa for tokens, swa in record["swa_samples"] if tokens > 2_000][:-1]
    if record["outcome"] != "finished" or not settled:
        return "none"
    return f"{_number(min(settled))} to {_number(max(settled))}"


GROWTH = {
    "outcome": pair(lambda r: f"{r['outcome']} at {_number(r['output_tokens'])}"),
    "SWA peak": _count("swa_peak"),
    "SWA steady": pair(_steady),
    "steps": _count("steps"),
}


def _share(requests: int) -> Cell:
    def say(row: Row) -> str:
        found = row.record["together"][str(requests)]
        share = found["swa_peak"] / row.task["node"]["swa_size"]
        return f"{share:.2f}" if found["fit"] else "retracted"

    return _pair_of_rows(say)


def _full_pool(row: Row) -> str:
    full = row.record["fails"]["full_peak"] >= row.task["node"]["full_size"]
    return "full-attention" if full else "SWA"


CAPACITY = {f"{n} requests": _share(n) for n in (11, 12, 32, 48)} | {
    "most that fit": pair(lambda record: str(record["most"])),
    "full then": _pair_of_rows(_full_pool),
}


def _per_thousand(name: str) -> Cell:
    def say(record) -> str:
        total = record["samples"][-1]
        return _number(total[name] * 1_000 / total["decode_steps"])

    return pair(say)


def _gave_up(record) -> str:
    dead = record["dead_swa"]
    return f"{sum(map(any, dead))} of {len(dead)}"


def _mean_dead(index: int) -> Cell:
    return pair(lambda r: _number(fmean(d[index] for d in r["dead_swa"] or [(0, 0)])))


RETRACTION = {
    "retracted": _per_thousand("retracted"),
    "tokens prefilled again": _per_thousand("reprefilled_tokens"),
    "finished": _per_thousand("finished"),
    "gave up with dead SWA": pair(_gave_up),
    "owned": _mean_dead(0),
    "locked": _mean_dead(1),
    "aborted": _per_thousand("aborted"),
    "prefix hits": pair(lambda record: f"{record['hit_rate']:.3f}"),
    "running": pair(lambda record: f"{record['mean_running']:.1f}"),
}

PD = {
    "scheduler": pair(lambda record: record["died"].split(":")[0] or "runs on"),
    "finished": _count("finished"),
    "aborted": _count("aborted"),
    "retracted": _count("retracted"),
}


def _us(list_of: str, number: str) -> Callable[[Any], str]:
    return lambda record: _number(record[list_of][number] / 1e3)


def _median_of(tag: str) -> Cell:
    def cell(trees: Trees) -> str:
        return _us("nanoseconds", "median")(trees[tag].record) if tag in trees else ""

    return cell


def _ratio(other: str) -> Cell:
    def cell(trees: Trees) -> str:
        if PATCHED not in trees or other not in trees:
            return "?"
        times = [trees[t].record["nanoseconds"]["median"] for t in (PATCHED, other)]
        return f"{times[0] / times[1]:.2f}"

    return cell


COST = {
    "median": pair(_us("nanoseconds", "median")),
    "mean": pair(_us("nanoseconds", "mean")),
    "slowest": pair(_us("nanoseconds", "max")),
    **{tag: _median_of(tag) for tag in REFERENCES},
    "patched / as released": _ratio(RELEASED),
    f"patched / {REFERENCES[0]}": _ratio(REFERENCES[0]),
}


def _added(check: str) -> Cell:
    """What a check takes more than one that has memory to spare, per request."""

    def say(row: Row) -> str:
        more = row.record[check]["median"] - row.record["fits"]["median"]
        return f"{max(0.0, more) / 1e3 / row.task['requests']:.1f}"

    return lambda trees: say(trees[PATCHED]) if PATCHED in trees else "?"


CHECK = {
    "fits": pair(_us("fits", "median")),
    "short": pair(_us("short", "median")),
    "again": pair(_us("short_again", "median")),
    "reclaim": _added("short"),
    "scan": _added("short_again"),
    "reclaimed": pair(lambda record: _number(record["reclaimed"]["mean"])),
}


def _loop_ratio(trees: Trees) -> str:
    if not {RELEASED, PATCHED} <= trees.keys():
        return "?"
    rounds = [trees[tree].record["milliseconds"] for tree in (RELEASED, PATCHED)]
    return f"{median(after / before for before, after in zip(*rounds)):.2f}"


RETRACT_LOOP = {
    "retracted": pair(lambda record: _number(record["retracted"][0])),
    "median": pair(lambda record: f"{median(record['milliseconds']):.1f}"),
    "patched / as released": _loop_ratio,
    "bound": lambda trees: f"{BOUND:.2f}",
}
