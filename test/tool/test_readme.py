"""The README's generated parts are filled, compared and refused."""

from __future__ import annotations

import json

import pytest

from dspark_patches.errors import BadInput
from dspark_patches.maintain import readme
from dspark_patches.model import lock, releases, series

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
    assert "scripts/bench --readme" in raised.value.next_step


def test_says_whose_figures_are_missing_or_of_other_patches(machine, tmp_path):
    current = readme.served(machine.release) | {"missing": []}
    known = [machine.release, machine.later]
    path = tmp_path / "figures" / "results.json"
    path.parent.mkdir()

    def findings(release):
        path.write_text(json.dumps({"releases": {"v0.5.16": release}}))
        return readme.check("", known, tmp_path)

    (finding,) = findings(current)
    assert finding.what == "the figures of v0.5.17 are missing or of other patches"
    (finding,) = findings(current | {"series_blob": "0" * 40})
    assert "figures of v0.5.16, v0.5.17 are" in finding.what
    assert "`scripts/bench v0.5.16 v0.5.17 --readme`" in finding.hint
    known.pop()
    assert findings(current) == ()
    (finding,) = findings(current | {"missing": ["growth"]})
    assert finding.what == "the figures of v0.5.16 are missing or of other patches"
    path.unlink()
    assert readme.check("", known, tmp_path) == ()


def test_figures_stay_valid_when_only_tests_of_a_series_change(machine, monkeypatch):
    before = readme.served(machine.release)
    blobs = lock.load(machine.release).result_blobs()
    assert {series.is_test(path) for path in blobs} == {True, False}
    for path in blobs:
        changed = blobs | {path: "0" * 40}
        monkeypatch.setattr(lock.Lock, "result_blobs", lambda self, c=changed: c)
        assert (readme.served(machine.release) == before) == series.is_test(path)


def test_tables_the_series_with_the_fix_s_own_words():
    known = [releases.find("v0.5.16"), releases.find("v0.5.18")]
    lines = readme.series_table(known).splitlines()
    assert lines[0] == "| | patch | v0.5.16 | v0.5.18 |"
    owner = "Give decode bookkeeping of every spec algorithm one owner"
    assert lines[3] == f"| 0002 | {owner} | fix | test |"
