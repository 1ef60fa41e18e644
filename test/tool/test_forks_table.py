"""The table of real forks: made of its rows, and no verdict in it is wrong."""

from __future__ import annotations

import pytest
from forks_table import CURES, DOCS, FITS, fill, rows

ROWS = [pytest.param(r, id=f"{r['tree']}:{r['ref']}") for r in rows()]


def test_the_table_is_made_of_the_rows() -> None:
    text = (DOCS / "forks.md").read_text()
    assert fill(text, rows()) == text


@pytest.mark.parametrize("row", [r for r in ROWS if "patches" in r.values[0]])
def test_no_verdict_is_wrong(row: dict) -> None:
    """What a tree has not is not mended again, and what it has is never called in."""
    for letter, number in CURES.items():
        patch, has = row["patches"][number], row["defects"][letter]
        if has == "none":
            assert patch["kind"] == "test" or patch["verdict"] not in FITS
        else:
            assert patch["verdict"] not in ("upstreamed", "done elsewhere")
            assert patch["kind"] == "fix" or patch["verdict"] not in FITS


@pytest.mark.parametrize("row", [r for r in ROWS if "patches" in r.values[0]])
def test_what_was_written_applies_and_holds(row: dict) -> None:
    assert row["am"] and row["status"]
    assert row["tests"]["passed"] and not row["tests"]["failed"]
