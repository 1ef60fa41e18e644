"""Each defect of a patch or of an added file is found, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from factories import write_files
from sound import (
    FIRST,
    FIX,
    FIXES,
    KIT,
    LOCK,
    REFS,
    RUNS,
    STATUS,
    TEST,
    TEST_SOURCE,
    Sound,
    with_clock,
    with_first,
    with_fix,
    with_source,
    with_tests,
)

from dspark_patches.maintain import added

REGISTERED = TEST_SOURCE.replace(b"est_time=4, ", b"est_time=4 * 1, ")


@pytest.fixture
def clone(tmp_path: Path) -> Sound:
    return Sound(tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (with_fix(author="A <a@b>"), f"{FIX}:2: the author is A <a@b>"),
        (with_fix(subject="x " * 36 + "y"), f"{FIX}:4: the subject has 73 characters"),
        (with_fix(body="It ticked."), f"{FIX}:5: the patch does not say why"),
        (with_fix(body=""), f"{FIX}:5: the patch does not say why"),
        (
            with_fix(trailers=(FIXES, RUNS)),
            f"{FIX}:9: there is no single, valid Upstream-Status",
        ),
        (
            with_fix(trailers=(FIXES, ("Upstream-Status", "Pending"), RUNS)),
            f"{FIX}:9: there is no single, valid Upstream-Status",
        ),
        (
            with_fix(trailers=(("Upstream-Status", "Soon [x]"), FIXES, RUNS)),
            f"{FIX}:8: there is no single, valid Upstream-Status",
        ),
        (
            with_fix(trailers=(("Upstream-Status", "Local [ ]"), FIXES, RUNS)),
            f"{FIX}:8: there is no single, valid Upstream-Status",
        ),
        (with_fix(trailers=(STATUS, RUNS)), f"{FIX}:8: a fix names no report"),
        (
            with_fix(trailers=(("Upstream-Status", "Pending [no reporter]"), RUNS)),
            f"{FIX}:8: a fix names no report",
        ),
        (
            with_first(STATUS, FIXES, RUNS),
            f"{FIRST}:9: a patch of tests fixes nothing",
        ),
        (with_tests(), f"{FIX}:9: no regression test is named"),
        (with_tests(TEST[:-3]), f"{FIX}:10: {TEST[:-3]} names no test"),
        (with_tests("x.py::T"), f"{FIX}:10: the series does not add x.py"),
        (with_tests(TEST, f"{TEST}::No"), f"{FIX}:11: {TEST}::No does not exist"),
        (
            with_tests(f"{TEST}::TestClock.test_no"),
            f"{FIX}:10: {TEST}::TestClock.test_no does not exist",
        ),
        (
            with_clock(b"tick once \n"),
            f"{FIX}:18: an added line ends with white space",
        ),
        (
            with_clock(b"tick\n" * 60),
            f"{FIX}:0: the fix adds and removes 61 lines, more than 60",
        ),
        (
            with_source(REGISTERED),
            f"{TEST}:9: the test is not registered with literal values",
        ),
        (
            with_source(TEST_SOURCE.replace(b"register_cpu_ci(", b"register(")),
            f"{TEST}:0: the test is not registered with literal values",
        ),
        (
            with_source(TEST_SOURCE.replace(b'"base-a-test-cpu"', b'"stage-a"')),
            f"{TEST}:9: the test is not registered with literal values",
        ),
        (
            with_source(TEST_SOURCE + b"x = 1\n"),
            f"{TEST}:28: the file does not end with the unittest main guard",
        ),
        (
            with_source(b"register_cpu_ci()\n", KIT),
            f"{KIT}:1: a registered test stands inside the package",
        ),
        (
            with_source(b"-" * 100_000 + b"1\n", KIT),
            f"{KIT}:0: cannot be parsed: it nests too deep",
        ),
        (
            with_source(b"kit = (\n", KIT),
            f"{KIT}:1: cannot be parsed: '(' was never closed",
        ),
        (
            lambda clone: (clone.root / KIT).write_bytes(b"kit = 2\n"),
            f"{FIRST}:11: {KIT} is not what the clone has",
        ),
        (
            lambda clone: (clone.root / KIT).unlink(),
            f"{FIRST}:11: {KIT} is not in the clone",
        ),
        (
            lambda clone: write_files(clone.root, {"test/registered/more.py": b""}),
            "test/registered/more.py:0: no series adds this file",
        ),
        (
            lambda clone: (clone.folder / "lock.toml").unlink(),
            f"{LOCK}:0: v0.5.16 has no lock",
        ),
        (
            lambda clone: (clone.folder / "lock.toml").write_bytes(b"[wheel]\n"),
            f"{LOCK}:0: cannot be read as a lock "
            "(Object missing required field `file` - at `$.wheel`)",
        ),
        (
            lambda clone: write_files(clone.folder, {"0003-x.patch.orig": b""}),
            "patches/v0.5.16/0003-x.patch.orig:0: does not belong here; "
            "expected NNNN-SLUG.patch",
        ),
    ],
)
def test_a_defect_is_found_alone(
    clone: Sound, change: Callable[[Sound], None], said: str
) -> None:
    change(clone)
    assert clone.said() == [said]


@pytest.mark.parametrize("test", ["TestClock.test_ticks", "TestShared.test_anything"])
def test_inherited_tests_exist(clone: Sound, test: str) -> None:
    with_tests(f"{TEST}::{test}")(clone)
    assert clone.check() == ()


def test_a_class_that_inherits_from_itself_ends(clone: Sound) -> None:
    write_files(clone.root, {TEST: b"class A(B):\n    pass\n\nclass B(A):\n    pass\n"})
    assert added.missing(added.read(clone.root), f"{TEST}::A.test_x") == ""


def test_other_files_than_python_may_be_added(clone: Sound) -> None:
    with_source(b"no python\n", "test/registered/data.txt")(clone)
    assert clone.check() == ()


@pytest.mark.parametrize(
    "change", [with_fix(subject="x " * 35 + "yy"), with_clock(b"tock\n" * 59)]
)
def test_what_just_fits_is_no_finding(
    clone: Sound, change: Callable[[Sound], None]
) -> None:
    change(clone)
    assert clone.check() == ()


@pytest.mark.parametrize(
    "trailers",
    [
        (STATUS, FIXES, RUNS),
        (STATUS, REFS, RUNS),
        (STATUS, FIXES, REFS, RUNS),
        (("Upstream-Status", "Pending [found by a test; there is no report]"), RUNS),
    ],
)
def test_a_fix_names_a_report_or_says_that_there_is_none(
    clone: Sound, trailers: tuple[tuple[str, str], ...]
) -> None:
    with_fix(trailers=trailers)(clone)
    assert clone.check() == ()


def test_a_large_fix_is_only_a_warning(clone: Sound) -> None:
    with_clock(b"tick\n" * 60)(clone)
    assert [finding.level for finding in clone.check()] == ["warning"]


def test_a_test_patch_without_a_control_is_found(clone: Sound) -> None:
    (clone.folder / "controls" / "0001-twice.diff").unlink()
    (finding,) = clone.check()
    assert finding.what == "nothing shows that the tests can fail"
    assert finding.hint.startswith("add controls/0001-patch.diff")


def test_a_test_whose_file_is_gone_does_not_exist(clone: Sound) -> None:
    with_tests(TEST)(clone)
    (clone.root / TEST).unlink()
    assert f"{FIX}:10: {TEST} does not exist" in clone.said()
