"""Forks: where a patch is taken from, what it needs there, and what is told of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from machine import (
    CHECKED_OUT,
    DFLASH,
    EAGLE,
    GUARD,
    LATER,
    RELEASED,
    ROUTER,
    STEPS,
    SUBJECTS,
    TEST,
    Machine,
    contents,
    patch_file_of,
    state,
)

from dspark_patches import cli
from dspark_patches.errors import Exit, Precondition
from dspark_patches.installs.locate import locate
from dspark_patches.model.patch_file import PatchFile
from dspark_patches.port import confirm
from dspark_patches.port.confirm import confirmed
from dspark_patches.port.imports import aligned
from dspark_patches.port.merging import merge
from dspark_patches.port.port import Porter
from dspark_patches.port.verdicts import Choice, Report

pytestmark = pytest.mark.usefixtures("no_pip")


def judged(root: Path, *named: str, test: bool = False) -> Report:
    porter = Porter(locate(root), named, lambda text: None)
    if test:
        return confirmed(porter, Choice(), lambda text: None)
    return porter.judge()


def told(found: Report) -> dict[str, tuple[str, str]]:
    """Of each patch by number, its release and the verdict."""
    return {p.patch.name[:4]: (p.release, str(p.verdict)) for p in found.patches}


@pytest.fixture
def pinned(machine: Machine) -> Machine:
    """A machine whose later release has a second patch, of tests alone."""
    after = LATER | STEPS[1]
    pin = patch_file_of(after, after | {TEST: state(2)[TEST]}, SUBJECTS[1])
    kit = patch_file_of(LATER, after, SUBJECTS[0])
    machine.write(machine.later, (kit, pin), LATER)
    return machine


def test_tests_alone_fit_what_has_the_fix(pinned: Machine) -> None:
    found = judged(pinned.tree(CHECKED_OUT | LATER), "v0.5.17", "v0.5.16", test=True)
    assert told(found) == {n: ("v0.5.17", "clean") for n in ("0001", "0002")}
    assert found.patches[1].tests == "passed"


def test_what_lacks_the_fix_gets_it_from_another_release(pinned: Machine) -> None:
    root = pinned.tree(CHECKED_OUT)
    found = judged(root, "v0.5.17", "v0.5.16", test=True)
    wanted = {"0001": ("v0.5.17", "clean"), "0002": ("v0.5.16", "clean")}
    assert told(found) == wanted
    assert found.patches[1].tests == "passed"
    alone = judged(root, "v0.5.17", test=True)
    assert told(alone)["0002"] == ("v0.5.17", "lacks the fix")
    assert not alone.good


def test_a_patch_that_conflicts_is_taken_from_the_next_release(
    machine: Machine,
) -> None:
    """The nearest has the kit alone, and of the fork's kit the other's is in."""
    files = CHECKED_OUT | {GUARD: b"OWNER = 'nobody'\n"}
    found = judged(machine.tree(files), "v0.5.16")
    assert told(found)["0002"] == ("v0.5.16", "conflict")
    assert found.patches[0].verdict.name == "CLEAN"


def test_a_name_that_the_fork_lacks_is_found(machine: Machine) -> None:
    """Every line fits, and the first call would die of an AttributeError."""
    router = RELEASED[ROUTER].replace(b"evicted", b"evictions")
    found = judged(machine.tree(CHECKED_OUT | {ROUTER: router}), "v0.5.16")
    assert told(found)["0003"] == ("v0.5.16", "lacks names")
    assert found.patches[2].evidence == (f"{ROUTER}:26: there is no evicted",)
    assert found.patches[1].verdict.name == "CLEAN"


def test_a_name_of_a_patch_that_is_left_out_is_found(machine: Machine) -> None:
    """The lines fit, and what they call comes with the patch that does not."""
    before = CHECKED_OUT | STEPS[1]
    helper = RELEASED[DFLASH] + b"\n\ndef clock_owner():\n    return 1\n"
    user = RELEASED[ROUTER].replace(b"return None", b"return dflash.clock_owner()")
    kit = patch_file_of(RELEASED, RELEASED | STEPS[1], SUBJECTS[0])
    first = patch_file_of(before, before | {DFLASH: helper}, SUBJECTS[1])
    before = before | {DFLASH: helper}
    second = patch_file_of(before, before | {ROUTER: user}, SUBJECTS[2])
    machine.write(machine.release, (kit, first, second), RELEASED)
    porter = Porter(locate(machine.tree(CHECKED_OUT)), ("v0.5.16",), print)
    assert {v for _, v in told(porter.judge()).values()} == {"clean"}
    without = porter.judge(Choice(skip=frozenset({2})))
    assert told(without)["0003"] == ("v0.5.16", "lacks names")


def test_a_file_whose_folder_moved_is_followed(machine: Machine) -> None:
    moved = "python/sglang/srt/algorithms/eagle.py"
    files = {path: text for path, text in CHECKED_OUT.items() if path != EAGLE}
    git = machine.checkout(files | {moved: RELEASED[EAGLE]})
    folder = machine.folder / "ported"
    command = ["port", str(git.directory), "--no-test", "--write", str(folder)]
    assert cli.main(command) == Exit.OK
    git.run("am", "-q", *map(str, sorted(folder.iterdir())))
    assert contents(git.directory)[moved] == state(2)[EAGLE]


def test_what_another_file_of_that_name_holds_does_not_matter(
    machine: Machine,
) -> None:
    files = {path: text for path, text in CHECKED_OUT.items() if path != EAGLE}
    other = "python/sglang/srt/layers/eagle.py"
    found = judged(machine.tree(files | {other: b"one = 1\n"}), "v0.5.16")
    assert told(found)["0002"] == ("v0.5.16", "gone")


def test_an_import_that_the_fork_widened_is_no_conflict() -> None:
    base = b"import os\nfrom m import a, c\n\nos.x(a)\n"
    ours = b"import os\nfrom m import a, b, c\n\nos.x(a)\n"
    theirs = b"import os\nfrom m import A, a, c\n\nos.x(a, A)\n"
    merged, clash = merge(base, ours, theirs)
    assert (merged, clash) == (
        b"import os\nfrom m import A, a, b, c\n\nos.x(a, A)\n",
        "",
    )
    long = b"from m import " + b", ".join(b"name_%02d" % n for n in range(12)) + b"\n"
    widened, _ = merge(base, ours, base.replace(b"a, c", b"a, c, " + long[14:-1]))
    assert widened and b"from m import (\n    a,\n    b,\n    c,\n" in widened
    # Where only the names conflict, git shows no `import`.
    base = b"from m import (\n    name_b,\n    name_c,\n)\n"
    ours, theirs = (base.replace(b"(\n", b"(\n    %s,\n" % n) for n in (b"b", b"a"))
    merged, _ = merge(base, ours, theirs)
    assert merged == b"from m import a, b, name_b, name_c\n"


def test_imports_that_are_not_alike_stay_a_conflict() -> None:
    base = b"from m import a\n"
    assert aligned(base, b"from n import a\n", b"from m import a, b\n") is None
    assert merge(base, b"from n import a\n", b"from m import a, b\n")[0] is None
    assert merge(b"x\n", b"y\nimport z\n", b"import z\n")[0] is None


def test_what_no_commit_holds_is_told_and_not_read(machine: Machine, capsys) -> None:
    git = machine.checkout(state(1))
    (git.directory / EAGLE).write_bytes(b"broken(\n")
    (git.directory / TEST).write_bytes(b"broken(\n")
    assert cli.main(["port", str(git.directory)]) == Exit.OK
    said = capsys.readouterr().out
    assert f"judged as committed: {EAGLE}, {TEST}" in said
    assert said.count("clean") == 2


def test_tests_run_on_what_is_committed(machine: Machine) -> None:
    """A file that no patch edits, with a clock that would tick twice, and none."""
    git = machine.checkout()
    gone = "python/sglang/srt/__init__.py"
    (git.directory / DFLASH).write_bytes(LATER[DFLASH])
    (git.directory / gone).unlink()
    found = judged(git.directory, "v0.5.16", test=True)
    assert told(found) == {n: ("v0.5.16", "clean") for n in ("0001", "0002", "0003")}
    assert found.patches[1].tests == "passed"
    assert found.uncommitted == (gone, DFLASH)


def test_nothing_is_near_what_is_something_else(machine: Machine) -> None:
    files = {path: b"one = 1\n" for path in CHECKED_OUT}
    root = machine.tree(files)
    with pytest.raises(Precondition, match="no release is near"):
        judged(root)
    assert "conflict" in told(judged(root, "v0.5.16"))["0002"]


def test_a_printed_command_can_be_pasted(machine: Machine, capsys) -> None:
    git = machine.checkout()
    root = machine.folder / "my fork; echo"
    shutil.move(git.directory, root)
    folder = machine.folder / "my patches"
    command = ["port", str(root), "--no-test", "--write", str(folder)]
    assert cli.main(command) == Exit.OK
    said = capsys.readouterr().err
    assert f"git -C '{root}' am '{folder}'/*.patch" in said


def test_the_first_changed_line_that_is_missing_is_named(machine: Machine) -> None:
    eagle = RELEASED[EAGLE].replace(b"lengths", b"sizes")
    eagle = eagle.replace(b"batch.clock += 1", b"batch.clock -= -1")
    found = judged(machine.tree(CHECKED_OUT | {EAGLE: eagle}), "v0.5.16")
    assert "there is no 'batch.clock += 1'" in found.patches[1].evidence[0]


@pytest.mark.parametrize(
    ("old", "new", "lacking"),
    [
        (b"Batch", b"Work", "no attribute 'Batch'"),
        (b"    return eagle", b"    batch.rank\n    return eagle", "attribute 'rank'"),
    ],
)
def test_tests_that_meet_what_is_not_there_do_not_judge(
    machine: Machine, old: bytes, new: bytes, lacking: str
) -> None:
    """A class that the fork calls otherwise, an attribute that it alone reads."""
    router = RELEASED[ROUTER].replace(old, new)
    passing = b"""import unittest


