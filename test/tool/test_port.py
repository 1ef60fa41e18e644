"""A verdict per patch on a tree that differs, and mails only where they fit."""

from __future__ import annotations

from pathlib import Path

import factories
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
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

from dspark_patches import bases, cli, mail
from dspark_patches.errors import Exit
from dspark_patches.git import Git
from dspark_patches.installs.locate import locate
from dspark_patches.port.port import Report, port

pytestmark = pytest.mark.usefixtures("no_pip")

SHIFTED = b"# A fork.\n# With more lines.\n"


def judge(machine: Machine, files: dict[str, bytes]) -> Report:
    """The verdicts on a plain tree that holds ``files`` and nothing else."""
    root = machine.tree(files)
    for path in CHECKED_OUT.keys() - files.keys():
        (root / path).unlink(missing_ok=True)
    return port(machine.base, locate(root), lambda text: None)


def verdicts(found: Report) -> list[str]:
    return [patch.verdict for patch in found.patches]


def evidence(found: Report, number: int) -> str:
    return "\n".join(found.patches[number - 1].evidence)


def shifted(*paths: str) -> dict[str, bytes]:
    return CHECKED_OUT | {path: SHIFTED + CHECKED_OUT[path] for path in paths}


def test_everything_is_clean_on_the_release(machine: Machine) -> None:
    found = judge(machine, CHECKED_OUT)
    assert verdicts(found) == ["clean"] * 3
    written = [mail.render(value) for value in machine.mails]
    assert list(found.mails.values()) == written


@pytest.mark.parametrize("count", [1, 2, 3])
def test_what_is_in_is_upstreamed(machine: Machine, count: int) -> None:
    found = judge(machine, state(count))
    assert verdicts(found) == ["upstreamed"] * count + ["clean"] * (3 - count)
    assert found.mails == {}


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


def test_written_mails_go_into_the_fork(machine: Machine, capsys) -> None:
    git = machine.checkout(shifted(ROUTER, EAGLE))
    folder = machine.folder / "ported"
    command = ["port", "v0.5.16", str(git.directory), "--write", str(folder)]
    assert cli.main(command) == Exit.OK
    before = contents(git.directory)
    mails = sorted(folder.glob("*.patch"))
    assert [path.name[:4] for path in mails] == ["0001", "0002", "0003"]
    git.run("am", "-q", *map(str, mails))
    wanted = state(3) | {p: SHIFTED + state(3)[p] for p in (ROUTER, EAGLE)}
    assert contents(git.directory) == wanted
    git.run("checkout", "-q", "HEAD~3")
    assert contents(git.directory) == before
    assert "git -C" in capsys.readouterr().err


def test_the_target_is_only_read(machine: Machine) -> None:
    git = machine.checkout(shifted(ROUTER))
    before = contents(git.directory), git.text("for-each-ref")
    port(machine.base, locate(git.directory), lambda text: None)
    assert (contents(git.directory), git.text("for-each-ref")) == before


def test_a_hunk_in_another_function_is_a_conflict(machine: Machine) -> None:
    """Every line fits; git would apply it without a word."""
    router = RELEASED[ROUTER].replace(
        b'def route(batch):\n    """Prepare one iteration."""\n',
        b"def route(batch):\n    return plan(batch)\n\n\n"
        b'def plan(batch):\n    """Prepare one iteration."""\n',
    )
    git = machine.checkout(CHECKED_OUT | {ROUTER: router})
    mails = sorted(bases.series_dir(machine.base).glob("*.patch"))
    data = b"".join(path.read_bytes() for path in mails[:2])
    assert git.succeeds("apply", "--check", "-C1", "-", stdin=data)
    found = port(machine.base, locate(git.directory), lambda text: None)
    assert verdicts(found)[1] == "conflict"
    assert "of route would land in plan" in evidence(found, 2)


@pytest.mark.parametrize(
    ("path", "content"),
    [
        (DFLASH, LATER[DFLASH]),
        (DFLASH, SHIFTED + LATER[DFLASH]),
        (EAGLE, RELEASED[EAGLE] + b"    # once more\n    batch.evict()\n"),
        (DFLASH, RELEASED[DFLASH] + b"\n\ndef more(b):\n    b.clock += 1\n"),
        (
            "python/sglang/srt/deep/er/hook.py",
            b"class Hook:\n    def run(self, b):\n        b.evict()\n",
        ),
        ("python/sglang/srt/hook.py", b"def run(b):\n    setattr(b, 'clock', 2)\n"),
        (
            "python/sglang/srt/hook.py",
            b"def run(b):\n    evict = getattr(b, 'evict')\n    evict()\n",
        ),
        (
            "python/sglang/srt/second.py",
            b"from sglang.srt.router import route\n\n\ndef twice(b):\n    route(b)\n",
        ),
        (
            "python/sglang/srt/second.py",
            b"from sglang.srt import eagle\n\n\ndef skip(b):\n    eagle.prepare(b)\n",
        ),
    ],
)
def test_what_would_be_done_twice_never_fits(
    machine: Machine, path: str, content: bytes
) -> None:
    """The lines fit, and the clock would tick twice, or not at all."""
    found = judge(machine, CHECKED_OUT | {path: content})
    assert verdicts(found)[1] == "conflict"
    assert path in evidence(found, 2)
    assert "done twice, or be missed" in evidence(found, 2)
    assert not found.fits and found.mails == {}
    assert not (machine.folder / "ported").exists()


