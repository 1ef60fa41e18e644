"""What the tables of the bench say, and what the docs show of them."""

from __future__ import annotations

import pytest
from bench_rows import (
    FULL,
    check_cost,
    cost,
    every_figure,
    found,
    growth,
    load,
    overload,
    together,
)

from dspark_patches import bases
from dspark_patches.bench import docs, form, tables

CACHES = ("chunk", "radix")


def only(*rows):
    """The one table of these rows."""
    (table,) = tables.tables(found(*rows))
    return table


def short(*rows):
    (table,) = tables.compact(found(*rows))
    return table


def cells(table):
    """The one row, by column."""
    (row,) = table.rows
    assert len(row) == len(table.header)
    return dict(zip(table.header, row))


def test_growth_stands_before_beside_after():
    patched = growth(tree="patched", peak=1_024)
    assert cells(only(growth(), patched)) == {
        "base": "v0.5.16",
        "cache": "chunk",
        "outcome": "aborted at 77,811 -> finished at 100,000",
        "SWA peak": "77,824 -> 1,024",
        "SWA steady": "none -> 3,072 to 3,072",
        "steps": "10",
    }


def test_a_tree_that_was_not_run_is_no_number():
    assert cells(only(growth()))["SWA peak"] == "77,824 -> ?"


def test_the_note_tells_the_pools_of_the_records():
    assert "77,824 SWA tokens" in only(growth()).note


def test_the_readme_shows_one_row_per_base():
    rows = [growth(base, cache=c) for base in ("v0.5.16", "v0.5.17") for c in CACHES]
    assert [row[0] for row in short(*rows).rows] == ["v0.5.16", "v0.5.17"]
    assert "cache" not in short(*rows).header


def test_capacity_ends_with_the_most_that_fit():
    table = only(
        together("capacity", "pristine", "chunk 12", 12, fit=False),
        together("capacity", "patched", "chunk 12", 12, fit=True, swa=37_274),
        together("limit", "pristine", "chunk fits", 11, fit=True),
        together("limit", "patched", "chunk fits", 111, fit=True),
    )
    row = cells(table)
    assert row["11 requests"] == "?"
    assert row["12 requests"] == "retracted -> 0.10"
    assert row["most that fit"] == "11 -> 111"


@pytest.mark.parametrize("figure", ["capacity", "limit"])
def test_either_half_of_capacity_makes_a_table(figure):
    name = "chunk 11" if figure == "capacity" else "chunk fits"
    table = only(together(figure, "pristine", name, 11, fit=True))
    assert ("most that fit" in table.header) == (figure == "limit")
    assert ("11 requests" in table.header) == (figure == "capacity")
    assert cells(table)["cache"] == "chunk"


def test_the_note_names_the_full_pool_only_where_it_was_full():
    swa = together("limit", "pristine", "chunk fails", 12, fit=False)
    full = together("limit", "patched", "chunk fails", 112, False, 186_368, FULL)
    fits = together("limit", "patched", "chunk fits", 111, True, full=FULL)
    assert "finds full" not in only(swa, fits).note
    told = "Where 111 fit, it is the full-attention pool that the next one finds full"
    assert f"{told}, with 50% to 50% of the SWA pool" in only(swa, fits, full).note


def test_counts_the_batches_that_gave_up_with_dead_tokens():
    row = cells(
        only(
            load("pristine", [(0, 0), (256, 0), (512, 384)]),
            load("patched", [(0, 0)], retracted=4),
        )
    )
    assert row["gave up with dead SWA"] == "2 of 3 -> 0 of 1"
    assert row["owned"] == "256 -> 0"
    assert row["locked"] == "128 -> 0"
    assert row["retracted"] == "20 -> 2"
    assert row["finished"] == "50"


def test_no_batch_that_gave_up_is_no_division_by_zero():
    row = cells(short(load("pristine", [(0, 256)]), load("patched", [])))
    assert row["gave up with dead SWA"] == "1 of 1 -> 0 of 0"
    assert row["locked"] == "256 -> 0"


def test_an_overload_tells_what_ended_the_scheduler():
    row = cells(only(overload("pristine", "OSError: no copy"), overload("patched", "")))
    assert row["scheduler"] == "OSError -> runs on"
    assert (row["host copy"], row["finished"]) == ("without", "4")


def test_cost_is_compared_by_its_medians():
    rows = cost("pristine", 100), cost("patched", 150), cost("v0.5.18", 200)
    row = cells(only(*rows))
    assert row["patched"] == "150, 150, 450"
    assert row["patched / as released"] == "1.50"
    assert row["patched / v0.5.18"] == "0.75"
    assert cells(short(*rows)) == {
        "base": "v0.5.16",
        "median": "100 -> 150",
        "mean": "100 -> 150",
        "slowest": "300 -> 450",
        "patched / as released": "1.50",
        "patched / v0.5.18": "0.75",
    }


def test_the_reference_is_compared_with_itself():
    rows = cost("pristine", 100, base="v0.5.18"), cost("patched", 90, base="v0.5.18")
    assert cells(only(*rows))["patched / v0.5.18"] == "0.90"


def test_cost_without_a_reference_has_no_ratio():
    rows = cost("pristine", 100), cost("patched", 90)
    assert cells(only(*rows))["patched / v0.5.18"] == "?"


def test_the_check_costs_more_per_request_where_it_reclaims():
    row = cells(only(check_cost("pristine", 21), check_cost("patched", 60)))
    assert (row["fits"], row["short"], row["again"]) == ("20", "21 -> 60", "28")
    assert (row["reclaim"], row["scan"], row["reclaimed"]) == ("5.0", "1.0", "500")


def test_markdown_has_a_ruler_per_column_and_numbers_to_the_right():
    lines = tables.markdown(only(growth())).splitlines()
    assert lines[0].startswith("| base | cache | outcome | SWA peak |")
    assert lines[1] == "| :-- | :-- | :-- | --: | --: | --: |"


def test_the_docs_hold_the_readme_s_tables_and_the_pictures():
    texts = docs.texts(every_figure())
    assert set(texts) == {"figures.md"} | {
        f"{name}-short.md" for name in ("growth", "capacity", "retraction", "cost")
    }
    for name in ("swa-growth", "requests", "retractions", "cost"):
        assert f"]({name}.svg)" in texts["figures.md"]


def test_the_docs_show_no_picture_that_is_not_drawn():
    capacity = together("capacity", "pristine", "chunk 12", 12, fit=False)
    texts = docs.texts(found(capacity, growth(cache="radix")))
    assert ".svg" not in texts["figures.md"]


COMMITTED = bases.data_root() / "docs" / "figures"


def test_the_docs_are_made_from_the_committed_results():
    texts = docs.texts(form.load(COMMITTED / docs.RESULTS))
    assert {path.name for path in COMMITTED.glob("*.md")} == set(texts)
    for name, text in texts.items():
        assert (COMMITTED / name).read_text(encoding="utf-8") == text, name


def test_the_docs_show_the_pictures_that_there_are():
    names = {path.stem for path in COMMITTED.glob("*.svg")}
    assert names == {"requests", "retractions", "swa-growth", "cost"}
    for name in names:
        assert (COMMITTED / f"{name}.png").stat().st_size > 1_000
