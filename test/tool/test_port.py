"""A verdict per patch on a tree that differs, and patches only where they fit."""

from __future__ import annotations

from pathlib import Path

import factories
import pytest
from machine import (
    CHECKED_OUT,
    DFLASH,
    EAGLE,
    GUARD,
    HANDOFF,
    KIT,
    LATER,
    RELEASED,
    ROUTER,
    TEST,
    Machine,
    contents,
    state,
)

from dspark_patches import cli
from dspark_patches.errors import Exit, Precondition
from dspark_patches.git import Git
from dspark_patches.installs.locate import Target, locate
from dspark_patches.model import patch_file, releases
from dspark_patches.port.confirm import confirmed
from dspark_patches.port.port import Porter
from dspark_patches.port.verdicts import Choice, Report

pytestmark = pytest.mark.usefixtures("no_pip")

SHIFTED = b"# A fork.\n# With more lines.\n"


def quiet(text: str) -> None:
    pass


def port(machine: Machine, target: Target, test: bool = False) -> Report:
    porter = Porter(target, (machine.release.tag,), quiet)
    return confirmed(porter, Choice(), quiet) if test else porter.judge()


def judge(machine: Machine, files: dict[str, bytes]) -> Report:
    """The verdicts on a plain tree that holds ``files`` and nothing else."""
    root = machine.tree(files)
    for path in CHECKED_OUT.keys() - files.keys():
        (root / path).unlink(missing_ok=True)
    return port(machine, locate(root))


def verdicts(found: Report) -> list[str]:
    return [str(patch.verdict) for patch in found.patches]


def evidence(found: Report, number: int) -> str:
    return "\n".join(found.patches[number - 1].evidence)


def shifted(*paths: str) -> dict[str, bytes]:
    return CHECKED_OUT | {path: SHIFTED + CHECKED_OUT[path] for path in paths}


def test_everything_is_clean_on_the_release(machine: Machine) -> None:
    found = judge(machine, CHECKED_OUT)
    assert verdicts(found) == ["clean"] * 3
    written = [patch_file.render(value) for value in machine.patch_files]
    assert list(found.patch_files().values()) == written


@pytest.mark.parametrize("count", [1, 2, 3])
def test_what_is_in_is_upstreamed(machine: Machine, count: int) -> None:
    found = judge(machine, state(count))
    assert verdicts(found) == ["upstreamed"] * count + ["clean"] * (3 - count)
    assert found.good and len(found.fitting) == 3 - count


def test_changes_below_the_hunks_leave_them_clean(machine: Machine) -> None:
    more = b"\n\ndef more():\n    return 1\n"
    files = {path: RELEASED[path] + more for path in (ROUTER, EAGLE)}
    assert verdicts(judge(machine, CHECKED_OUT | files)) == ["clean"] * 3


def test_moved_hunks_are_moved_with_their_lines(machine: Machine) -> None:
    found = judge(machine, shifted(ROUTER, EAGLE))
    assert verdicts(found) == ["clean", "moved", "moved"]
    assert f"{ROUTER}:15 is at line 17" in evidence(found, 2)


def test_context_may_differ_where_the_lines_do_not(machine: Machine) -> None:
    """What only a three-way merge can carry over."""
    router = RELEASED[ROUTER].replace(
        b"    return eagle.prepare(batch)\n", b"    return eagle.prepare(batch=batch)\n"
    )
    found = judge(machine, CHECKED_OUT | {ROUTER: SHIFTED + router})
    assert verdicts(found)[:2] == ["clean", "moved"]


