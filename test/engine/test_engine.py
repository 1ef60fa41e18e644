"""A sample of the loads with the schedulers of some releases; run.py serves them all."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.place import place
from bench.results import PATCHED, RELEASED

sys.path.insert(0, str(Path(__file__).parent))

from engine_runs import children, matrix, tables  # noqa: E402

# One in which nothing was evicted while decoding, and the newest.
SAMPLE = ("v0.5.16", "v0.5.23")


@pytest.fixture(scope="module")
def trees():
    with place() as where:
        yield where


@pytest.mark.parametrize("tag", SAMPLE)
def test_patched_schedulers_read_right_kv_and_retract_over_nothing_dead(trees, tag):
    tree = trees.tree(tag, PATCHED)
    answers = list(children.answers(tree, matrix.sample()))
    noticed = [a for a in answers if a["task"]["sabotage"]]
    served = [a for a in answers if not a["task"]["sabotage"]]
    assert [tables.trouble(answer) for answer in served] == [""] * len(served)
    for answer in served:
        assert tables.dirty(answer["record"], page_size=1) == []
        assert answer["record"]["read"] > 10_000
    assert noticed
    for answer in noticed:
        assert answer["record"]["died"].startswith("WrongKV"), answer["task"]["name"]


def test_the_measure_sees_what_a_released_scheduler_leaves(trees):
    tree = trees.tree(SAMPLE[0], RELEASED)
    tasks = [matrix.task("chunk", cache="chunk"), matrix.task("unified")]
    chunk, unified = (answer["record"] for answer in children.answers(tree, tasks))
    owned = [out["owned"] for out in tables.dirty(chunk, page_size=1)]
    locked = [out["locked"] for out in tables.dirty(unified, page_size=1)]
    # Of 400 slots.
    assert max(owned) > 200 and max(locked) > 100
