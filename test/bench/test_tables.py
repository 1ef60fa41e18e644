"""What the tables of the bench say."""

from __future__ import annotations

import pytest

from bench import figures
from bench.results import Results, Row, natural
from bench.tables import table


def rows(figure, name="chunk", release="v0.5.16", task=(), **records):
    """A row per tree."""
    return [
        Row(
            figure=figure,
            name=name,
            release=release,
            tree=tree.replace("_", "."),
            task=dict(task),
            record=record,
            cpu_seconds=1.0,
        )
        for tree, record in records.items()
    ]


def cells(*found):
    """The one row of the one figure, by column."""
    results = Results(rows=list(found))
    head, _, line = table(results, found[0].figure).splitlines()
    return dict(zip(head[2:-2].split(" | "), line[2:-2].split(" | ")))


def growth(outcome, tokens, peak):
    samples = [[0, 256], [3_000, 3_072], [4_000, 4_096]]
    ended = dict(outcome=outcome, output_tokens=tokens, steps=10)
    return ended | dict(swa_peak=peak, full_peak=peak, swa_samples=samples)


ABORTED, FINISHED = growth("aborted", 77_811, 77_824), growth("finished", 100_000, 512)


def test_growth_stands_before_beside_after():
    assert cells(*rows("growth", released=ABORTED, patched=FINISHED)) == {
        "cache": "chunk",
        "release": "v0.5.16",
        "outcome": "aborted at 77,811 -> finished at 100,000",
        "SWA peak": "77,824 -> 512",
        "SWA steady": "none -> 3,072 to 3,072",
        "steps": "10",
    }


def test_a_tree_that_was_not_run_is_no_number():
    assert cells(*rows("growth", released=ABORTED))["SWA peak"] == "77,824 -> ?"


def test_releases_of_which_it_says_the_same_share_a_row():
    tags = ("v0.5.16", "v0.5.18", "v0.5.19", "v0.5.20", "v0.5.22")
    found = [
        row
        for tag in tags
        for name in ("chunk", "unified")
        for row in rows(
            "growth",
            name,
            tag,
            released=ABORTED if (tag, name) == ("v0.5.20", "unified") else FINISHED,
            patched=FINISHED,
        )
    ]
    text = table(Results(rows=found), "growth")
    lines = [line.split(" | ")[:2] for line in text.splitlines()[2:]]
    # v0.5.17 and v0.5.21 are not known to be alike.
    assert lines == [
        ["| chunk", "v0.5.16"],
        ["| chunk", "v0.5.18 to v0.5.20"],
        ["| chunk", "v0.5.22"],
        ["| unified", "v0.5.16"],
        ["| unified", "v0.5.18 to v0.5.19"],
        ["| unified", "v0.5.20"],
        ["| unified", "v0.5.22"],
    ]
    short = table(Results(rows=found), "growth", "chunk").splitlines()
    assert short[0].startswith("| release | outcome |")
    assert short[1] == "| :-- | --: | --: | --: | --: |"
    assert len(short) == 5


def test_capacity_ends_with_the_most_that_fit_and_why_no_more():
    node = dict(swa_size=100, full_size=1_000)
    fits = dict(fit=True, swa_peak=4)
    fails = dict(fit=False, swa_peak=100)
    row = cells(
        *rows(
            "capacity",
            task=dict(node=node),
            released=dict(
                together={"11": fits, "12": fails, "32": fails, "48": fails},
                most=11,
                fails=dict(full_peak=10),
            ),
            patched=dict(
                together=dict.fromkeys(("11", "12", "32", "48"), fits),
                most=111,
                fails=dict(full_peak=1_000),
            ),
        )
    )
    assert (row["11 requests"], row["12 requests"]) == ("0.04", "retracted -> 0.04")
    assert row["most that fit"] == "11 -> 111"
    assert row["full then"] == "SWA -> full-attention"


def load(dead, retracted=40):
    counts = dict(retracted=retracted, aborted=0, finished=100, reprefilled_tokens=9)
    samples = [dict(counts, decode_steps=2_000)]
    return dict(hit_rate=0.25, mean_running=20.0, dead_swa=dead, samples=samples)


def test_counts_the_batches_that_gave_up_with_dead_tokens_by_who_keeps_them():
    released, patched = load([(0, 0), (256, 0), (512, 384)]), load([(0, 0)], 4)
    row = cells(*rows("retraction", released=released, patched=patched))
    assert row["gave up with dead SWA"] == "2 of 3 -> 0 of 1"
    assert (row["owned"], row["locked"]) == ("256 -> 0", "128 -> 0")
    assert (row["retracted"], row["finished"]) == ("20 -> 2", "50")


def test_no_batch_that_gave_up_is_no_division_by_zero():
    row = cells(*rows("retraction", released=load([(0, 256)]), patched=load([])))
    assert row["gave up with dead SWA"] == "1 of 1 -> 0 of 0"
    assert row["locked"] == "256 -> 0"


def test_an_overload_tells_what_ended_the_scheduler():
    counts = dict.fromkeys(("finished", "aborted", "retracted"), 4)
    died, ran = counts | dict(died="OSError: no copy"), counts | dict(died="")
    row = cells(*rows("pd", "without", released=died, patched=ran))
    assert (row["scheduler"], row["finished"]) == ("OSError -> runs on", "4")


def times(**medians):
    return {
        name: dict(median=us * 1e3, mean=us * 1e3, max=us * 3e3)
        for name, us in medians.items()
    }


def test_cost_is_compared_by_its_medians():
    records = [times(nanoseconds=median) for median in (100, 150, 200)]
    trees = dict(zip(("released", "patched", "v0_5_18"), records))
    row = cells(*rows("cost", "256", **trees))
    assert (row["median"], row["slowest"]) == ("100 -> 150", "300 -> 450")
    assert (row["v0.5.18"], row["v0.5.23"]) == ("200", "")
    assert (row["patched / as released"], row["patched / v0.5.18"]) == ("1.50", "0.75")


def test_the_check_costs_more_per_request_where_it_reclaims():
    released = times(fits=20, short=21, short_again=28, reclaimed=0.5)
    patched = times(fits=20, short=60, short_again=28, reclaimed=0.5)
    task = dict(requests=8)
    row = cells(*rows("check", "8", task=task, released=released, patched=patched))
    assert (row["fits"], row["short"], row["again"]) == ("20", "21 -> 60", "28")
    assert (row["reclaim"], row["scan"], row["reclaimed"]) == ("5.0", "1.0", "500")


def test_the_retract_loop_is_compared_round_by_round_with_its_bound():
    released = dict(milliseconds=[10, 20, 40], retracted=[9, 9, 9])
    patched = dict(milliseconds=[11, 20, 60], retracted=[9, 9, 9])
    row = cells(*rows("retract_loop", released=released, patched=patched))
    assert (row["median"], row["retracted"]) == ("20.0", "9")
    assert (row["patched / as released"], row["bound"]) == ("1.10", "1.10")


def test_numbers_are_ordered_by_their_size():
    names = ["v0.5.9", "v0.5.16", "chunk 100", "chunk 12"]
    assert sorted(names, key=natural)[:2] == ["chunk 12", "chunk 100"]
    assert sorted(names, key=natural)[2:] == ["v0.5.9", "v0.5.16"]


@pytest.mark.parametrize("size", ["REPORTED_FULL", "CAPACITY_FULL"])
def test_the_swa_pool_is_a_tenth_in_whole_pages(size):
    expected = {"REPORTED_FULL": 77_824, "CAPACITY_FULL": 372_736}
    assert figures.node(getattr(figures, size))["swa_size"] == expected[size]
