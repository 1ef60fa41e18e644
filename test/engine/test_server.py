"""The whole server of one release under one load; server.py has all of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.place import place
from bench.results import PATCHED, RELEASED

sys.path.insert(0, str(Path(__file__).parent))

from engine_runs import service  # noqa: E402

# In the one before, a released decode node dies at its first forward.
SAMPLE = "v0.5.17"


@pytest.fixture(scope="module")
def trees():
    with place() as where:
        yield where


def test_a_patched_server_outlives_long_output_and_a_backup_that_cannot_be(trees):
    load = service.sample("DSPARK")
    seen = service.serve(trees.tree(SAMPLE, PATCHED), load)
    assert service.trouble(load, seen) == []
    whole, streamed = (
        next(said for said in crowd if said.status != 200) for crowd in seen.answers[1:]
    )
    assert (whole.status, streamed.error) == (503, "ServiceUnavailableError")
    assert whole.message == streamed.message
    assert "without a KV backup" in whole.message


def test_a_released_server_fills_its_window_pool_and_dies_over_the_backup(trees):
    load = service.sample("DSPARK")
    seen = service.serve(trees.tree(SAMPLE, RELEASED), load)
    assert seen.health == [200, 0]
    assert [said.status for said in seen.answers[0]] == [0]
    # Of 1200 slots.
    assert seen.swa_peak > 1100
    assert seen.error.startswith("NotImplementedError")
