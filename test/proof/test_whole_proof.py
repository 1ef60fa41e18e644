"""The table of the whole proof shows what was seen of the series as it is."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

RUN = Path(__file__).with_name("run.py")
WHOLE = runpy.run_path(str(RUN))
table = WHOLE["table"]

SEEN = {
    "patches": {"patches": 19, "amiss": 0, "series": "new"},
    "mutants": {"hunks": 30, "mutants": 250, "exempt": 9, "amiss": 2, "series": "new"},
    "engine": {"runs": 60, "reads": 1234567, "amiss": 0, "series": "old"},
    "upstream": {"before": 758, "after": 1921, "amiss": 0, "series": "new"},
}


def cells(made):
    return [cell.strip() for cell in made.splitlines()[-1].strip("|").split("|")]


def test_each_part_has_its_columns():
    current = {part: counts | {"series": "new"} for part, counts in SEEN.items()}
    made = table({"v0.5.16": current}, {"v0.5.16": "new"})
    assert cells(made)[1:] == [
        "19",
        "30, 2 amiss",
        "250, 9 exempt, 2 amiss",
        "60",
        "1,234,567",
        "758 -> 1,921",
    ]


def test_what_is_of_another_series_or_was_not_run_is_not_shown():
    made = table({"v0.5.16": SEEN}, {"v0.5.16": "new", "v0.5.17": "new"})
    sixteen, seventeen = (cells(row) for row in made.splitlines()[-2:])
    assert sixteen[4:6] == ["-", "-"] and sixteen[6] == "758 -> 1,921"
    assert seventeen == ["v0.5.17", *["-"] * 6]


def test_the_readme_shows_what_is_of_the_series_as_they_are():
    page = WHOLE["PROOF"].with_suffix(".md").read_text()
    assert page == WHOLE["current_table"](), "run `scripts/prove --part`"


def test_upstream_wants_checkouts():
    command = [sys.executable, str(RUN), "v0.5.16", "--part", "upstream"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 2 and "--tags DIR" in ended.stderr
