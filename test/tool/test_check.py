"""Everything that is wrong offline is found, all of it at once."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from factories import make_base, make_edit, make_mail, write_files, write_series

from dspark_patches import added, bases, check, cli, diff, lock, mail, series
from dspark_patches.findings import Finding

BASE = make_base()
CLOCK = "python/sglang/srt/clock.py"
KIT = "python/sglang/test/kits/clock_kit.py"
TEST = "test/registered/unit/spec/test_clock.py"
TEST_SOURCE = b'''\
"""The clock."""

import unittest

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.kits.clock_kit import Shared
from sglang.test.test_utils import CustomTestCase

register_cpu_ci(est_time=4, suite="base-a-test-cpu")


class Ticks:
    def test_ticks(self):
        self.assertTrue(True)


class TestClock(Ticks, CustomTestCase):
    def test_evicts(self):
        self.assertTrue(True)


class TestShared(Shared, CustomTestCase):
    pass


if __name__ == "__main__":
    unittest.main()
'''
STATUS = ("Upstream-Status", "Pending [not sent]")
FIXES = ("Fixes", "https://example.invalid/issues/1")
RUNS = ("Regression-Test", f"{TEST}::TestClock")
CONTROL = b"Ticks twice.\n\n" + make_edit(CLOCK, b"tick\n", b"tick tick\n").text


class Clone:
    """A clone with a sound series: a patch of tests with its control, a fix."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "patches" / BASE.tag
        self.first = make_mail(
            diff.render_add(KIT, b"kit = 1\n"),
            diff.render_add(TEST, TEST_SOURCE),
            trailers=(STATUS, RUNS),
        )
        self.fix = make_mail(
            make_edit(CLOCK, b"tick\n", b"tick once\n"), trailers=(STATUS, FIXES, RUNS)
        )
        write_files(root, {KIT: b"kit = 1\n", TEST: TEST_SOURCE})
        self.write(self.first, self.fix)
        write_files(self.folder, {"controls/0001-twice.diff": CONTROL})
        self.lock()

    def write(self, *mails: mail.Mail) -> None:
        write_series(self.folder, *mails)

    def lock(self) -> None:
        carried = {CLOCK: diff.blob_id(b"tick\n")}
        built = lock.build(BASE, series.load(BASE, self.folder), "ab" * 32, carried)
        lock.path_of(BASE, self.folder).write_bytes(lock.render(built))

    def check(self, whole: bool = True) -> tuple[Finding, ...]:
        return check.check([BASE], self.root, whole=whole)

    def said(self) -> list[str]:
        return [f"{f.file}:{f.line}: {f.what}" for f in self.check()]


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


def with_fix(**changes) -> Callable[[Clone], None]:
    def change(clone: Clone) -> None:
        kept = {"trailers": clone.fix.trailers} | changes
        clone.write(clone.first, make_mail(*clone.fix.sections, **kept))
        clone.lock()

    return change


def with_tests(*selectors: str) -> Callable[[Clone], None]:
    named = tuple(("Regression-Test", selector) for selector in selectors)
    return with_fix(trailers=(STATUS, FIXES, *named))


def with_clock(new: bytes) -> Callable[[Clone], None]:
    def change(clone: Clone) -> None:
        edit = make_edit(CLOCK, b"tick\n", new)
        clone.write(clone.first, make_mail(edit, trailers=clone.fix.trailers))
        clone.lock()

    return change


def with_source(source: bytes, path: str = TEST) -> Callable[[Clone], None]:
    def change(clone: Clone) -> None:
        files = {KIT: b"kit = 1\n", TEST: TEST_SOURCE} | {path: source}
        sections = (diff.render_add(p, content) for p, content in sorted(files.items()))
        clone.write(make_mail(*sections, trailers=clone.first.trailers), clone.fix)
        write_files(clone.root, files)
        clone.lock()

    return change


def test_a_sound_series_has_no_findings(clone: Clone) -> None:
    assert clone.check() == ()


