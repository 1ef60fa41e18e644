"""Results of the bench: merged, saved, tabled; and what the docs show of them."""

from __future__ import annotations

import msgspec
import pytest

from dspark_patches import bases
from dspark_patches.bench import docs, figures, results, tables
from dspark_patches.bench.results import Host, Release, Results, Row
from dspark_patches.errors import BadInput

RELEASE = Release(version="0.5.16", wheel_sha256="a" * 64, lock_blob="b" * 40)
HOST = Host(python="3.11.7", torch="2.13.0", platform="Linux x86_64")


def growth(base="v0.5.16", tree="pristine", cache="chunk", peak=77_824) -> Row:
    record = dict(
        steps=10,
        output_tokens=77_811,
        outcome="aborted",
        swa_peak=peak,
        full_peak=peak,
        swa_samples=[[0, 256], [3_000, 3_072], [4_000, 4_096]],
    )
    task = dict(node=figures.node(figures.REPORTED_FULL), seed=0)
    return row("growth", base, tree, cache, record, task)


def row(figure, base, tree, name, record, task) -> Row:
    return Row(
        figure=figure,
        base=base,
        tree=tree,
        name=name,
        task=task,
        record=record,
        cpu_seconds=1.5,
    )


def found(*rows: Row, release: Release = RELEASE) -> Results:
    return Results(
        form=results.FORM,
        tool="1",
        host=HOST,
        releases={row.base: release for row in rows},
        rows=rows,
    )


def test_saves_what_it_loads_one_row_a_line(tmp_path):
    kept = found(growth(), growth(tree="patched"))
    path = tmp_path / "results.json"
    path.write_bytes(results.save(kept))
    assert results.load(path) == kept
    assert sum(b'"figure"' in line for line in path.read_bytes().splitlines()) == 2


@pytest.mark.parametrize("text", ["", "{}", '{"form": 1, "more": 2}'])
def test_refuses_what_is_no_result(tmp_path, text):
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(BadInput, match="cannot be read as results"):
        results.load(path)


def test_refuses_another_form(tmp_path):
    path = tmp_path / "results.json"
    other = msgspec.structs.replace(found(growth()), form=results.FORM + 1)
    path.write_bytes(results.save(other))
    with pytest.raises(BadInput, match=f"this tool reads {results.FORM}"):
        results.load(path)


def test_a_new_row_takes_the_place_of_the_old_one():
    old = found(growth(peak=1), growth(cache="radix", peak=2))
    merged = results.merged(old, found(growth(peak=3)))
    assert [row.record["swa_peak"] for row in merged.rows] == [3, 2]


def test_rows_of_files_that_changed_are_dropped():
    changed = msgspec.structs.replace(RELEASE, lock_blob="c" * 40)
    old = found(growth(), growth(base="v0.5.18"))
    merged = results.merged(old, found(growth(tree="patched"), release=changed))
    assert [(row.base, row.tree) for row in merged.rows] == [
        ("v0.5.16", "patched"),
        ("v0.5.18", "pristine"),
    ]
    assert merged.releases["v0.5.16"] == changed


def test_orders_bases_by_version_trees_and_numbers_by_size():
    names = ["chunk 12", "chunk 100", "chunk 11"]
    rows = [growth("v0.5.9", cache=name) for name in names]
    rows += [growth("v0.5.16", tree) for tree in ("v0.5.18", "patched", "pristine")]
    ordered = results.merged(found(), found(*reversed(rows))).rows
    assert [row.name for row in ordered[:3]] == ["chunk 11", "chunk 12", "chunk 100"]
    trees = [row.tree for row in ordered[3:]]
    assert trees == ["pristine", "patched", "v0.5.18"]


def test_tables_growth_with_its_steady_range():
    (table,) = tables.tables(found(growth()))
    assert table.rows == (
        (
            "v0.5.16",
            "pristine",
            "chunk",
            "aborted",
            "77,811",
            "10",
            "77,824",
            "3,072 to 3,072",
        ),
    )
    assert "77,824 SWA tokens" in table.note
    lines = tables.markdown(table).splitlines()
    assert lines[1].count("---") == len(table.header)


def test_the_swa_pool_is_a_tenth_in_whole_pages():
    assert figures.node(figures.REPORTED_FULL)["swa_size"] == 77_824
    assert figures.node(figures.CAPACITY_FULL)["swa_size"] == 372_736


COMMITTED = bases.data_root() / "docs" / "figures"


def test_the_docs_are_made_from_the_committed_results():
    texts = docs.texts(results.load(COMMITTED / docs.RESULTS))
    assert {path.name for path in COMMITTED.glob("*.md")} == set(texts)
    for name, text in texts.items():
        assert (COMMITTED / name).read_text(encoding="utf-8") == text, name


def test_the_docs_show_the_pictures_that_there_are():
    names = {path.name for path in COMMITTED.glob("*.svg")}
    assert names == {"requests.svg", "retractions.svg", "swa-growth.svg"}
    for name in names:
        assert (COMMITTED / name).with_suffix(".png").stat().st_size > 1_000
