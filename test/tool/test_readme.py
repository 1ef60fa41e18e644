"""The README's generated parts are filled, compared and refused."""

from __future__ import annotations

import bench_rows
import msgspec
import pytest

from dspark_patches import bases, readme
from dspark_patches.bench import figures, place, results
from dspark_patches.errors import BadInput

README = "# title\n<!-- begin {name} -->\n{inside}<!-- end {name} -->\nrest\n"


def test_fills_a_part_from_docs_and_keeps_the_rest(tmp_path):
    (tmp_path / "figures.md").write_text("| a |\n\n\n")
    text = README.format(name="figures", inside="stale\n")
    filled = readme.fill(text, [], tmp_path)
    assert filled == README.format(name="figures", inside="| a |\n")
    assert readme.fill(filled, [], tmp_path) == filled


def test_says_which_part_is_out_of_date_and_where(tmp_path):
    (tmp_path / "figures.md").write_text("new\n")
    (tmp_path / "kept.md").write_text("same\n")
    text = README.format(name="kept", inside="same\n") + README.format(
        name="figures", inside="old\n"
    )
    (finding,) = readme.check(text, [], tmp_path)
    assert (finding.line, finding.what) == (7, "the part 'figures' is out of date")


def test_refuses_a_part_without_a_source(tmp_path):
    with pytest.raises(BadInput, match="'nowhere'"):
        readme.fill(README.format(name="nowhere", inside=""), [], tmp_path)


def test_refuses_a_part_that_is_no_text(tmp_path):
    (tmp_path / "figures.md").write_bytes(b"\xff")
    with pytest.raises(BadInput, match="'figures'"):
        readme.fill(README.format(name="figures", inside=""), [], tmp_path)


def test_says_what_makes_a_part_that_is_not_there(tmp_path):
    with pytest.raises(BadInput) as raised:
        readme.fill(README.format(name="figures/cost", inside=""), [], tmp_path)
    assert "dspark-patches bench --readme" in raised.value.next_step


def test_says_whose_figures_are_missing_or_of_other_patches(machine, tmp_path):
    folder = tmp_path / "figures"
    folder.mkdir()
    current = place.release(machine.base)
    known = [machine.base, machine.later]
    path = folder / "results.json"
    rows = [
        bench_rows.row(figure, "v0.5.16", tree, *ROWS[figure])
        for figure in figures.NAMES
        for tree in results.TREES
    ]

    def findings(release):
        path.write_bytes(results.save(bench_rows.found(*rows, release=release)))
        return readme.check("", known, tmp_path)

    (finding,) = findings(current)
    assert finding.what == "the figures of v0.5.17 are missing or of other patches"
    (finding,) = findings(msgspec.structs.replace(current, series_blob="0" * 40))
    assert "figures of v0.5.16, v0.5.17 are" in finding.what
    assert "`dspark-patches bench v0.5.16 v0.5.17 --readme`" in finding.mend
    known.pop()
    assert findings(current) == ()
    rows.pop()
    (finding,) = findings(current)
    assert finding.what == "the figures of v0.5.16 are missing or of other patches"
    path.unlink()
    assert readme.check("", known, tmp_path) == ()


ROWS = {
    each.figure: (each.name, each.record, each.task)
    for each in (
        *bench_rows.every_figure().rows,
        bench_rows.together("capacity", "patched", "chunk 11", 11, fit=True),
        bench_rows.overload("patched", ""),
    )
}


def test_tables_the_series_with_the_fix_s_own_words():
    known = [bases.find("v0.5.16"), bases.find("v0.5.18")]
    lines = readme.series_table(known).splitlines()
    assert lines[0] == "| | patch | v0.5.16 | v0.5.18 |"
    owner = "Give decode bookkeeping of every spec algorithm one owner"
    assert lines[3] == f"| 0002 | {owner} | fix | test |"
