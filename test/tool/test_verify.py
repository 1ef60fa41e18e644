"""Red for the right reason, then green, on a release of four small files."""

from __future__ import annotations

import signal
import tempfile
import threading
import time
from concurrent import futures
from pathlib import Path

import factories
import pytest
from world import (
    CLOCK,
    FIXED_CLOCK,
    RELEASED,
    TEST,
    TEST_SOURCE,
    fix_patch_file,
    mend_clock,
    stop_clock,
    text,
)

from dspark_patches.errors import Conflict, Precondition, Usage
from dspark_patches.model import diff
from dspark_patches.proof import runner, verify

TICK = f"{TEST}::TestClock.test_tick"
GUARD = "test/registered/unit/test_guard.py"
KIT = "python/sglang/test/kits/clock_kit.py"
HELPER = "python/sglang/srt/clock_helper.py"

pytestmark = pytest.mark.usefixtures("no_pip")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Verify these releases; nothing temporary may be left when it ends."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))

    def run(*releases, notes=None, **options):
        options = verify.Options(**options)
        told = [] if notes is None else notes
        try:
            return verify.verify(releases, options, told.append, told.append)
        finally:
            assert not list(scratch.iterdir())

    return run


def found(report):
    return [finding.what for finding in report.findings]


def add_test(source: str) -> diff.Section:
    return diff.render_add(TEST, text(source))


def case(body: str, imports: str = "") -> str:
    """The source of one test."""
    return f"""
        import unittest
        {imports}

        class TestClock(unittest.TestCase):
            def test_tick(self):
                {body}
        """


def test_a_fix_is_proven_and_the_cache_stays(world, run):
    release = world.release()
    world.series(release, fix_patch_file())
    report = run(release)
    assert report.ok, found(report)
    (seen,) = report.results
    assert (seen.release, seen.patch, seen.kind) == ("v0.5.16", "0001-patch", "fix")
    assert (seen.red, seen.green, seen.left_out) == (True, True, ())
    (test,) = seen.tests
    assert (test.id, test.red_on) == (TICK, ("pristine",))
    assert test.reason == "AssertionError: 1 != 2"
    for path in world.cache.rglob(Path(CLOCK).name):
        assert path.read_bytes() == RELEASED[CLOCK]
    assert not list(world.cache.rglob("__pycache__"))


def test_an_import_error_is_not_red(world, run):
    release = world.release()
    helper = b"from sglang.srt.clock import tick as help_tick\n"
    imports = "from sglang.srt.clock_helper import help_tick"
    source = case("self.assertEqual(help_tick(1), 2)", imports)
    sections = (mend_clock(), diff.render_add(HELPER, helper), add_test(source))
    world.series(release, fix_patch_file(*sections))
    report = run(release)
    assert not report.ok
    (seen,) = report.results
    assert (seen.red, seen.green) == (False, True)
    assert "ModuleNotFoundError in collection" in seen.tests[0].reason
    assert "clock_helper" in report.findings[-1].detail


def test_an_exception_in_released_code_is_red(world, run):
    broken = RELEASED[CLOCK] + b"\n\ndef longest(rows):\n    return max(rows)\n"
    mended = broken.replace(b"max(rows)", b"max(rows or [0])")
    release = world.release(files={**RELEASED, CLOCK: broken})
    imports = "from sglang.srt.clock import longest"
    source = case("self.assertEqual(longest(None), 0)", imports)
    edit = factories.make_edit(CLOCK, broken, mended)
    world.series(release, fix_patch_file(edit, add_test(source)))
    report = run(release)
    assert report.ok, found(report)
    assert "TypeError" in report.results[0].tests[0].reason


def test_the_pristine_tree_has_the_kit_and_no_fix(world, run):
    release = world.release()
    kit = b"from importlib.util import find_spec as find\n"
    imports = "from sglang.test.kits.clock_kit import find"
    source = case("self.assertIsNotNone(find('sglang.srt.clock_helper'))", imports)
    sections = (
        mend_clock(),
        diff.render_add(HELPER, b""),
        diff.render_add(KIT, kit),
        add_test(source),
    )
    world.series(
        release, fix_patch_file(*sorted(sections, key=lambda section: section.path))
    )
    report = run(release)
    assert report.ok, found(report)
    assert "unexpectedly None" in report.results[0].tests[0].reason


def test_a_later_patch_may_edit_a_test_of_the_series(world, run):
    release = world.release()
    stronger = TEST_SOURCE.replace(b"tick(1), 2", b"tick(2), 3")
    world.series(
        release,
        fix_patch_file(),
        fix_patch_file(
            factories.make_edit(CLOCK, FIXED_CLOCK, FIXED_CLOCK + b"# fast\n"),
            factories.make_edit(TEST, TEST_SOURCE, stronger),
        ),
    )
    report = run(release)
    assert report.ok, found(report)
    assert report.results[0].tests[0].reason == "AssertionError: 2 != 3"