def test_written_patches_go_into_the_fork(machine: Machine, capsys) -> None:
    git = machine.checkout(shifted(ROUTER, EAGLE))
    folder = machine.folder / "ported"
    command = [
        "port",
        str(git.directory),
        "--no-test",
        "--write",
        str(folder),
    ]
    assert cli.main(command) == Exit.OK
    before = contents(git.directory)
    patch_files = sorted(folder.glob("*.patch"))
    assert [path.name[:4] for path in patch_files] == ["0001", "0002", "0003"]
    git.run("am", "-q", *map(str, patch_files))
    wanted = state(3) | {p: SHIFTED + state(3)[p] for p in (ROUTER, EAGLE)}
    assert contents(git.directory) == wanted
    git.run("checkout", "-q", "HEAD~3")
    assert contents(git.directory) == before
    assert "git -C" in capsys.readouterr().err


def test_the_target_is_only_read(machine: Machine) -> None:
    git = machine.checkout(shifted(ROUTER))
    before = contents(git.directory), git.text("for-each-ref")
    port(machine, locate(git.directory))
    assert (contents(git.directory), git.text("for-each-ref")) == before


def test_a_hunk_in_another_function_is_a_conflict(machine: Machine) -> None:
    """Every line fits; git would apply it without a word."""
    router = RELEASED[ROUTER].replace(
        b'def route(batch):\n    """Prepare one iteration."""\n',
        b"def route(batch):\n    return plan(batch)\n\n\n"
        b'def plan(batch):\n    """Prepare one iteration."""\n',
    )
    git = machine.checkout(CHECKED_OUT | {ROUTER: router})
    patch_files = sorted(releases.series_dir(machine.release).glob("*.patch"))
    data = b"".join(path.read_bytes() for path in patch_files[:2])
    assert git.succeeds("apply", "--check", "-C1", "-", stdin=data)
    found = port(machine, locate(git.directory))
    assert verdicts(found)[1] == "conflict"
    assert "of route would land in plan" in evidence(found, 2)


@pytest.mark.parametrize(
    ("path", "content"),
    [
        (DFLASH, LATER[DFLASH]),
        (DFLASH, SHIFTED + LATER[DFLASH]),
        (
            ROUTER,
            RELEASED[ROUTER].replace(
                b"return dflash.prepare(batch)\n",
                b"batch.evict()\n        setattr(batch, 'clock', 1)\n"
                b"        return dflash.prepare(batch)\n",
            ),
        ),
    ],
)
def test_what_a_fork_does_elsewhere_is_left_out(
    machine: Machine, capsys, path: str, content: bytes
) -> None:
    """The lines fit, and the clock would tick twice."""
    root = str(machine.tree(CHECKED_OUT | {path: content}))
    assert cli.main(["port", root, "--no-test"]) == Exit.OK
    assert "not tested" in capsys.readouterr().out
    folder = machine.folder / "ported"
    command = ["port", root, "--test", "--write", str(folder)]
    assert cli.main(command) == Exit.FINDINGS
    told = capsys.readouterr().out
    assert f"test {TEST}::TestClock.test_ticks fails with it, and passes" in told
    assert "done elsewhere     0002-give-the-clock-one-owner" in told
    assert "it builds on 0002-give-the-clock-one-owner, which is left out" in told
    assert [path.name[:4] for path in folder.iterdir()] == ["0001"]


def test_patches_are_not_written_unasked_for_tests(machine: Machine, capsys) -> None:
    """Neither is code of the target run, unless one asks."""
    trap = machine.folder / "trap"
    spring = f"open({str(trap)!r}, 'w')\n".encode()
    root = machine.tree(CHECKED_OUT | {DFLASH: RELEASED[DFLASH] + spring})
    folder = machine.folder / "ported"
    command = ["port", str(root)]
    assert cli.main(command) == Exit.OK
    assert cli.main([*command, "--write", str(folder)]) == Exit.USAGE
    assert "--no-test" in capsys.readouterr().err
    assert not folder.exists() and not trap.exists()


def test_what_a_fork_has_broken_is_a_conflict(machine: Machine) -> None:
    """Its tests fail without the patches too."""
    target = machine.package(
        RELEASED | {DFLASH: b"def prepare(batch):\n    batch.clock -= 1\n"}
    )
    found = port(machine, target, test=True)
    assert verdicts(found) == ["clean", "conflict", "conflict"]
    assert "test_ticks fails: " in evidence(found, 2)


