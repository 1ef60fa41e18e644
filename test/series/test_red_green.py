"""Every patch of every series, the extra tests included: red, then green."""

from __future__ import annotations

import os

import extra
import pytest

from dspark_patches.model import releases
from dspark_patches.proof import verify
from dspark_patches.proof.verify_verb import Reporter

# Releases share the cores where the tests do.
JOBS = 1 if "PYTEST_XDIST_WORKER" in os.environ else verify.Options().jobs


@pytest.mark.parametrize(
    "release", releases.with_series(), ids=lambda release: release.tag
)
def test_every_patch_is_red_then_green(release):
    options = verify.Options(jobs=JOBS)
    with Reporter("text") as reporter:
        proven = verify.verify([release], options, reporter, load=extra.load)
    assert proven.findings == ()
    judged = [result.patch for result in proven.results]
    assert judged == [patch.name for patch in extra.load(release).patches]
