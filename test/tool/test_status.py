"""Which release a target is, and which patches it has, told by content alone."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from machine import (
    EAGLE,
    GUARD,
    HANDOFF,
    KIT,
    LATER,
    RELEASED,
    ROUTER,
    TEST,
    Machine,
    state,
)

from dspark_patches import cli
from dspark_patches.errors import Exit, Usage
from dspark_patches.files import MAX_BYTES
from dspark_patches.installs.locate import locate
from dspark_patches.installs.status import Status


def states(found: Status) -> list[str]:
    return [patch.state for patch in found.patches]


def notes(found: Status) -> str:
    return "\n".join(note for patch in found.patches for note in patch.notes)


@pytest.mark.parametrize("count", range(4))
def test_each_patch_is_told(machine: Machine, count: int) -> None:
    checkout = locate(machine.checkout(state(count)).directory)
    package = machine.package(state(count))
    for target, left_out in ((checkout, set()), (package, {GUARD, TEST})):
        found = Status(target)
        assert found.release == "v0.5.16"
        assert states(found) == ["applied"] * count + ["missing"] * (3 - count)
        assert [patch.needed for patch in found.patches] == [False, True, True]
        assert set(found.left_out) == left_out
    assert (checkout.kind, package.kind) == ("checkout", "package")
    in_full = Exit.OK if count == 3 else Exit.FINDINGS
    assert (found.exit_code(True), found.exit_code(False)) == (in_full, Exit.OK)


def test_a_plain_tree_without_tests_leaves_them_out(machine: Machine) -> None:
    found = Status(locate(machine.tree(RELEASED)))
    assert (found.target.kind, found.release) == ("tree", "v0.5.16")
    assert set(found.left_out) == {GUARD, TEST}
    (machine.folder / "tree" / "test").mkdir()
    assert Status(locate(machine.folder / "tree")).left_out == ()


def test_a_release_with_the_fix_does_not_need_it(machine: Machine) -> None:
    files = LATER | {EAGLE: LATER[EAGLE] + b"# later\n"}
    found = Status(locate(machine.site(files, "0.5.17")))
    assert found.release == "v0.5.17"
    told = {patch.name: patch.state for patch in found.patches}
    assert told == {
        "0001-add-a-kit": "missing",
        "give-the-clock-one-owner": "not needed",
        "hand-a-batch-over": "not needed",
    }
    assert found.exit_code(require=True) == Exit.OK


@pytest.mark.parametrize(
    ("path", "content", "told"),
    [
        (ROUTER, RELEASED[ROUTER][:-5], "neither as released nor as patched"),
        (ROUTER, b"", "neither as released nor as patched"),
        (EAGLE, None, "it is not there"),
        (HANDOFF, b"def build(): ...\n", "another file stands there"),
        (EAGLE, b"x" * (MAX_BYTES + 1), "is larger than"),
    ],
)
@pytest.mark.parametrize("count", [0, 3])
def test_a_changed_file_is_unclear_never_guessed(
    machine: Machine, path: str, content: bytes | None, told: str, count: int
) -> None:
    root = machine.site(state(count))
    file = root / path.removeprefix("python/")
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    found = Status(locate(root))
    assert "unclear" in states(found)
    assert told in notes(found)
    assert path in found.strange
    assert found.exit_code(require=False) == Exit.FINDINGS
    assert found.exit_code(require=True) == Exit.FINDINGS


def test_half_of_a_patch_is_partly_applied(machine: Machine) -> None:
    files = state(1) | {EAGLE: state(2)[EAGLE]}
    found = Status(machine.package(files))
    assert states(found) == ["applied", "partly applied", "missing"]
    assert notes(found) == f"{ROUTER}: without it"
    assert found.exit_code(require=False) == Exit.FINDINGS


def test_equal_installs_have_one_fingerprint(machine: Machine, capsys) -> None:
    one, other = machine.site(state(3)), machine.folder / "other"
    shutil.copytree(one, other)
    told = Status(locate(one)).fingerprint
    for site, expected in ((other, Exit.OK), (machine.site(state(2)), Exit.FINDINGS)):
        for more in ((), ("--require",)):
            asked = ["status", str(site), *more, "--same-as", told]
            assert cli.main(asked) == expected
    assert f"the fingerprint is not {told}" in capsys.readouterr().out


def test_a_missing_kit_is_not_required(machine: Machine) -> None:
    files = {path: content for path, content in state(3).items() if path != KIT}
    found = Status(machine.package(files))
    assert states(found) == ["missing", "applied", "applied"]
    assert found.exit_code(require=True) == Exit.OK


def test_a_fork_is_no_known_release(machine: Machine) -> None:
    files = state(0) | {GUARD: b"# forked\n", ROUTER: b"#\n" + state(0)[ROUTER]}
    found = Status(locate(machine.tree(files)))
    assert (found.release, found.near) == ("", "v0.5.16")
    assert found.exit_code(require=False) == Exit.PRECONDITION
    assert "2 of the 4 places" in found.how
    files |= {path: b"# forked\n" for path in (ROUTER, EAGLE)}
    assert Status(locate(machine.tree(files))).near == ""


BY_FILES = "by the 2 files that its series edits"


@pytest.mark.parametrize(
    ("version", "how"),
    [
        ("0.5.16", "by its version 0.5.16 and its 2 edited files"),
        ("0.5.16+cu130", "by its version 0.5.16+cu130 and its 2 edited files"),
        ("0.5.17", BY_FILES),
        ("0.5.16.post1", BY_FILES),
        ("0.6.0", BY_FILES),
        ("no version", BY_FILES),
    ],
)
def test_files_speak_louder_than_a_version(machine: Machine, version, how) -> None:
    site = machine.site()
    metadata = site / "sglang-0.5.16.dist-info" / "METADATA"
    metadata.write_text(f"Name: sglang\nVersion: {version}\n")
    found = Status(locate(site))
    assert (found.release, found.how) == ("v0.5.16", how)


def test_a_release_can_be_named(machine: Machine) -> None:
    target = locate(machine.tree(state(0) | {ROUTER: b"#\n", EAGLE: b"#\n"}))
    assert Status(target, "v0.5.16").release == "v0.5.16"
    with pytest.raises(Usage, match="did you mean|no release is called"):
        Status(target, "v0.5.61")


def test_links_are_read_and_said(machine: Machine) -> None:
    site = machine.site(state(3))
    file = site / "sglang/srt/router.py"
    elsewhere = machine.folder / "cache.py"
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    assert states(Status(locate(site))) == ["applied"] * 3
    assert list(Status(locate(site)).blocked) == [ROUTER]
    elsewhere.unlink()
    found = Status(locate(site))
    assert "symbolic link that leads nowhere" in notes(found)


def test_a_pipe_neither_blocks_nor_passes(machine: Machine) -> None:
    site = machine.site()
    (site / "sglang/srt/router.py").unlink()
    os.mkfifo(site / "sglang/srt/router.py")
    assert "not a regular file" in notes(Status(locate(site)))


def test_nothing_of_the_target_is_imported_or_written(machine: Machine) -> None:
    site = machine.site(RELEASED | {"python/sglang/__init__.py": b"raise SystemExit"})
    before = sorted(str(path) for path in site.rglob("*"))
    done = cli.main(["status", str(site), "--format", "json"])
    assert done == Exit.OK
    assert sorted(str(path) for path in site.rglob("*")) == before
    assert "sglang" not in sys.modules


@pytest.mark.parametrize("form", ["text", "json", "github"])
def test_every_format_names_what_is_missing(machine: Machine, capsys, form) -> None:
    site = machine.site()
    assert cli.main(["status", str(site), "--require", "--format", form]) == 1
    told = capsys.readouterr().out
    assert "0002-give-the-clock-one-owner" in told
    assert ("::error" in told) == (form == "github")
    assert "apply" in told or form == "json"


def test_no_sglang_at_all(tmp_path: Path, capsys) -> None:
    assert cli.main(["status", str(tmp_path)]) == Exit.USAGE
    assert "holds no SGLang" in capsys.readouterr().err
