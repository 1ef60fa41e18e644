"""Results of the bench: saved, loaded and merged."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile

import msgspec
import pytest
from bench_rows import RELEASE, found, growth

from dspark_patches.bench import figures, form, place, results
from dspark_patches.errors import BadInput


def test_saves_what_it_loads_one_row_a_line(tmp_path):
    kept = found(growth(), growth(tree="patched"))
    path = tmp_path / "results.json"
    path.write_bytes(results.save(kept))
    assert form.load(path) == kept
    assert sum(b'"figure"' in line for line in path.read_bytes().splitlines()) == 2


@pytest.mark.parametrize("text", ["", "{}", '{"form": 1, "more": 2}'])
def test_refuses_what_is_no_result(tmp_path, text):
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(BadInput, match="cannot be read as results"):
        form.load(path)


def test_refuses_another_form(tmp_path):
    path = tmp_path / "results.json"
    other = msgspec.structs.replace(found(growth()), form=results.FORM + 1)
    path.write_bytes(results.save(other))
    with pytest.raises(BadInput, match=f"this tool reads {results.FORM}"):
        form.load(path)


def test_a_new_row_takes_the_place_of_the_old_one():
    old = found(growth(peak=1), growth(cache="radix", peak=2))
    merged = results.merged(old, found(growth(peak=3)))
    assert [row.record["swa_peak"] for row in merged.rows] == [3, 2]


def test_rows_of_files_that_changed_are_dropped():
    changed = msgspec.structs.replace(RELEASE, series_blob="c" * 40)
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


def test_the_swa_pool_is_a_tenth_in_whole_pages():
    assert figures.node(figures.REPORTED_FULL)["swa_size"] == 77_824
    assert figures.node(figures.CAPACITY_FULL)["swa_size"] == 372_736


def test_a_second_interruption_leaves_no_trees(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rmtree = shutil.rmtree

    def interrupted(*arguments, **options):
        os.kill(os.getpid(), signal.SIGINT)
        rmtree(*arguments, **options)

    with pytest.raises(KeyboardInterrupt), place.place(print):
        monkeypatch.setattr(shutil, "rmtree", interrupted)
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())
