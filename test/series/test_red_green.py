"""Every patch of every series, the wide matrix included: red, then green."""

from __future__ import annotations

import pytest
import wide

from dspark_patches import bases, verify
from dspark_patches.report_verify import verify_reporter


@pytest.mark.parametrize("base", bases.with_series(), ids=lambda base: base.tag)
def test_every_patch_is_red_then_green(base):
    with verify_reporter("text") as reporter:
        proven = verify.verify([base], verify.Options(), reporter, load=wide.load)
    assert proven.findings == ()
    numbers = [result.patch[:4] for result in proven.results]
    assert numbers == [f"{n:04d}" for n in range(1, len(numbers) + 1)]
