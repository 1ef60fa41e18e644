"""Trailers say of each number what is recorded of it, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from factories import REFERENCES, write_files
from sound import (
    FIRST,
    FIX,
    FIXES,
    REFS,
    RUNS,
    STATUS,
    TABLE,
    Sound,
    with_first,
    with_fix,
)

from dspark_patches.maintain import lint
from dspark_patches.model import releases

UNKNOWN = "is not recorded"


@pytest.fixture
def clone(tmp_path: Path) -> Sound:
    return Sound(tmp_path)


def status(text: str) -> tuple[str, str]:
    return "Upstream-Status", f"Pending [{text}]"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            with_fix(trailers=(STATUS, ("Fixes", "sgl-project/sglang#2"), RUNS)),
            f"{FIX}:9: Fixes names sgl-project/sglang#2, which is a pull request",
        ),
        (
            with_fix(trailers=(STATUS, ("Fixes", "sgl-project/sglang#3"), RUNS)),
            f"{FIX}:9: sgl-project/sglang#3 {UNKNOWN}",
        ),
        (
            with_fix(trailers=(STATUS, FIXES, ("Refs", "sgl-project/sglang#12"), RUNS)),
            f"{FIX}:10: sgl-project/sglang#12 {UNKNOWN}",
        ),
        (
            with_fix(trailers=(STATUS, ("Refs", "somebody/sglang#1"), RUNS)),
            f"{FIX}:9: somebody/sglang#1 {UNKNOWN}",
        ),
        (
            with_first(STATUS, ("Refs", "sgl-project/sglang#3"), RUNS),
            f"{FIRST}:9: sgl-project/sglang#3 {UNKNOWN}",
        ),
        (
            with_fix(trailers=(status("see sgl-project/sglang#3"), FIXES, RUNS)),
            f"{FIX}:8: sgl-project/sglang#3 {UNKNOWN}",
        ),
        (
            with_fix(trailers=(STATUS, FIXES, ("Closes", "somebody/sglang#1"), RUNS)),
            f"{FIX}:10: somebody/sglang#1 {UNKNOWN}",
        ),
        (
            with_fix(trailers=(STATUS, ("Fixes", "#1"), RUNS)),
            f"{FIX}:9: Fixes does not name OWNER/NAME#NUMBER",
        ),
        (
            with_fix(trailers=(STATUS, ("Refs", "sgl-project/sglang#1 too"), RUNS)),
            f"{FIX}:9: Refs does not name OWNER/NAME#NUMBER",
        ),
        (
            lambda clone: (clone.root / TABLE).unlink(),
            f"{TABLE}:0: not a regular file",
        ),
        (
            lambda clone: write_files(clone.root, {TABLE: b'["a/b#1"]\n'}),
            f"{TABLE}:0: cannot be read as the table of references "
            "(Object missing required field `kind` - at `$[...]`)",
        ),
        (
            lambda clone: write_files(
                clone.root, {TABLE: REFERENCES.replace(b"sglang#2", b"sglang#02")}
            ),
            f"{TABLE}:0: cannot be read as the table of references (Expected `str` "
            "matching regex '^[\\\\w.-]+/[\\\\w.-]+#[1-9]\\\\d*$' - at `key` in `$`)",
        ),
    ],
)
def test_a_defect_is_found_alone(
    clone: Sound, change: Callable[[Sound], None], said: str
) -> None:
    change(clone)
    assert clone.said() == [said]


@pytest.mark.parametrize(
    "trailers",
    [
        (STATUS, FIXES, REFS, ("Refs", "sgl-project/sglang#1"), RUNS),
        (status("as sgl-project/sglang#2 and #3"), FIXES, RUNS),
        (STATUS, FIXES, ("Link", "https://example.invalid/1"), RUNS),
    ],
)
def test_what_is_recorded_is_no_finding(
    clone: Sound, trailers: tuple[tuple[str, str], ...]
) -> None:
    with_fix(trailers=trailers)(clone)
    assert clone.check() == ()


@pytest.mark.parametrize(
    "change",
    [
        (b"pull request", b"discussion"),
        (b'"reports"', b'"hearsay"'),
        (b"title", b"headline"),
        (b"Tick once", b"\xff"),
        (b'["sgl', b'["sgl-project/sglang#1"]\n["sgl'),
    ],
)
def test_a_table_of_another_form_is_refused(
    tmp_path: Path, change: tuple[bytes, bytes]
) -> None:
    write_files(tmp_path, {"references.toml": REFERENCES.replace(*change)})
    with pytest.raises(lint.Malformed, match="^references.toml: cannot be read"):
        lint.load_references(tmp_path / "references.toml")


def test_our_own_table_can_be_read() -> None:
    known = lint.load_references(releases.data_root() / TABLE)
    assert known["sgl-project/sglang#36140"].kind == "issue"
    assert known["sgl-project/sglang#33805"].kind == "pull request"