def test_a_test_only_patch_is_proven_by_its_control(world, run):
    release = world.release(files={**RELEASED, CLOCK: FIXED_CLOCK})
    world.series(release, fix_patch_file(diff.render_add(TEST, TEST_SOURCE)))
    world.control(release, "0001-stop-the-clock", stop_clock())
    notes = []
    report = run(release, notes=notes)
    assert report.ok, found(report)
    (seen,) = report.results
    assert (seen.kind, seen.red, seen.green) == ("test", True, True)
    assert seen.tests[0].red_on == ("control 0001-stop-the-clock",)
    told = [note[-7:] for note in notes if isinstance(note, str)]
    assert told[-3:] == ["1 of 3)", "2 of 3)", "3 of 3)"]


def test_a_test_that_proves_nothing_is_a_finding(world, run):
    release = world.release()
    more = TEST_SOURCE.replace(b"tick(1), 2", b"tick(1), 3")
    more += b"\n    def test_more(self):\n        pass\n"
    section = diff.render_add(TEST, more)
    tests = (TICK, f"{TEST}::TestGone")
    world.series(release, fix_patch_file(mend_clock(), section, tests=tests))
    report = run(release)
    (seen,) = report.results
    assert (seen.red, seen.green) == (False, False)
    assert f"no patch names {TEST}::TestClock.test_more" in found(report)
    assert any("TestGone is not green: NoSuchTest" in what for what in found(report))
    (finding,) = [f for f in report.findings if f.what.startswith(TICK)]
    assert "is not green: AssertionError: 2 != 3" in finding.what
    assert "in test_tick" in finding.detail


def test_what_wheels_do_not_carry_is_left_out_and_said(world, run):
    release = world.release()
    guard = factories.make_edit(GUARD, b"one\n", b"two\n")
    sections = (mend_clock(), diff.render_add(TEST, TEST_SOURCE), guard)
    world.series(release, fix_patch_file(*sections))
    report = run(release)
    assert report.ok, found(report)
    assert report.results[0].left_out == (GUARD,)


def test_a_patch_or_control_that_does_not_fit_is_a_conflict(world, run):
    first = world.release(files={**RELEASED, CLOCK: b"def tick():\n    pass\n"})
    second = world.release("v0.5.17")
    for release in (first, second):
        world.series(release, fix_patch_file())
    world.control(second, "0001-stop-the-clock", mend_clock())
    with pytest.raises(Conflict, match="v0.5.16/0001-patch does not fit"):
        run(first)
    with pytest.raises(Conflict, match="v0.5.17/0001-stop-the-clock does not fit"):
        run(second)
    with pytest.raises(Usage, match="v0.5.18 has no series"):
        run(world.release("v0.5.18"))


def test_several_releases_are_told_in_the_order_asked_for(world, run):
    first, second = world.release("v0.5.16"), world.release("v0.5.17")
    for release in (first, second):
        world.series(release, fix_patch_file())
    notes = []
    report = run(second, first, notes=notes, jobs=4)
    assert report.ok, found(report)
    assert [seen.release for seen in report.results] == ["v0.5.17", "v0.5.16"]
    assert sum(isinstance(note, tuple) for note in notes) == 2
    assert any("v0.5.17: downloading" in note for note in notes)


def test_trees_are_kept_where_asked(world, run, tmp_path):
    release = world.release()
    world.series(release, fix_patch_file())
    world.control(release, "0001-stop-the-clock", stop_clock())
    run(release, keep=tmp_path / "kept")
    kept = tmp_path / "kept" / "v0.5.16"
    clocks = {tree.name: (tree / CLOCK).read_bytes() for tree in kept.iterdir()}
    assert clocks == {
        "pristine": RELEASED[CLOCK],
        "patched": FIXED_CLOCK,
        "control-0001-stop-the-clock": RELEASED[CLOCK],
    }
    with pytest.raises(Precondition, match="is there already"):
        run(release, keep=tmp_path / "kept")


def test_an_interruption_that_a_thread_receives_ends_all(world, run, monkeypatch):
    release = world.release()
    world.series(release, fix_patch_file())
    ended = []
    # A pool does not await a thread that it was interrupted in starting: that one
    # ends by itself, a moment later.
    started = threading.Event()
    both = threading.Barrier(2)

    def wait(*args):
        started.set()
        return futures.wait(*args)

    def hang(root, selectors, *, timeout, server):
        started.wait()
        if both.wait() == 0:
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        while server._process.poll() is None:
            time.sleep(0.05)
        ended.append(server.pid)
        return ()

    monkeypatch.setattr(runner, "run", hang)
    monkeypatch.setattr(verify, "wait", wait)
    # A shell's background job, as which these tests may run, ignores it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run(release)
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(ended) == 2