FIRST = "patches/v0.5.16/0001-patch.patch"
FIX = "patches/v0.5.16/0002-patch.patch"
LOCK = "patches/v0.5.16/lock.toml"
REGISTERED = TEST_SOURCE.replace(b"est_time=4, ", b"est_time=4 * 1, ")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (with_fix(author="A <a@b>"), f"{FIX}:2: the author is A <a@b>"),
        (with_fix(subject="x " * 36 + "y"), f"{FIX}:4: the subject has 73 characters"),
        (with_fix(body="It ticked."), f"{FIX}:5: the mail does not say why"),
        (with_fix(body=""), f"{FIX}:5: the mail does not say why"),
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
        (with_fix(trailers=(STATUS, RUNS)), f"{FIX}:9: a fix names no report"),
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
    clone: Clone, change: Callable[[Clone], None], said: str
) -> None:
    change(clone)
    assert clone.said() == [said]


@pytest.mark.parametrize("test", ["TestClock.test_ticks", "TestShared.test_anything"])
def test_inherited_tests_exist(clone: Clone, test: str) -> None:
    with_tests(f"{TEST}::{test}")(clone)
    assert clone.check() == ()


def test_a_test_patch_without_a_control_is_found(clone: Clone) -> None:
    (clone.folder / "controls" / "0001-twice.diff").unlink()
    (finding,) = clone.check()
    assert finding.what == "nothing shows that the tests can fail"
    assert finding.mend.startswith("add controls/0001-patch.diff")


def test_a_large_fix_is_only_a_warning(clone: Clone) -> None:
    with_clock(b"tick\n" * 60)(clone)
    assert [finding.level for finding in clone.check()] == ["warning"]


def test_a_lock_that_lags_behind_is_found(clone: Clone) -> None:
    clone.write(
        clone.first,
        make_mail(*clone.fix.sections, trailers=clone.fix.trailers, body="A. B."),
    )
    (finding,) = clone.check()
    assert finding.file == LOCK
    assert finding.what == "the lock is out of date"
    assert finding.mend == "run `dspark-patches lock v0.5.16`"


def test_a_lock_with_a_comment_is_out_of_date(clone: Clone) -> None:
    path = clone.folder / "lock.toml"
    path.write_bytes(b"# mine\n" + path.read_bytes())
    assert clone.said() == [f"{LOCK}:0: the lock is out of date"]


def test_a_file_that_the_lock_does_not_know_is_named(clone: Clone) -> None:
    other = make_edit("python/sglang/srt/pool.py", b"a\n", b"b\n")
    clone.write(
        clone.first, make_mail(*clone.fix.sections, other, trailers=clone.fix.trailers)
    )
    assert clone.said() == [
        f"{LOCK}:0: the lock does not know python/sglang/srt/pool.py"
    ]


def test_a_hunk_for_another_base_is_found(clone: Clone) -> None:
    edit = make_edit(CLOCK, b"tock\n", b"tick\n")
    clone.write(clone.first, make_mail(edit, trailers=clone.fix.trailers))
    (clone.folder / "controls" / "0001-twice.diff").write_bytes(
        b"Why.\n" + make_edit(CLOCK, b"tock\n", b"tick tick\n").text
    )
    (said,) = clone.said()
    assert said.startswith(f"{FIX}:0: {CLOCK} begins with blob")
    assert "the base has" in said


@pytest.mark.parametrize(
    ("name", "before", "fits"),
    [
        ("0001-twice", b"tick\n", True),
        ("0001-twice", b"tick once\n", False),
        ("0002-twice", b"tick once\n", True),
        ("0002-twice", b"tick\n", False),
    ],
)
def test_a_control_must_fit_its_patch(
    clone: Clone, name: str, before: bytes, fits: bool
) -> None:
    edit = make_edit(CLOCK, before, b"tick tick\n")
    write_files(clone.folder, {f"controls/{name}.diff": b"Why.\n" + edit.text})
    said = [what for what in clone.said() if f"controls/{name}.diff" in what]
    assert bool(said) is not fits


def test_a_control_may_touch_what_the_series_does_not(clone: Clone) -> None:
    edit = make_edit("python/sglang/srt/pool.py", b"a\n", b"b\n")
    write_files(clone.folder, {"controls/0001-pool.diff": b"Why.\n" + edit.text})
    assert clone.check() == ()