PLACES = [
    (path, name)
    for path in (DFLASH, EAGLE, ROUTER, "python/sglang/srt/new.py")
    for name in ("prepare", "route", "idle", "fresh")
]
WAYS = (
    b"    {0}.evict()\n",
    b"    {0}.clock += 1\n",
    b"    {0}.clock = {0}.clock + 1\n",
    b"    for r in {0}.all: r.clock += 1\n",
    b"    if {0}: {0}.evict()\n",
)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(place=st.sampled_from(PLACES), way=st.sampled_from(WAYS), top=st.booleans())
def test_a_second_clock_anywhere_is_never_clean(
    machine: Machine, place: tuple[str, str], way: bytes, top: bool
) -> None:
    path, name = place
    source = CHECKED_OUT.get(path, b"")
    head = b"def %s(batch):\n" % name.encode()
    if head not in source:
        source += b"\n\n" + head + b"    pass\n"
    extra = way.replace(b"{0}", b"batch")
    before, _, after = source.partition(head)
    if top:
        source = before + head + extra + after
    else:
        body, blank, rest = after.partition(b"\n\n")
        source = before + head + body.rstrip() + b"\n" + extra + blank + rest
    found = judge(machine, CHECKED_OUT | {path: source})
    for stray in ("python/sglang/srt/new.py",):
        (machine.folder / "tree" / stray).unlink(missing_ok=True)
    assert verdicts(found)[1] in ("conflict", "upstreamed", "partly upstreamed")


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
    found = port(machine.base, locate(site), lambda text: None)
    assert verdicts(found) == ["clean", "moved", "moved"]
    assert set(found.left_out) == {GUARD, TEST}
    folder = str(machine.folder / "ported")
    command = ["port", "v0.5.16", str(site), "--write", folder]
    assert cli.main(command) == Exit.USAGE
    assert "name a full checkout" in capsys.readouterr().err
    assert not Path(folder).exists()


def test_mails_that_cannot_be_are_not_written(machine: Machine, capsys) -> None:
    root = machine.tree(CHECKED_OUT | {DFLASH: LATER[DFLASH]})
    folder = machine.folder / "ported"
    command = ["port", "v0.5.16", str(root), "--write", str(folder)]
    assert cli.main(command) == Exit.CONFLICT
    assert not folder.exists()
    assert "no mails were written" in capsys.readouterr().err


def test_a_folder_that_holds_something_is_not_written_to(machine: Machine) -> None:
    root = machine.tree()
    folder = machine.folder / "ported"
    factories.write_files(folder, {"mine.txt": b"mine\n"})
    command = ["port", "v0.5.16", str(root), "--write", str(folder)]
    assert cli.main(command) == Exit.USAGE
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]


def test_a_shallow_clone_needs_no_past(machine: Machine) -> None:
    """The base's file that wheels do not carry is not to be had."""
    git = machine.checkout()
    fork = {GUARD: SHIFTED + CHECKED_OUT[GUARD], ROUTER: SHIFTED + RELEASED[ROUTER]}
    factories.write_files(git.directory, fork)
    git.run("commit", "-qam", "fork")
    deep = port(machine.base, locate(git.directory), lambda text: None)
    shallow = Git(machine.folder / "shallow")
    url = f"file://{git.directory}"
    git.run("clone", "-q", "--depth", "1", url, str(shallow.directory))
    found = port(machine.base, locate(shallow.directory), lambda text: None)
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
    command = ["port", "v0.5.16", str(root), "--format", form]
    assert cli.main(command) == Exit.FINDINGS
    told = capsys.readouterr().out
    assert "conflict" in told and f"{DFLASH}:5 (prepare) calls evict" in told
    assert ("::error" in told) == (form == "github")


def test_a_tree_with_links_is_refused(machine: Machine, capsys) -> None:
    root = machine.tree()
    (root / EAGLE).unlink()
    (root / EAGLE).symlink_to("/etc/passwd")
    assert cli.main(["port", "v0.5.16", str(root)]) == Exit.PRECONDITION
    assert "symbolic link" in capsys.readouterr().err
