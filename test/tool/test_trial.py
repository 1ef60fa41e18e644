"""The regression tests on any tree, patched or not."""

from __future__ import annotations

import sys

import msgspec
import pytest
from machine import (
    DFLASH,
    LATER,
    RELEASED,
    ROUTER,
    TEST,
    Machine,
    carried,
    contents,
    state,
)

from dspark_patches import cli
from dspark_patches.errors import Exit, Precondition
from dspark_patches.installs.locate import locate
from dspark_patches.proof.test_verb import trial

TICKS = f"{TEST}::TestClock.test_ticks"


def said(target, named: str = "") -> dict[str, str]:
    found = trial(target, named=named)
    return {held.test: held.status for held in found.tests}


@pytest.mark.parametrize(("count", "status"), [(0, "failed"), (3, "passed")])
def test_what_holds_on_a_package(machine: Machine, count: int, status: str) -> None:
    target = machine.package(state(count))
    before = contents(target.root)
    found = trial(target)
    assert {held.test: held.status for held in found.tests} == {TICKS: status}
    assert found.holds == (status == "passed")
    assert found.tests[0].patch == "0002-give-the-clock-one-owner"
    assert contents(target.root) == before


def test_a_fork_of_its_own_may_hold(machine: Machine) -> None:
    """It mended the clock elsewhere, so that no patch of ours is in."""
    target = locate(machine.tree(RELEASED | {DFLASH: LATER[DFLASH]}))
    assert said(target) == {TICKS: "passed"}


def test_a_doubled_clock_does_not_hold(machine: Machine) -> None:
    target = machine.package(state(3) | {DFLASH: LATER[DFLASH]})
    assert said(target) == {TICKS: "failed"}


def test_an_unknown_tree_takes_the_nearest_release(machine: Machine) -> None:
    target = locate(machine.tree(state(3) | {ROUTER: state(3)[ROUTER] + b"#\n"}))
    found = trial(target)
    assert (found.release, found.holds) == ("v0.5.16", True)
    assert "4 places that the patches of v0.5.16" in found.how
    assert trial(target, named="v0.5.17").tests == ()


def test_a_tree_that_cannot_be_imported_breaks(machine: Machine) -> None:
    target = machine.package(state(3) | {ROUTER: b"import nothing_of_that_name\n"})
    found = trial(target)
    assert [held.status for held in found.tests] == ["error"]
    assert "nothing_of_that_name" in found.tests[0].reason
    assert not found.holds


def test_the_targets_own_interpreter_runs_them(machine: Machine) -> None:
    target = machine.package(state(3))
    assert trial(target).python == sys.executable
    with pytest.raises(Precondition, match="does not start"):
        trial(msgspec.structs.replace(target, python="/nonexistent/python"))


def test_links_do_not_lead_the_tests_out(machine: Machine) -> None:
    target = machine.package()
    away = machine.folder / "away"
    away.mkdir()
    (target.root / "sglang/test/kits").symlink_to(away)
    assert said(target) == {TICKS: "failed"}
    assert list(away.iterdir()) == []


@pytest.mark.parametrize("form", ["text", "json", "github"])
def test_the_command_has_a_table(machine: Machine, capsys, form: str) -> None:
    site = str(machine.site())
    assert cli.main(["test", site, "--format", form]) == Exit.FINDINGS
    told = capsys.readouterr().out
    assert "TestClock.test_ticks" in told and "0002-give-the-clock-one-owner" in told
    assert ("::error" in told) == (form == "github")
    assert cli.main(["apply", site]) == Exit.OK
    assert cli.main(["test", site]) == Exit.OK
    assert "holds" in capsys.readouterr().out
    assert carried(state(3)).keys() <= contents(machine.folder / "site-packages").keys()
