"""Trees for the tests of this folder, each made once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.place import Place, place
from dspark_patches.proof import runner
from dspark_patches.proof.outcomes import Outcome

CASES = Path(__file__).parent / "cases"


class Cases:
    """Runs the cases of this folder in a release's tree."""

    def __init__(self, where: Place) -> None:
        self.where = where

    def run(self, tag: str, tree: str, case: str) -> tuple[Outcome, ...]:
        root = self.where.tree(tag, tree)
        # A path that is absolute stays as it is below the tree.
        return runner.run(root, [os.fspath(CASES / case)])


@pytest.fixture(scope="session")
def cases() -> Iterator[Cases]:
    with place() as where:
        yield Cases(where)
