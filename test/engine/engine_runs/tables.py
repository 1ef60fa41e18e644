"""What was seen, as tables in Markdown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

Answer = dict[str, Any]
# By release, by kind of tree.
Seen = dict[str, dict[str, list[Answer]]]

_COLUMNS = (
    "load",
    "tree",
    "retractions",
    "dirty",
    "dead at each: own + locked",
    "computed again",
    "hits",
    "peak held",
    "reads",
    "ended",
)

NOTES = """\
- *dirty*: retractions at which more was dead than one page for each running request.
- *dead at each*: on average, sliding-window slots in whole pages that nobody will
  read and that were not to be had: a request's own below every window, and the
  tree's that only locks kept. What a forward in flight reads is not dead.
- *computed again*: tokens that had been computed before, and are once more.
- *hits*: tokens found in the prefix cache, of all that prefills needed.
- *peak held*: most slots of the sliding-window pool that the tree could not have
  given back.
- *reads*: KV cells that forwards read through the release's mapping, each right.
- *ended*: all requests with the text that their prompts define and all pools full;
  or what went wrong.
"""


def markdown(load: str, seen: Seen) -> str:
    """The table of one load: a row for each task and tree, seeds together."""
    parts = [f"## {load}\n"]
    for tag, trees in seen.items():
        parts.append(f"\n### {tag}\n\n{_row(_COLUMNS)}{_row(['---'] * len(_COLUMNS))}")
        for name in dict.fromkeys(
            answer["task"]["name"] for answers in trees.values() for answer in answers
        ):
            parts.extend(
                _row([name, tree, *_cells(named)])
                for tree, answers in trees.items()
                if (named := _named(name, answers))
            )
    return "".join(parts)


def trouble(answer: Answer) -> str:
    """What went wrong with a load; empty if nothing did."""
    if answer["failed"]:
        return answer["failed"].splitlines()[0]
    record = answer["record"]
    if record is None:
        return ""
    found = []
    if record["died"]:
        found.append(record["died"])
    elif record["wrong_text"]:
        found.append(f"wrong text: {', '.join(record['wrong_text'])}")
    if record["aborted"]:
        found.append(f"aborted: {', '.join(record['aborted'])}")
    found.extend(
        f"{count} missing in {pool}"
        for pool, count in record["missing"].items()
        if count
    )
    return "; ".join(found)


def dirty(record: dict[str, Any], page_size: int) -> list[dict[str, Any]]:
    """Retractions at which more is dead than one page for each running request."""
    return [
        retraction
        for retraction in record["retractions"]
        if _dead(retraction) > retraction["running"] * page_size
    ]


def _cells(answers: Sequence[Answer]) -> Iterable[str]:
    if absent := next((a["absent"] for a in answers if a["absent"]), ""):
        return [absent] + [""] * (len(_COLUMNS) - 3)
    records = [answer["record"] for answer in answers if answer["record"]]
    page_size = answers[0]["task"]["engine"].get("page_size", 1)
    out = [r for record in records for r in record["retractions"]]
    total: dict[str, int] = defaultdict(int)
    for record in records:
        for key in ("again", "computed", "hit", "read"):
            total[key] += record[key]
    needed = total["computed"] + total["hit"]
    troubles = dict.fromkeys(filter(None, map(trouble, answers)))
    return [
        str(len(out)),
        str(sum(len(dirty(record, page_size)) for record in records)),
        f"{_mean(out, 'owned')} + {_mean(out, 'locked')}" if out else "-",
        str(total["again"]),
        f"{total['hit'] / needed:.0%}" if needed else "-",
        str(max((record["swa_held_peak"] for record in records), default=0)),
        str(total["read"]),
        "; ".join(troubles) or "right, pools full",
    ]


def _named(name: str, answers: Sequence[Answer]) -> list[Answer]:
    return [answer for answer in answers if answer["task"]["name"] == name]


def _dead(retraction: dict[str, Any]) -> int:
    return retraction["owned"] + retraction["locked"]


def _mean(retractions: Sequence[dict[str, Any]], side: str) -> int:
    return round(sum(r[side] for r in retractions) / len(retractions))


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"
