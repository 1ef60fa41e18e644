"""Every patch of every series, red, then green; the extra tests too, of some or all."""

from __future__ import annotations

import os

import extra
import pytest

from dspark_patches.model import releases, series
from dspark_patches.proof import verify

# Releases share the cores where the tests do.
JOBS = 1 if "PYTEST_XDIST_WORKER" in os.environ else verify.Options().jobs
# The extra tests take half an hour of all releases, and neighbours differ little.
WIDE = ("v0.5.16", "v0.5.18", "v0.5.23")
WHOLE = "DSPARK_WHOLE_PROOF" in os.environ


@pytest.mark.parametrize(
    "release", releases.with_series(), ids=lambda release: release.tag
)
def test_every_patch_is_red_then_green(release):
    load = extra.load if WHOLE or release.tag in WIDE else series.load
    options = verify.Options(jobs=JOBS)
    proven = verify.verify([release], options, print, load=load)
    assert proven.findings == ()
    judged = [result.patch for result in proven.results]
    assert judged == [patch.name for patch in load(release).patches]
