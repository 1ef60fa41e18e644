"""The table of docs/forks.md, made from docs/forks.json.

To make it anew: ``python test/tool/forks_table.py``.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
FITS = ("clean", "moved")
# The patch that cures a defect, or, as a test, pins that a tree does not have it.
CURES = {"a": "0002", "b": "0005", "c": "0006", "d": "0003"}

_PART = re.compile(r"(?<=<!-- begin forks -->\n).*?(?=<!-- end forks -->)", re.DOTALL)
_HEAD = (
    "tree",
    "nearest",
    *(f"({letter})" for letter in CURES),
    "written",
    "left out",
    "tests after `git am`",
)


def rows() -> list[dict]:
    return json.loads((DOCS / "forks.json").read_text())


def fill(text: str, found: list[dict]) -> str:
    """The page with the table made anew."""
    lines = [_line(_HEAD), _line(["---"] * len(_HEAD)), *map(_row, found)]
    return _PART.sub("".join(lines).replace("\\", "\\\\"), text)


def _line(cells) -> str:
    return f"| {' | '.join(cells)} |\n"


def _row(row: dict) -> str:
    tree = f"{row['tree']} `{row['ref']}` {row['commit'][:9]}"
    if "patches" not in row:
        cells = [row["defects"][letter] for letter in CURES]
        nearest = f"none: {row['places']} of {row['of']}"
        return _line([tree, nearest, *cells, "", "", ""])
    patches = row["patches"]
    cells = [_cell(row["defects"][x], patches.get(n)) for x, n in CURES.items()]
    left = defaultdict(list)
    for number, one in patches.items():
        if one["verdict"] not in (*FITS, "upstreamed"):
            left[one["verdict"]].append(number)
    fits = sum(one["verdict"] in FITS for one in patches.values())
    told = "; ".join(f"{v}: {', '.join(numbers)}" for v, numbers in left.items())
    nearest = f"{row['nearest']}: {row['places']} of {row['of']}"
    return _line([tree, nearest, *cells, f"{fits} of {len(patches)}", told, _ran(row)])


def _cell(has: str, patch: dict | None) -> str:
    if patch is None:
        return has
    kind = " test" if patch["kind"] == "test" else ""
    return f"{has} -> {patch['verdict']}{kind}"


def _ran(row: dict) -> str:
    counts = (f"{n} {what}" for what, n in row["tests"].items() if n)
    return ", ".join(counts).replace("_", " ")


if __name__ == "__main__":
    page = DOCS / "forks.md"
    page.write_text(fill(page.read_text(), rows()))
