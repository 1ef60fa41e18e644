"""The right-reason rule, case by case."""

from __future__ import annotations

from pathlib import Path

import pytest
from world import CLOCK, TEST, fix_patch_file, mend_clock

from dspark_patches.model import diff
from dspark_patches.model.series import Control, Patch, Series
from dspark_patches.proof import judgement
from dspark_patches.proof.judgement import Run
from dspark_patches.proof.outcomes import Fault, Outcome

NAME = f"{TEST}::T.test_a"
CONTROL = "control 0001-c"
ASSERTION = ("AssertionError", "Exception", "BaseException", "object")


def fault(kind="AssertionError", *, frame=TEST, fixture="", bases=None):
    bases = bases or (kind, "Exception", "BaseException", "object")
    return Fault(type=kind, message="m", bases=bases, frame=frame, fixture=fixture)


def failed(*faults, name=NAME):
    return Outcome(id=name, faults=faults or (fault(),))


def run(tree, *outcomes):
    found = outcomes or (Outcome(id=NAME),)
    return Run(release="v1", tree=tree, outcomes={each.id: each for each in found})


@pytest.mark.parametrize(
    ("faults", "right"),
    [
        ((fault(),), True),
        ((fault(bases=("Stricter", *ASSERTION)),), True),
        ((fault("TypeError", frame=CLOCK),), True),
        ((fault("TypeError", frame=TEST),), False),
        ((fault("TypeError", frame="python/sglang/test/kits/kit.py"),), False),
        ((fault("TypeError", frame=""),), False),
        ((fault("ImportError", frame=CLOCK),), False),
        (
            (fault("ModuleNotFoundError", frame=CLOCK, bases=("X", "ImportError")),),
            False,
        ),
        ((fault("IndentationError", frame=CLOCK, bases=("X", "SyntaxError")),), False),
        ((fault(fixture="setUpClass"),), False),
        ((fault(fixture="setUpModule"),), False),
        ((fault(fixture="collection"),), False),
        ((fault("Died", fixture="process", frame=CLOCK),), False),
        ((fault(), fault("TypeError", frame=CLOCK)), True),
        ((fault(), fault("TypeError", frame=TEST)), False),
        ((), False),
    ],
)
def test_right_reason(faults, right):
    assert judgement.right_reason(Outcome(id=NAME, faults=faults)) is right


def test_a_skipped_test_is_not_red():
    assert not judgement.right_reason(Outcome(id=NAME, skipped="no GPU"))


def judge(*runs, kind="fix", controls=(), tests=(NAME,)):
    """Judge a series of one patch; its findings as what they say."""
    section = mend_clock() if kind == "fix" else diff.render_add(TEST, b"")
    made = tuple(
        Control(number=1, name=name, why="w", sections=(mend_clock(),))
        for name in controls
    )
    patch_file = fix_patch_file(section, tests=tests)
    patch = Patch(number=1, name="0001-x", file=patch_file, controls=made)
    loaded = Series(release="v1", folder=Path("v1"), patches=(patch,))
    (seen,), findings = judgement.judge(loaded, {each.tree: each for each in runs})
    return seen, [finding.what for finding in findings]


def test_a_fix_is_red_on_the_pristine_tree():
    seen, findings = judge(run("pristine", failed()), run("patched"))
    assert (seen.red, seen.green, findings) == (True, True, [])
    assert seen.tests[0].red_on == ("pristine",)


def test_a_fix_that_is_red_on_a_control_alone_is_not_proven():
    seen, findings = judge(
        run("pristine"),
        run("patched"),
        run(CONTROL, failed()),
        controls=["0001-c"],
    )
    assert (seen.red, seen.green) == (False, True)
    assert seen.tests[0].red
    assert findings == ["none of its tests fails on the pristine tree"]


def test_the_release_and_a_control_together_prove_a_fix():
    other = f"{TEST}::T.test_b"
    both = [Outcome(id=NAME), Outcome(id=other)]
    seen, findings = judge(
        run("pristine", failed(), both[1]),
        run("patched", *both),
        run(CONTROL, both[0], failed(name=other)),
        controls=["0001-c"],
        tests=(f"{TEST}::T",),
    )
    assert (seen.red, seen.green, findings) == (True, True, [])
    assert [test.red_on for test in seen.tests] == [("pristine",), (CONTROL,)]


def test_every_named_test_must_have_been_red():
    other = f"{TEST}::T.test_b"
    seen, findings = judge(
        run("pristine", failed(), Outcome(id=other)),
        run("patched", Outcome(id=NAME), Outcome(id=other)),
        tests=(TEST,),
    )
    assert not seen.red
    assert [test.red for test in seen.tests] == [True, False]
    assert findings == [
        f"{other} is not red for the right reason: pristine: passed",
    ]


@pytest.mark.parametrize(
    ("pristine", "control", "red", "said"),
    [
        (run("pristine"), run(CONTROL, failed()), True, []),
        (run("pristine", failed()), None, False, ["a test-only patch needs a control"]),
    ],
)
def test_a_test_only_patch_is_proven_by_its_control(pristine, control, red, said):
    runs = [pristine, run("patched"), *filter(None, [control])]
    seen, findings = judge(*runs, kind="test", controls=["0001-c"] * bool(control))
    assert (seen.kind, seen.red, seen.green, findings) == ("test", red, True, said)


def test_a_control_that_no_test_notices_proves_nothing():
    runs = (run("pristine", failed()), run("patched"), run(CONTROL))
    seen, findings = judge(*runs, controls=["0001-c"])
    assert seen.red
    assert findings == ["control 0001-c makes none of its tests fail"]


@pytest.mark.parametrize(
    "ending", [failed(), Outcome(id=NAME, skipped="no GPU")], ids=["fails", "skips"]
)
def test_green_is_passed_and_nothing_else(ending):
    seen, findings = judge(run("pristine", failed()), run("patched", ending))
    assert (seen.red, seen.green) == (True, False)
    assert findings == [f"{NAME} is not green: {ending}"]


def test_a_patch_that_names_no_test_is_neither_red_nor_green():
    seen, findings = judge(run("pristine"), run("patched"), tests=())
    assert (seen.red, seen.green) == (False, False)
    assert "the patch names no test" in findings


def test_a_file_that_did_not_load_speaks_for_its_tests():
    broken = failed(fault("ImportError", fixture="collection"), name=TEST)
    seen, findings = judge(run("pristine", broken), run("patched"))
    assert not seen.red
    assert "pristine: ImportError in collection: m" in findings[-1]


def test_a_test_that_is_not_there_is_not_red():
    other = Outcome(id=f"{TEST}::U.test_other")
    seen, _ = judge(run("pristine", other), run("patched"))
    assert seen.tests[0].reason == "pristine: skipped: it does not exist in this tree"
    assert not seen.red


def test_a_test_that_no_patch_names_is_a_finding():
    other = failed(name=f"{TEST}::T.test_b")
    seen, findings = judge(
        run("pristine", failed()), run("patched", Outcome(id=NAME), other)
    )
    assert (seen.red, seen.green) == (True, True)
    assert findings == [f"no patch names {TEST}::T.test_b"]


def test_the_detail_of_an_outcome_is_all_that_the_test_said():
    said = Fault(type="E", message="m", traceback="Traceback: E\n")
    outcome = Outcome(id=NAME, faults=(said,), output="printed\n")
    assert outcome.detail == "Traceback: E\n\nprinted"
