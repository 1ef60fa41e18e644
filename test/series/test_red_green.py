"""Every patch of every series, the wide matrix included: red, then green."""

from __future__ import annotations

import os

import pytest
import wide

from dspark_patches import bases, verify
from dspark_patches.report_verify import verify_reporter

# Bases share the cores where the tests do.
JOBS = 1 if "PYTEST_XDIST_WORKER" in os.environ else verify.Options().jobs


@pytest.mark.parametrize("base", bases.with_series(), ids=lambda base: base.tag)
def test_every_patch_is_red_then_green(base):
    with verify_reporter("text") as reporter:
        proven = verify.verify(
            [base], verify.Options(jobs=JOBS), reporter, load=wide.load
        )
    assert proven.findings == ()
    judged = [result.patch for result in proven.results]
    assert judged == [patch.name for patch in wide.load(base).patches]