class TestOther(unittest.TestCase):
    def test_passes(self):
        pass
"""
    kit = patch_file_of(RELEASED, RELEASED | STEPS[1], SUBJECTS[0])
    before = CHECKED_OUT | STEPS[1]
    fix = patch_file_of(before, before | STEPS[2], SUBJECTS[1])
    other = "test/registered/unit/test_other.py"
    trailers = (("Regression-Test", f"{other}::TestOther"),)
    more_tests = patch_file_of(before, before | {other: passing}, SUBJECTS[2])
    machine.write(machine.release, (kit, fix, _with(more_tests, trailers)), RELEASED)
    root = machine.tree(CHECKED_OUT | {ROUTER: router, DFLASH: RELEASED[DFLASH]})
    found = judged(root, "v0.5.16", test=True)
    assert told(found)["0002"] == ("v0.5.16", "clean")
    assert found.patches[1].tests == "cannot run here"
    assert lacking in found.patches[1].evidence[-1]
    assert found.patches[2].tests == "passed"


def _with(patch_file: PatchFile, trailers: tuple[tuple[str, str], ...]) -> PatchFile:
    kept = tuple(t for t in patch_file.trailers if t[0] != "Regression-Test")
    return msgspec.structs.replace(patch_file, trailers=kept + trailers)


def test_what_port_wrote_proves_and_reverts_the_fork(machine: Machine, capsys) -> None:
    """Status, apply and revert by the folder of patches that fit the fork."""
    files = CHECKED_OUT | {ROUTER: b"# A fork.\n" + RELEASED[ROUTER]}
    root = machine.tree(files)
    folder = machine.folder / "ported"
    command = ["port", str(root), "--no-test", "--write", str(folder)]
    assert cli.main(command) == Exit.OK
    status = ["status", str(root), "--release", str(folder), "--require"]
    assert cli.main(status) == Exit.FINDINGS
    assert cli.main(["apply", str(root), "--release", str(folder)]) == Exit.OK
    wanted = state(3)
    wanted |= {ROUTER: b"# A fork.\n" + wanted[ROUTER]}
    assert contents(root) == wanted
    capsys.readouterr()
    assert cli.main(status) == Exit.OK
    assert "release ported" not in capsys.readouterr().err
    away = machine.folder / "elsewhere"
    shutil.copytree(folder, away / "ported")
    told = [capsys.readouterr().out for _ in (0,) if cli.main(status) == Exit.OK]
    status[3] = str(away / "ported")
    assert cli.main(status) == Exit.OK
    fingerprint = [line for line in told[0].splitlines() if "fingerprint" in line]
    assert fingerprint and fingerprint[0] in capsys.readouterr().out
    assert cli.main(["revert", str(root), "--release", str(folder)]) == Exit.OK
    assert contents(root) == files


def test_what_fails_in_the_last_round_is_left_out_too(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confirm, "_ROUNDS", 1)
    found = judged(machine.tree(CHECKED_OUT | LATER), "v0.5.16", test=True)
    assert [str(one.verdict) for one in found.patches] == [
        "clean",
        "done elsewhere",
        "conflict",
    ]


def test_a_folder_that_is_not_there_is_told(machine: Machine, capsys) -> None:
    root = str(machine.tree())
    assert cli.main(["status", root, "--release", "./nowhere"]) == Exit.PRECONDITION
    assert "no folder of patches" in capsys.readouterr().err


def test_a_package_of_a_fork_is_proven_too(machine: Machine) -> None:
    """A checkout's patches also say what its installed package must hold."""
    router = b"# A fork.\n" + RELEASED[ROUTER]
    folder = machine.folder / "ported"
    root = machine.tree(CHECKED_OUT | {ROUTER: router})
    command = ["port", str(root), "--no-test", "--write", str(folder)]
    assert cli.main(command) == Exit.OK
    site = str(machine.site(RELEASED | {ROUTER: router}, version="0.5.16+mine"))
    told = ["--release", str(folder)]
    assert cli.main(["apply", site, *told]) == Exit.OK
    assert cli.main(["status", site, *told, "--require"]) == Exit.OK