def test_a_broken_chain_is_found(clone: Clone) -> None:
    write_series(clone.folder, clone.first, clone.fix, clone.fix)
    (said,) = clone.said()
    assert said.startswith("patches/v0.5.16/0003-patch.patch:0: ")
    assert "an earlier patch leaves" in said


def test_all_is_found_at_once(clone: Clone) -> None:
    with_fix(body="", trailers=(("Upstream-Status", "Soon"),))(clone)
    (clone.folder / "0002-patch.patch").rename(clone.folder / "0004-patch.patch")
    (clone.folder / "0001-patch.patch").write_bytes(b"noise")
    said = clone.said()
    assert f"{FIRST}:1: the file does not end with a newline" in said
    assert "patches/v0.5.16/0004-patch.patch:0: expected the number 0002" in said
    assert "patches/v0.5.16/0004-patch.patch:5: the mail does not say why" in said
    assert f"{KIT}:0: no series adds this file" in said
    assert len(said) == 8


def test_a_base_without_a_series_is_a_finding(clone: Clone) -> None:
    other = make_base("v0.5.17")
    (finding,) = check.check([BASE, other], clone.root, whole=True)
    assert (finding.base, finding.file) == ("v0.5.17", "patches/v0.5.17")


def test_one_base_alone_owns_not_every_file(clone: Clone) -> None:
    write_files(clone.root, {"test/registered/more.py": b""})
    assert clone.check(whole=False) == ()


def test_a_folder_of_no_base_is_found(clone: Clone) -> None:
    write_files(clone.root, {"patches/v0.5.99/0001-x.patch": b""})
    (clone.root / "patches" / "v0.5.17" / "controls").mkdir(parents=True)
    said = "this folder holds no series of a known base"
    assert clone.said() == [f"patches/v0.5.99:0: {said}"]


def test_other_files_than_python_may_be_added(clone: Clone) -> None:
    with_source(b"[tool]\n", "test/registered/data.toml")(clone)
    assert clone.check() == ()


def test_caches_are_no_sources(clone: Clone) -> None:
    write_files(clone.root, {"python/sglang/test/__pycache__/x.pyc": b""})
    assert clone.check() == ()


def test_a_class_that_inherits_from_itself_ends(clone: Clone) -> None:
    write_files(clone.root, {TEST: b"class A(B):\n    pass\n\nclass B(A):\n    pass\n"})
    assert added.missing(added.Sources(clone.root), f"{TEST}::A.test_x") == ""


def test_eight_bases_take_less_than_a_second(tmp_path: Path) -> None:
    source = TEST_SOURCE.replace(b"class Ticks", b"# a line\n" * 2000 + b"class Ticks")
    tests = [TEST.replace("clock", f"clock{number}") for number in range(6)]
    write_files(tmp_path, dict.fromkeys(tests, source))
    chosen = [make_base(f"v0.5.{number}") for number in range(16, 24)]
    for base in chosen:
        mails = [make_mail(diff.render_add(test, source)) for test in tests]
        write_series(tmp_path / "patches" / base.tag, *mails)
    start = time.process_time()
    assert len(check.check(chosen, tmp_path, whole=True)) >= 8
    assert time.process_time() - start < 1


@pytest.fixture
def command(clone: Clone, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    monkeypatch.setattr(bases, "data_root", lambda: clone.root)
    monkeypatch.setattr(bases, "load", lambda path=None: {BASE.tag: BASE})
    return lambda *arguments: cli.main(["check", *arguments])


def test_the_command_says_that_all_is_well(
    command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command() == 0
    assert capsys.readouterr().out == "ok: 1 series\n"


def test_the_command_tells_findings_in_three_ways(
    clone: Clone, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    (clone.root / KIT).unlink()
    assert command("v0.5.16") == 1
    text = capsys.readouterr().out
    assert text.startswith(f"{FIRST}:11: error: {KIT} is not in the clone\n  next: ")
    assert text.endswith("findings: 1 errors, 0 warnings in 1 series\n")
    assert command("--format", "json") == 1
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is False
    assert told["findings"][0]["line"] == 11
    assert command("--format", "github") == 1
    assert capsys.readouterr().out.startswith(
        f"::error title=dspark-patches v0.5.16 0001-patch,file={FIRST},line=11::"
    )
