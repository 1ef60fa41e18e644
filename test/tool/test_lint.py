"""Each defect of a patch or of an added file is found, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from factories import REFERENCES, write_files
from sound import (
    FIRST,
    FIX,
    FIXES,
    KIT,
    LOCK,
    REFS,
    RUNS,
    STATUS,
    TABLE,
    TEST,
    TEST_SOURCE,
    Sound,
    with_clock,
    with_first,
    with_fix,
    with_source,
    with_tests,
)

from dspark_patches.maintain import lint
from dspark_patches.model import releases

Change = Callable[[Sound], None]

NO_STATUS = "there is no single, valid Upstream-Status"
LITERAL = "the test is not registered with literal values"
UNKNOWN = "is not recorded"
BROKEN = "cannot be read as the table of references"
# Of our upstream's numbers, 1 is an issue, 2 a pull request, others are unknown.
SGLANG = "sgl-project/sglang"


@pytest.fixture
def clone(tmp_path: Path) -> Sound:
    return Sound(tmp_path)


def status(text: str) -> tuple[str, str]:
    return "Upstream-Status", text


def fixes(text: str) -> tuple[str, str]:
    return "Fixes", text


def refs(text: str) -> tuple[str, str]:
    return "Refs", text


def source(old: bytes, new: bytes) -> Change:
    return with_source(TEST_SOURCE.replace(old, new))


def files(**contents: bytes) -> Change:
    """Let files of the clone have these contents."""
    return lambda clone: write_files(clone.root, contents)


def gone(path: str) -> Change:
    return lambda clone: (clone.root / path).unlink()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (with_fix(author="A <a@b>"), f"{FIX}:2: the author is A <a@b>"),
        (with_fix(subject="x " * 36 + "y"), f"{FIX}:4: the subject has 73 characters"),
        (with_fix(body="It ticked."), f"{FIX}:5: the patch does not say why"),
        (with_fix(body=""), f"{FIX}:5: the patch does not say why"),
        (with_first(STATUS, FIXES, RUNS), f"{FIRST}:9: a patch of tests fixes nothing"),
        (
            with_first(STATUS, refs(f"{SGLANG}#3"), RUNS),
            f"{FIRST}:9: {SGLANG}#3 {UNKNOWN}",
        ),
        (with_tests(), f"{FIX}:9: no regression test is named"),
        (with_tests(TEST[:-3]), f"{FIX}:10: {TEST[:-3]} names no test"),
        (with_tests("x.py::T"), f"{FIX}:10: x.py does not exist"),
        (with_tests(TEST, f"{TEST}::No"), f"{FIX}:11: {TEST}::No does not exist"),
        (
            with_tests(f"{TEST}::TestClock.test_no"),
            f"{FIX}:10: {TEST}::TestClock.test_no does not exist",
        ),
        (with_clock(b"tick once \n"), f"{FIX}:18: an added line ends with white space"),
        (
            with_clock(b"tick\n" * 60),
            f"{FIX}:0: the fix adds and removes 61 lines, more than 60",
        ),
        (source(b"est_time=4", b"est_time=4 * 1"), f"{TEST}:9: {LITERAL}"),
        (source(b"register_cpu_ci(", b"register("), f"{TEST}:0: {LITERAL}"),
        (source(b'"base-a-test-cpu"', b'"stage-a"'), f"{TEST}:9: {LITERAL}"),
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
        (files(**{KIT: b"kit = 2\n"}), f"{FIRST}:11: {KIT} is not what the clone has"),
        (gone(KIT), f"{FIRST}:11: {KIT} is not in the clone"),
        (
            files(**{"test/registered/more.py": b""}),
            "test/registered/more.py:0: no series adds this file",
        ),
        (gone(LOCK), f"{LOCK}:0: v0.5.16 has no lock"),
        (
            files(**{LOCK: b"[wheel]\n"}),
            f"{LOCK}:0: cannot be read as a lock (Object missing required field `file` - at `$.wheel`)",
        ),
        (
            files(**{"patches/v0.5.16/0003-x.patch.orig": b""}),
            "patches/v0.5.16/0003-x.patch.orig:0: does not belong here; expected NNNN-SLUG.patch",
        ),
        (gone(TABLE), f"{TABLE}:0: not a regular file"),
        (
            files(**{TABLE: b'["a/b#1"]\n'}),
            f"{TABLE}:0: {BROKEN} (Object missing required field `kind` - at `$[...]`)",
        ),
    ],
)
def test_a_defect_is_found_alone(clone: Sound, change: Change, said: str) -> None:
    change(clone)
    assert clone.said() == [said]


@pytest.mark.parametrize(
    ("trailers", "said"),
    [
        ((FIXES, RUNS), f"9: {NO_STATUS}"),
        ((FIXES, status("Pending"), RUNS), f"9: {NO_STATUS}"),
        ((status("Soon [x]"), FIXES, RUNS), f"8: {NO_STATUS}"),
        ((status("Local [ ]"), FIXES, RUNS), f"8: {NO_STATUS}"),
        ((STATUS, RUNS), "8: a fix names no report"),
        ((status("Pending [no reporter]"), RUNS), "8: a fix names no report"),
        (
            (STATUS, fixes(f"{SGLANG}#2"), RUNS),
            f"9: Fixes names {SGLANG}#2, which is a pull request",
        ),
        ((STATUS, fixes(f"{SGLANG}#3"), RUNS), f"9: {SGLANG}#3 {UNKNOWN}"),
        ((STATUS, FIXES, refs(f"{SGLANG}#12"), RUNS), f"10: {SGLANG}#12 {UNKNOWN}"),
        ((STATUS, refs("somebody/sglang#1"), RUNS), f"9: somebody/sglang#1 {UNKNOWN}"),
        (
            (status(f"Pending [see {SGLANG}#3]"), FIXES, RUNS),
            f"8: {SGLANG}#3 {UNKNOWN}",
        ),
        ((STATUS, FIXES, ("Closes", "a/b#1"), RUNS), f"10: a/b#1 {UNKNOWN}"),
        ((STATUS, fixes("#1"), RUNS), "9: Fixes does not name OWNER/NAME#NUMBER"),
        (
            (STATUS, refs(f"{SGLANG}#1 too"), RUNS),
            "9: Refs does not name OWNER/NAME#NUMBER",
        ),
    ],
)
def test_a_defect_of_trailers_is_found_alone(clone: Sound, trailers, said: str) -> None:
    with_fix(trailers=trailers)(clone)
    assert clone.said() == [f"{FIX}:{said}"]


@pytest.mark.parametrize(
    "change",
    [
        with_tests(f"{TEST}::TestClock.test_ticks"),
        with_tests(f"{TEST}::TestShared.test_ticks"),
        with_source(b"no python\n", "test/registered/data.txt"),
        with_fix(subject="x " * 35 + "yy"),
        with_clock(b"tock\n" * 59),
        with_fix(trailers=(STATUS, REFS, RUNS)),
        with_fix(
            trailers=(status("Pending [found by a test; there is no report]"), RUNS)
        ),
        with_fix(trailers=(STATUS, FIXES, REFS, refs(f"{SGLANG}#1"), RUNS)),
        with_fix(trailers=(status(f"Pending [as {SGLANG}#2 and #3]"), FIXES, RUNS)),
        with_fix(trailers=(STATUS, FIXES, ("Link", "https://example.invalid/1"), RUNS)),
    ],
)
def test_what_is_sound_is_no_finding(clone: Sound, change: Change) -> None:
    change(clone)
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


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"pull request", b"discussion"),
        (b'"reports"', b'"hearsay"'),
        (b"title", b"headline"),
        (b"Tick once", b"\xff"),
        (b'["sgl', b'["sgl-project/sglang#1"]\n["sgl'),
        (b"sglang#2", b"sglang#02"),
    ],
)
def test_a_table_of_another_form_is_refused(tmp_path: Path, old: bytes, new: bytes):
    write_files(tmp_path, {"references.toml": REFERENCES.replace(old, new)})
    with pytest.raises(lint.Malformed, match=f"^references.toml: {BROKEN}"):
        lint.load_references(tmp_path / "references.toml")


def test_our_own_table_can_be_read() -> None:
    known = lint.load_references(releases.data_root() / TABLE)
    assert known["sgl-project/sglang#36140"].kind == "issue"
    assert known["sgl-project/sglang#33805"].kind == "pull request"
