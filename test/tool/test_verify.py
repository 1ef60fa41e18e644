"""Red for the right reason, then green, on a release of four small files."""

from __future__ import annotations

import tempfile
from pathlib import Path

import factories
import pytest
from world import (
    CLOCK,
    FIXED_CLOCK,
    RELEASED,
    TEST,
    TEST_SOURCE,
    fix_mail,
    mend_clock,
    stop_clock,
    text,
)

from dspark_patches import diff, runner, verify
from dspark_patches.errors import Conflict, Precondition, Usage
from dspark_patches.verify import Options

TICK = f"{TEST}::TestClock.test_tick"
GUARD = "test/registered/unit/test_guard.py"
KIT = "python/sglang/test/kits/clock_kit.py"
HELPER = "python/sglang/srt/clock_helper.py"

pytestmark = pytest.mark.usefixtures("no_pip")


class Recorder:
    """An observer that keeps what it is told."""

    def __init__(self):
        self.notes, self.runs, self.judgements, self.count = [], [], [], None

    def note(self, message):
        self.notes.append(message)

    def planned(self, count):
        self.count = count

    def ran(self, run):
        self.runs.append(run)

    def judged(self, proofs, findings):
        self.judgements.append((proofs, findings))


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Verify these bases; nothing temporary may be left when it ends."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))

    def run(*bases, observer=None, **options):
        try:
            return verify.verify(bases, Options(**options), observer or Recorder())
        finally:
            assert not list(scratch.iterdir())

    return run


def found(report):
    return [finding.what for finding in report.findings]


def add_test(source: str) -> diff.Section:
    return diff.render_add(TEST, text(source))


def test_a_fix_is_proven(world, run):
    base = world.release()
    world.series(base, fix_mail())
    report = run(base)
    assert report.ok, found(report)
    (seen,) = report.results
    assert (seen.base, seen.patch, seen.kind) == ("v0.5.16", "0001-patch", "fix")
    assert (seen.red, seen.green, seen.left_out) == (True, True, ())
    (test,) = seen.tests
    assert (test.id, test.red_on) == (TICK, ("pristine",))
    assert test.reason == "AssertionError: 1 != 2"


def test_the_cache_is_as_it_was(world, run):
    base = world.release()
    world.series(base, fix_mail())
    run(base)
    for path in world.cache.rglob(Path(CLOCK).name):
        assert path.read_bytes() == RELEASED[CLOCK]
    assert not list(world.cache.rglob("__pycache__"))


def test_an_import_error_is_not_red(world, run):
    base = world.release()
    source = """
        import unittest

        from sglang.srt.clock_helper import help_tick


        class TestClock(unittest.TestCase):
            def test_tick(self):
                self.assertEqual(help_tick(1), 2)
        """
    helper = text("""
        from sglang.srt.clock import tick


        def help_tick(now):
            return tick(now)
        """)
    sections = (mend_clock(), diff.render_add(HELPER, helper), add_test(source))
    world.series(base, fix_mail(*sections))
    report = run(base)
    assert not report.ok
    (seen,) = report.results
    assert (seen.red, seen.green) == (False, True)
    assert "ModuleNotFoundError in collection" in seen.tests[0].reason
    assert "clock_helper" in report.findings[-1].detail


def test_an_exception_in_released_code_is_red(world, run):
    broken = RELEASED[CLOCK] + b"\n\ndef longest(rows):\n    return max(rows)\n"
    mended = broken.replace(b"max(rows)", b"max(rows or [0])")
    base = world.release(files={**RELEASED, CLOCK: broken})
    source = """
        import unittest

        from sglang.srt.clock import longest


        class TestClock(unittest.TestCase):
            def test_longest(self):
                self.assertEqual(longest(None), 0)
        """
    edit = factories.make_edit(CLOCK, broken, mended)
    world.series(base, fix_mail(edit, add_test(source)))
    report = run(base)
    assert report.ok, found(report)
    assert "TypeError" in report.results[0].tests[0].reason


def test_a_test_that_passes_on_the_released_code_is_a_finding(world, run):
    base = world.release()
    source = """
        import unittest


        class TestClock(unittest.TestCase):
            def test_nothing(self):
                print("told")
        """
    world.series(base, fix_mail(mend_clock(), add_test(source)))
    report = run(base)
    assert not report.ok
    assert not report.results[0].red
    assert "none of its tests fails on the pristine tree" in found(report)


def test_the_kit_stands_on_the_pristine_tree_and_the_fixes_own_modules_do_not(
    world, run
):
    base = world.release()
    kit = b"def probe():\n    from sglang.srt.clock import tick\n\n    return tick\n"
    source = """
        import importlib.util
        import unittest

        from sglang.test.kits.clock_kit import probe


        class TestClock(unittest.TestCase):
            def test_tick(self):
                helper = importlib.util.find_spec("sglang.srt.clock_helper")
                self.assertIsNotNone(helper)
                self.assertEqual(probe()(1), 2)
        """
    sections = (
        mend_clock(),
        diff.render_add(HELPER, b""),
        diff.render_add(KIT, kit),
        add_test(source),
    )
    sections = tuple(sorted(sections, key=lambda section: section.path))
    world.series(base, fix_mail(*sections))
    report = run(base)
    assert report.ok, found(report)
    assert "unexpectedly None" in report.results[0].tests[0].reason


def test_a_later_patch_may_edit_a_test_that_the_series_added(world, run):
    base = world.release()
    stronger = TEST_SOURCE.replace(b"tick(1), 2", b"tick(2), 3")
    world.series(
        base,
        fix_mail(),
        fix_mail(
            factories.make_edit(CLOCK, FIXED_CLOCK, FIXED_CLOCK + b"# fast\n"),
            factories.make_edit(TEST, TEST_SOURCE, stronger),
        ),
    )
    report = run(base)
    assert report.ok, found(report)
    assert report.results[0].tests[0].reason == "AssertionError: 2 != 3"