def test_a_fork_that_names_the_same_elsewhere_is_tested_and_fits(
    machine: Machine,
) -> None:
    more = b"\n\ndef more(batch):\n    batch.clock += 1\n    batch.evict()\n"
    machine.site(RELEASED | {DFLASH: RELEASED[DFLASH] + more})
    target = locate(machine.folder / "site-packages")
    before = contents(target.root)
    found = port(machine, target, test=True)
    assert (found.tested, len(found.fitting)) == (True, 3)
    assert found.patches[1].tests == "passed"
    assert contents(target.root) == before


def test_tests_that_cannot_run_judge_nothing(machine: Machine) -> None:
    files = RELEASED | {"python/sglang/srt/__init__.py": b"import no_such_package\n"}
    target = machine.package(files)
    with pytest.raises(Precondition, match="tests of v0.5.16 cannot be run"):
        port(machine, target, test=True)


def test_links_do_not_lead_the_copy_out(machine: Machine) -> None:
    target = machine.package()
    away = machine.folder / "away"
    factories.write_files(away, {"mine.py": b"mine\n"})
    (target.root / "sglang/test/kits").symlink_to(away)
    assert len(port(machine, target, test=True).fitting) == 3
    assert contents(away) == {"mine.py": b"mine\n"}


def test_a_file_that_nests_too_deep_has_a_verdict(machine: Machine) -> None:
    deep = b"\n\ndef deep(x):\n    if x:\n        pass\n"
    deep += b"    elif x:\n        pass\n" * 3000
    found = judge(machine, CHECKED_OUT | {EAGLE: RELEASED[EAGLE] + deep})
    assert verdicts(found)[1] in ("clean", "conflict")


def test_a_part_that_is_in_is_told(machine: Machine) -> None:
    found = judge(machine, CHECKED_OUT | {EAGLE: state(2)[EAGLE]})
    assert verdicts(found)[1] == "partly upstreamed"


def test_a_part_of_a_file_that_is_in_is_told(machine: Machine) -> None:
    eagle = RELEASED[EAGLE].replace(b"    batch.evict()\n", b"")
    found = judge(machine, CHECKED_OUT | {EAGLE: eagle})
    assert verdicts(found)[1] == "partly upstreamed"
    assert "batch.evict()" in evidence(found, 2)


def test_a_file_that_went_is_gone(machine: Machine) -> None:
    files = {path: text for path, text in CHECKED_OUT.items() if path != EAGLE}
    found = judge(machine, files)
    assert verdicts(found)[1] == "gone"
    assert evidence(found, 2) == f"{EAGLE} is not there"


@pytest.mark.parametrize(
    ("path", "content", "told"),
    [
        (
            EAGLE,
            RELEASED[EAGLE].replace(b"batch.evict()", b"batch.evict(force=True)"),
            "there is no 'batch.evict()'",
        ),
        (KIT, b"another = 1\n", "another file of that name is there"),
        (HANDOFF, b"another = 1\n", "another file of that name is there"),
        (EAGLE, b"def prepare(:\n" + RELEASED[EAGLE], "could not be parsed"),
    ],
)
def test_what_does_not_fit_is_a_conflict(
    machine: Machine, path: str, content: bytes, told: str
) -> None:
    found = judge(machine, CHECKED_OUT | {path: content})
    assert "conflict" in verdicts(found)
    assert told in "\n".join(evidence(found, number) for number in (1, 2, 3))


def test_an_unfit_patch_does_not_hide_the_next(machine: Machine) -> None:
    found = judge(machine, CHECKED_OUT | {KIT: b"another = 1\n"})
    assert verdicts(found) == ["conflict", "clean", "clean"]


