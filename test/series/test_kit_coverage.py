"""A series' own tests run every statement of the test kit that it adds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dspark_patches.maintain.derive import KIT
from dspark_patches.model import releases, series
from dspark_patches.proof import runner
from dspark_patches.trees import make as trees

COVER = Path(__file__).parent / "cases" / "kit_coverage.py"


@pytest.mark.parametrize(
    "release", releases.with_series(), ids=lambda release: release.tag
)
def test_the_kit_holds_nothing_that_no_test_runs(release, tmp_path):
    trees.make(release, trees.PATCHED, tmp_path)
    steps = []
    for patch in series.load(release).patches:
        paths = [s.path for s in patch.file.sections if s.kind == "add"]
        steps.append(
            {
                "kit": [path for path in paths if path.startswith(KIT)],
                "tests": [path for path in paths if path.startswith("test/")],
            }
        )
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", str(COVER), json.dumps(steps)],
        cwd=tmp_path,
        env=runner.environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=runner.TIMEOUT,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert json.loads(ran.stdout.splitlines()[-1]) == {}