def test_a_test_only_patch_is_proven_by_its_control(world, run):
    base = world.release(files={**RELEASED, CLOCK: FIXED_CLOCK})
    world.series(base, fix_mail(diff.render_add(TEST, TEST_SOURCE)))
    world.control(base, "0001-stop-the-clock", stop_clock())
    observer = Recorder()
    report = run(base, observer=observer)
    assert report.ok, found(report)
    (seen,) = report.results
    assert (seen.kind, seen.red, seen.green) == ("test", True, True)
    assert seen.tests[0].red_on == ("control 0001-stop-the-clock",)
    assert observer.count == len(observer.runs) == 3


def test_a_control_stands_on_its_own_patch_and_not_on_later_ones(world, run):
    base = world.release()
    later = factories.make_edit(CLOCK, FIXED_CLOCK, FIXED_CLOCK + b"# later\n")
    other = "test/registered/unit/test_other.py"
    world.series(
        base,
        fix_mail(),
        fix_mail(
            later,
            diff.render_add(other, TEST_SOURCE.replace(b"TestClock", b"TestOther")),
            tests=(other,),
        ),
    )
    world.control(base, "0001-stop-the-clock", stop_clock())
    report = run(base)
    assert report.ok, found(report)


def test_a_control_that_does_not_fit_is_a_conflict(world, run):
    base = world.release()
    world.series(base, fix_mail())
    world.control(base, "0001-stop-the-clock", mend_clock())
    with pytest.raises(Conflict, match="v0.5.16/0001-stop-the-clock"):
        run(base)


def test_a_test_that_no_patch_names_is_a_finding(world, run):
    base = world.release()
    source = TEST_SOURCE + b"\n    def test_more(self):\n        pass\n"
    world.series(
        base, fix_mail(mend_clock(), diff.render_add(TEST, source), tests=(TICK,))
    )
    report = run(base)
    assert found(report) == [f"no patch names {TEST}::TestClock.test_more"]


def test_a_name_that_is_no_test_is_a_finding(world, run):
    base = world.release()
    world.series(base, fix_mail(tests=(TEST, f"{TEST}::TestGone")))
    report = run(base)
    assert not report.results[0].green
    assert any("TestGone is not green: NoSuchTest" in what for what in found(report))


def test_a_test_that_fails_when_patched_is_not_green(world, run):
    base = world.release()
    source = TEST_SOURCE.replace(b"tick(1), 2", b"tick(1), 3")
    world.series(base, fix_mail(mend_clock(), diff.render_add(TEST, source)))
    report = run(base)
    (seen,) = report.results
    assert (seen.red, seen.green) == (True, False)
    (finding,) = report.findings
    assert "is not green: AssertionError: 2 != 3" in finding.what
    assert "in test_tick" in finding.detail


def test_what_wheels_do_not_carry_is_left_out_and_said(world, run):
    base = world.release()
    guard = factories.make_edit(GUARD, b"one\n", b"two\n")
    sections = (mend_clock(), diff.render_add(TEST, TEST_SOURCE), guard)
    world.series(base, fix_mail(*sections))
    report = run(base)
    assert report.ok, found(report)
    assert report.results[0].left_out == (GUARD,)


def test_a_mail_for_another_release_is_a_conflict_and_calls_off_the_rest(world, run):
    base = world.release(files={**RELEASED, CLOCK: b"def tick():\n    pass\n"})
    world.series(base, fix_mail())
    with pytest.raises(Conflict, match="v0.5.16/0001-patch does not fit"):
        run(base, jobs=1)


def test_several_bases_are_told_in_the_order_asked_for(world, run):
    first, second = world.release("v0.5.16"), world.release("v0.5.17")
    for base in (first, second):
        world.series(base, fix_mail())
    observer = Recorder()
    report = run(second, first, observer=observer, jobs=4)
    assert report.ok, found(report)
    assert [seen.base for seen in report.results] == ["v0.5.17", "v0.5.16"]
    assert len(observer.judgements) == 2
    assert any("v0.5.17: downloading" in note for note in observer.notes)


def test_trees_are_kept_where_asked(world, run, tmp_path):
    base = world.release()
    world.series(base, fix_mail())
    world.control(base, "0001-stop-the-clock", stop_clock())
    run(base, keep=tmp_path / "kept")
    kept = tmp_path / "kept" / "v0.5.16"
    clocks = {tree.name: (tree / CLOCK).read_bytes() for tree in kept.iterdir()}
    assert clocks == {
        "pristine": RELEASED[CLOCK],
        "patched": FIXED_CLOCK,
        "control-0001-stop-the-clock": RELEASED[CLOCK],
    }
    with pytest.raises(Precondition, match="to keep a tree in"):
        run(base, keep=tmp_path / "kept")


def test_a_base_without_a_series_is_a_usage_error(world, run):
    with pytest.raises(Usage, match="v0.5.16 has no series"):
        run(world.release())


def test_an_interruption_ends_the_runs_and_leaves_nothing(world, run, monkeypatch):
    base = world.release()
    world.series(base, fix_mail())
    called_off = []

    def hang(root, selectors, *, timeout, cancel, parent):
        cancel.wait(30)
        called_off.append(cancel.is_set())
        raise runner.Cancelled

    class Impatient(Recorder):
        def planned(self, count):
            monkeypatch.setattr(verify, "as_completed", interrupt)

    def interrupt(futures):
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "run", hang)
    with pytest.raises(KeyboardInterrupt):
        run(base, observer=Impatient())
    assert called_off == [True, True]
