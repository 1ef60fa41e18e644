"""The mutants of a made-up package, and a sample of a release's."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from dspark_patches.proof import runner

sys.path.insert(0, str(Path(__file__).parent))

from mutation import campaign, mutant  # noqa: E402
from mutation.measure import Subject  # noqa: E402
from mutation.rules import Rules  # noqa: E402
from mutation.trace import Block, Line, Traced  # noqa: E402

CODE = """
LIMIT = 3


def fits(count):
    return count < LIMIT


def idle(count):
    return count >= 0


def countdown(count):
    while count > 0:
        count -= 1
    return count
"""

TESTS = """
import unittest

from sglang import code


class TestFits(unittest.TestCase):
    def test_boundary(self):
        self.assertEqual([code.fits(n) for n in (2, 3)], [True, False])


class TestRest(unittest.TestCase):
    def test_rest(self):
        self.assertTrue(code.idle(1))
        self.assertEqual(code.countdown(3), 0)
"""

PATH = "python/sglang/code.py"


def made(old, new, patch="0001-fits"):
    start = CODE.index(old)
    edits = [(start, start + len(old), new)]
    return mutant.make(CODE.encode(), edits, patch=patch, path=PATH, rule="rule")


KILLED = made("count < LIMIT", "count <= LIMIT")
MODULE = made("LIMIT = 3", "LIMIT = 4")
ALIVE = made("count >= 0", "count > 0", "0002-rest")
ENDLESS = made("count -= 1", "count -= 0", "0002-rest")
SAME = made("count < LIMIT", "(count < LIMIT)")


def build(root):
    for path, text in {
        "python/sglang/__init__.py": "",
        PATH: CODE,
        "test/test_code.py": TESTS,
    }.items():
        root.joinpath(path).parent.mkdir(parents=True, exist_ok=True)
        root.joinpath(path).write_text(text)


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "PRELOAD", ())

    def run(*mutants, exempt="", **options):
        path = tmp_path / "exempt.toml"
        path.write_text(exempt)
        tests = {
            "0001-fits": ("test/test_code.py::TestFits",),
            "0002-rest": ("test/test_code.py::TestRest",),
        }
        subject = Subject(name="v1", build=build, tests=tests, mutants=mutants)
        chosen = dict(sample=0, seed=0, patch=None, by_hand=None) | options
        return campaign.run(subject, argparse.Namespace(exempt=path, **chosen))

    return run


def verdicts(found):
    return [each["verdict"] for each in found["mutants"]]


def entry(after):
    lines = f"releases = ['v1']\npath = '{PATH}'\nbefore = 'return count >= 0'\n"
    return f"[[exempt]]\n{lines}after = '{after}'\nreason = 'none'\n"


def test_killed_survivor_and_timeout_are_told_apart(run):
    found = run(KILLED, ENDLESS, SAME, ALIVE)
    assert verdicts(found) == ["killed", "timeout", "same", "alive"]
    assert found["mutants"][0]["by"] == "TestFits.test_boundary"
    assert [each["where"] for each in found["mutants"]] == ["swapped"] * 3 + ["disk"]
    assert found["patches"]["0002-rest"] == dict(
        hunks=0, mutants=2, killed=1, timeout=1, exempt=0, alive=1
    )
    assert list(campaign.findings(found)) == [
        f"alive: {PATH}:10: 'return count >= 0' -> 'return count > 0'"
    ]


def test_what_cannot_be_swapped_runs_from_disk(run):
    (result,) = run(MODULE)["mutants"]
    assert (result["verdict"], result["where"]) == ("killed", "disk")
    assert result["by"] == "test/test_code.py::TestFits.test_boundary"


def test_survivor_dies_from_disk_where_swapping_came_too_late(run, monkeypatch):
    late = CODE + "\n\nFULL = not fits(LIMIT)\n"
    monkeypatch.setitem(globals(), "CODE", late)
    tests = TESTS + "\n    def test_full(self):\n        self.assertTrue(code.FULL)\n"
    monkeypatch.setitem(
        globals(), "TESTS", tests.replace("3)], [True, False]", ")], [True]")
    )
    one = made("count < LIMIT", "count <= LIMIT", "0002-rest")
    (result,) = run(one)["mutants"]
    assert (result["verdict"], result["where"]) == ("killed", "disk")


def test_exempt_survivor_may_live(run):
    found = run(ALIVE, exempt=entry("return count > 0"))
    assert verdicts(found) == ["exempt"]
    assert list(campaign.findings(found)) == []


def test_stale_exemption_is_a_finding_of_a_whole_run(run):
    both = entry("return count > 0") + entry("return count > 1")
    found = run(ALIVE, exempt=both)
    (finding,) = campaign.findings(found)
    assert finding.startswith("stale exemption") and "count > 1" in finding
    assert run(ALIVE, exempt=both, patch=[2])["stale"] == []


def test_mutant_by_hand(run, tmp_path):
    file = tmp_path / "hand.toml"
    text = f"[[mutant]]\npath = '{PATH}'\npatch = 1\nold = 'LIMIT\\n'\nnew = '9\\n'\n"
    file.write_text(
        text.replace("'LIMIT\\n'", '"LIMIT\\n"').replace("'9\\n'", '"9\\n"')
    )
    assert verdicts(run(by_hand=file)) == ["killed"]


def edits(source, lines=(1,)):
    content = source.encode()
    for rule, _, edit in Rules(content, lines).edits():
        yield rule, mutant.apply(content, [edit]).decode()


def test_rules():
    assert list(edits("x = f(1, a < b)\nlogger.info(x > 1)")) == [
        ("drop", "pass\nlogger.info(x > 1)"),
        ("drop argument", "x = f(1)\nlogger.info(x > 1)"),
        ("swap arguments", "x = f(a < b, 1)\nlogger.info(x > 1)"),
        ("constant", "x = f(2, a < b)\nlogger.info(x > 1)"),
        ("constant", "x = f(0, a < b)\nlogger.info(x > 1)"),
        ("operator", "x = f(1, a <= b)\nlogger.info(x > 1)"),
    ]
    assert [made for rule, made in edits("if not (a or b): pass")] == [
        "if True: pass",
        "if False: pass",
        "if  (a or b): pass",
        "if not (a and b): pass",
        "if not (False or b): pass",
        "if not (a or False): pass",
    ]
    assert list(edits("logger.info(x > 1)")) == []
    assert [rule for rule, _ in edits("raise KeyError(f'{x > 1}')")] == ["drop"]


def test_hunk_goes_but_for_what_a_later_patch_changed():
    traced = Traced.__new__(Traced)
    kept, ours, theirs = Line(b"a\n"), Line(b"b\n", "0001-x"), Line(b"c\n", "0002-y")
    block = Block(kept)
    block.removed, block.added = [b"old\n"], [ours]
    traced.files = {"p.py": [kept, ours, theirs]}
    traced._hunks = [("0001-x", "p.py", [block])]
    (one,), gone = traced.ablations()
    assert mutant.apply(b"a\nb\nc\n", one.edits) == b"a\nold\nc\n" and gone == []
    block.added = [ours, Line(b"d\n", "0001-x")]
    (one,), gone = traced.ablations()
    assert mutant.apply(b"a\nb\nc\n", one.edits) == b"a\nc\n"
    assert one.rule == "hunk 1 but for 1 lines that later patches changed"
    block.added = [Line(b"d\n", "0001-x")]
    assert traced.ablations() == (
        [],
        ["0001-x, p.py: hunk 1: later patches changed it"],
    )


def test_a_sample_of_a_release_is_noticed():
    # Of patches that no other one is built on.
    sample = ["v0.5.23", "--sample", "12", "--seed", "10"]
    sample += [
        word for number in ("7", "8", "16", "17") for word in ("--patch", number)
    ]
    command = [sys.executable, Path(__file__).with_name("run.py"), *sample]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert done.stdout.count(" killed ") >= 10
