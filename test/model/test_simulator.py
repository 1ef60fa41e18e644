"""The simulator on the releases: the reported figures, and any order of events."""

from __future__ import annotations

import pytest

from bench import figures
from bench.results import PATCHED, RELEASED
from bench.worker import TaskFailed, start
from dspark_patches.model import releases

TAGS = [release.tag for release in releases.with_series()]
UNEVICTED = ("v0.5.16", "v0.5.17")


@pytest.fixture(scope="session")
def workers(cases):
    """A process per tree, for as long as its test."""
    return lambda tag, tree: start(cases.where.tree(tag, tree), [])


@pytest.fixture(scope="module")
def worker(workers):
    """One in the newest release's patched tree, for tasks of no time."""
    with workers(TAGS[-1], PATCHED) as process:
        yield process


@pytest.mark.parametrize("tag", UNEVICTED)
def test_a_release_loses_one_long_generation(workers, tag):
    node = figures.node(figures.REPORTED_FULL)
    with workers(tag, RELEASED) as worker:
        record, _ = worker.run(dict(type="long_generation", node=node))
    assert record["outcome"] == "aborted"
    assert record["swa_peak"] == node["swa_size"] == 77_824
    # Lost when committed length and reserve pass the pool.
    reserve, prompt_len = 12, 8
    lost_from = node["swa_size"] - reserve - prompt_len
    assert lost_from <= record["output_tokens"] <= node["swa_size"] - prompt_len


@pytest.mark.parametrize("tag", TAGS)
def test_a_patched_release_generates_100000_tokens(workers, tag):
    node = figures.node(figures.REPORTED_FULL)
    with workers(tag, PATCHED) as worker:
        record, _ = worker.run(dict(type="long_generation", node=node))
    assert record["outcome"] == "finished"
    assert record["output_tokens"] == 100_000
    assert record["swa_peak"] <= 1_024


@pytest.mark.parametrize("tag", TAGS)
def test_any_order_of_events_on_patched_releases(cases, tag):
    (outcome,) = cases.run(tag, PATCHED, "test_decode_machine.py")
    assert outcome.status == "passed", outcome


@pytest.mark.parametrize(
    ("tag", "checks", "defect"),
    [
        ("v0.5.16", "handoff", "no attribute 'prepare_for_decode'"),
        ("v0.5.16", "clock", "its clock shows 0 after 1 decode steps"),
        ("v0.5.16", "bound", "SWA given back up to"),
        ("v0.5.16", "retraction", "retracted for"),
        ("v0.5.18", "clock,bound,retraction", "retracted for"),
        ("v0.5.18", "handoff", "no attribute 'prepare_for_decode'"),
        ("v0.5.23", "clock,bound,retraction", "retracted for"),
        ("v0.5.23", "handoff,backup", "NotImplementedError"),
    ],
)
def test_the_machine_finds_the_known_defects(cases, monkeypatch, tag, checks, defect):
    monkeypatch.setenv("DECODE_MACHINE_CHECKS", checks)
    (outcome,) = cases.run(tag, RELEASED, "test_decode_machine.py")
    assert outcome.status in ("failed", "error")
    assert defect in str(outcome.faults)


@pytest.mark.parametrize("tag", ("v0.5.16", "v0.5.23"))
def test_what_forwards_read_is_seen(cases, tag):
    outcomes = cases.run(tag, PATCHED, "test_kv.py")
    assert len(outcomes) == 5
    assert {outcome.status for outcome in outcomes} == {"passed"}, outcomes


def test_the_same_seed_gives_the_same_run(worker):
    task = dict(
        type="load",
        decode_steps=200,
        seed=3,
        node=figures.node(32_768, page_size=16, max_reqs=32, max_context_len=4_096),
    )
    first, again = (worker.run(task)[0] for _ in range(2))
    assert first == again


@pytest.mark.parametrize(
    ("accepted", "steps"), [(1, 600), (6, 100), ((1, 2, 6), 201)], ids=str
)
def test_what_is_accepted_can_be_told(worker, accepted, steps):
    # The first token is the prefill's. Under overlap a step would run ahead.
    task = dict(type="long_generation", max_new_tokens=601, accepted=accepted)
    node = figures.node(32_768, page_size=16, overlap=False)
    record, _ = worker.run(task | dict(node=node))
    assert record["steps"] == steps


@pytest.mark.parametrize("accepted", [0, 7, (), (3, 7)], ids=str)
def test_no_more_is_accepted_than_was_drafted(worker, accepted):
    task = dict(type="long_generation", accepted=accepted)
    with pytest.raises(TaskFailed, match="cannot be accepted"):
        worker.run(task | dict(node=figures.node(32_768)))


def test_one_more_than_the_most_that_fit_does_not(worker):
    sizes = figures.node(4_096, page_size=16, max_context_len=512)
    task = dict(type="capacity", requests=(2,), max_new_tokens=200, prompt_len=64)
    record, _ = worker.run(task | dict(node=sizes | dict(swa_size=1_024)))
    assert record["together"]["2"]["fit"] and not record["fails"]["fit"]
    assert record["most"] >= 2
    assert record["fails"]["swa_peak"] > 900


def test_both_trees_retract_alike_where_nothing_is_dead(workers, worker):
    task = dict(type="retract_loop", cache="chunk", page_size=64, requests=32)
    with workers(TAGS[-1], RELEASED) as released:
        records = [each.run(task)[0] for each in (released, worker)]
    assert records[0]["retracted"] == records[1]["retracted"] > 0
