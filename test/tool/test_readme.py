"""The README's generated parts are filled, compared and refused."""

from __future__ import annotations

import pytest

from dspark_patches import bases, readme
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


def test_tables_the_series_with_the_fix_s_own_words():
    known = [bases.find("v0.5.16"), bases.find("v0.5.18")]
    lines = readme.series_table(known).splitlines()
    assert lines[0] == "| | patch | v0.5.16 | v0.5.18 |"
    owner = "Give decode bookkeeping of every spec algorithm one owner"
    assert lines[3] == f"| 0002 | {owner} | fix | test |"