def test_a_package_leaves_tests_out(machine: Machine, capsys) -> None:
    site = machine.site(RELEASED | {ROUTER: SHIFTED + RELEASED[ROUTER]})
    found = port(machine, locate(site))
    assert verdicts(found) == ["clean", "moved", "moved"]
    assert set(found.left_out) == {GUARD, TEST}
    folder = str(machine.folder / "ported")
    command = ["port", str(site), "--no-test", "--write", folder]
    assert cli.main(command) == Exit.USAGE
    assert "name a full checkout" in capsys.readouterr().err
    assert not Path(folder).exists()


def test_patches_that_cannot_be_are_not_written(machine: Machine, capsys) -> None:
    root = machine.tree(CHECKED_OUT | {KIT: b"another = 1\n"})
    folder = machine.folder / "ported"
    command = ["port", str(root), "--no-test", "--write", str(folder)]
    assert cli.main([*command, "--only", "1"]) == Exit.CONFLICT
    assert not folder.exists()
    assert "no patches were written" in capsys.readouterr().err
    assert cli.main([*command, "--skip", "0003"]) == Exit.FINDINGS
    assert [path.name[:4] for path in folder.iterdir()] == ["0002"]


def test_a_folder_that_holds_something_is_not_written_to(machine: Machine) -> None:
    root = machine.tree()
    folder = machine.folder / "ported"
    factories.write_files(folder, {"mine.txt": b"mine\n"})
    command = ["port", str(root), "--no-test", "--write", str(folder)]
    assert cli.main(command) == Exit.USAGE
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]


def test_a_shallow_clone_needs_no_past(machine: Machine) -> None:
    """The release's file that wheels do not carry is not to be had."""
    git = machine.checkout()
    fork = {GUARD: SHIFTED + CHECKED_OUT[GUARD], ROUTER: SHIFTED + RELEASED[ROUTER]}
    factories.write_files(git.directory, fork)
    git.run("commit", "-qam", "fork")
    deep = port(machine, locate(git.directory))
    shallow = Git(machine.folder / "shallow")
    url = f"file://{git.directory}"
    git.run("clone", "-q", "--depth", "1", url, str(shallow.directory))
    found = port(machine, locate(shallow.directory))
    assert verdicts(found) == verdicts(deep) == ["clean", "moved", "moved"]
    assert "not at hand" in evidence(found, 2)
    assert "not at hand" not in evidence(deep, 2)


def test_without_a_past_what_is_in_is_upstreamed_too(machine: Machine) -> None:
    files = state(2) | {GUARD: SHIFTED + state(2)[GUARD]}
    assert verdicts(judge(machine, files)) == ["upstreamed", "upstreamed", "clean"]


def test_without_a_past_a_place_must_be_the_only_one(machine: Machine) -> None:
    """Twice the same lines, and nothing to compare them with."""
    found = judge(machine, CHECKED_OUT | {GUARD: CHECKED_OUT[GUARD] * 2})
    assert verdicts(found)[1] == "conflict"
    assert "in several places" in evidence(found, 2)


@pytest.mark.parametrize("form", ["text", "json", "github"])
def test_every_format_has_verdicts_and_evidence(machine: Machine, capsys, form) -> None:
    root = machine.tree(CHECKED_OUT | {DFLASH: LATER[DFLASH]})
    command = ["port", str(root), "--test", "--format", form]
    assert cli.main(command) == Exit.FINDINGS
    told = capsys.readouterr().out
    assert "done elsewhere" in told and "fails with it" in told
    assert ("::error" in told) == (form == "github")


def test_a_tree_with_links_is_refused(machine: Machine, capsys) -> None:
    root = machine.tree()
    (root / EAGLE).unlink()
    (root / EAGLE).symlink_to("/etc/passwd")
    assert cli.main(["port", str(root)]) == Exit.PRECONDITION
    assert "symbolic link" in capsys.readouterr().err
