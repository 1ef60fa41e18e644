"""A series goes into a git checkout as commits, and out again."""

from __future__ import annotations

import os
import shutil

import factories
import pytest
from machine import (
    EAGLE,
    GUARD,
    HANDOFF,
    ROUTER,
    SUBJECTS,
    TEST,
    Machine,
    contents,
    state,
)

from dspark_patches import bases, cli
from dspark_patches.change.job import change
from dspark_patches.errors import Conflict, Exit, Precondition, Usage
from dspark_patches.git import Git
from dspark_patches.target.locate import locate


def apply(git: Git, branch: str = ""):
    return change(locate(git.directory), "apply", "", branch)


def revert(git: Git, branch: str = ""):
    return change(locate(git.directory), "revert", "", branch)


def head(git: Git) -> str:
    return git.text("rev-parse", "HEAD")


def everything(git: Git) -> tuple:
    """All that a user could miss: files, index, branches, HEAD."""
    return (
        contents(git.directory),
        git.run("ls-files", "-s"),
        git.text("for-each-ref"),
        (git.directory / ".git" / "HEAD").read_bytes(),
    )


def test_one_commit_per_patch(machine: Machine) -> None:
    git = machine.checkout()
    released = head(git)
    done = apply(git)
    assert done.commits == tuple(
        git.text("rev-list", "--reverse", f"{released}..HEAD").split()
    )
    assert git.text("log", "--reverse", "--format=%s", f"{released}..").split(
        "\n"
    ) == list(SUBJECTS)
    assert (done.head, done.branch) == (head(git), "main")
    assert contents(git.directory) == state(3)
    assert git.text("status", "--porcelain") == ""


def test_commits_are_those_of_git_am(machine: Machine) -> None:
    git = machine.checkout()
    twin = Git(machine.folder / "twin")
    shutil.copytree(git.directory, twin.directory)
    done = apply(git)
    mails = sorted(bases.series_dir(machine.base).glob("*.patch"))
    twin.run("am", "-q", *map(str, mails))
    for here, there in zip(done.commits, twin.text("rev-list", "HEAD").split()[2::-1]):
        tree = "%T%n%an %ae %aD%n%B"
        assert git.text("log", "-1", f"--format={tree}", here) == twin.text(
            "log", "-1", f"--format={tree}", there
        )


def test_ids_are_the_same_for_everybody(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, hostile: str
) -> None:
    git = machine.checkout()
    twin = Git(machine.folder / "twin")
    shutil.copytree(git.directory, twin.directory)
    with (twin.directory / ".git" / "config").open("a") as stream:
        stream.write(hostile)
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2001-01-01T00:00:00Z")
    assert apply(git).commits == apply(twin).commits
    assert contents(twin.directory) == state(3)


def test_revert_goes_back_to_the_very_commit(machine: Machine) -> None:
    git = machine.checkout()
    before = everything(git)
    apply(git)
    done = revert(git)
    assert done.commits == ()
    assert everything(git) == before


def test_revert_keeps_what_came_on_top(machine: Machine) -> None:
    git = machine.checkout()
    apply(git)
    factories.write_files(git.directory, {"more.txt": b"mine\n"})
    git.run("add", "more.txt")
    git.run("commit", "-qm", "mine")
    top = head(git)
    done = revert(git)
    assert done.commits == (head(git),)
    assert git.text("rev-parse", "HEAD^") == top
    assert contents(git.directory) == state(0) | {"more.txt": b"mine\n"}
    assert all(subject in git.text("log", "-1") for subject in SUBJECTS)


def test_revert_of_what_git_am_applied(machine: Machine) -> None:
    git = machine.checkout()
    mails = sorted(bases.series_dir(machine.base).glob("*.patch"))
    git.run("-c", "user.name=Somebody", "am", "-q", *map(str, mails))
    assert not apply(git).changed
    assert revert(git).changed
    assert contents(git.directory) == state(0)
    assert git.text("status", "--porcelain") == ""


def test_a_second_apply_changes_nothing(machine: Machine) -> None:
    git = machine.checkout()
    apply(git)
    before = everything(git)
    assert not apply(git).changed
    assert everything(git) == before
    revert(git)
    assert not revert(git).changed


def test_a_branch_leaves_all_else_alone(machine: Machine) -> None:
    git = machine.checkout()
    factories.write_files(git.directory, {ROUTER: b"work under way\n"})
    factories.write_files(git.directory, {"new.txt": b"untracked\n"})
    before = everything(git)
    done = apply(git, "patched")
    files, index, refs, symbolic = everything(git)
    assert (files, index, symbolic) == (before[0], before[1], before[3])
    assert git.text("rev-parse", "patched") == done.head
    assert not apply(git, "patched").changed
    git.run("branch", "other")
    with pytest.raises(Precondition, match="the branch other exists already"):
        apply(git, "other")
    for name in ("-x", "a..b", "a b", ""):
        if name:
            with pytest.raises(Usage, match="cannot be the name of a branch"):
                apply(git, name)


def test_a_detached_head_moves(machine: Machine) -> None:
    git = machine.checkout()
    git.run("checkout", "-q", "--detach")
    released = git.text("rev-parse", "main")
    assert apply(git).branch == ""
    assert git.text("rev-parse", "main") == released
    assert contents(git.directory) == state(3)
    revert(git)
    assert head(git) == released


def test_a_linked_work_tree(machine: Machine) -> None:
    git = machine.checkout()
    other = Git(machine.folder / "linked")
    git.run("worktree", "add", "-q", "-b", "side", str(other.directory))
    before = everything(git)
    apply(other)
    assert contents(other.directory) == state(3)
    assert contents(git.directory) == before[0]
    assert head(git) != head(other)
    revert(other)
    assert head(git) == head(other)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda git: write(git, {ROUTER: b"#\n"}), "changes that no commit holds"),
        (lambda git: write(git, {"README.md": b"#\n"}), "changes that no commit"),
        (lambda git: staged(git, {"README.md": b"#\n"}), "staged changes"),
        (lambda git: staged(git, {"new.txt": b"#\n"}), "staged changes"),
        (lambda git: write(git, {HANDOFF: b"#\n"}), f"has another {HANDOFF}"),
        (lambda git: (git.directory / "README.md").unlink(), "changes that no"),
        (lambda git: git.run("rm", "-q", "--cached", "README.md"), "staged changes"),
        (lambda git: write(git, {".git/MERGE_HEAD": b"x\n"}), "a merge under way"),
        (lambda git: write(git, {".git/rebase-merge/x": b""}), "a rebase under way"),
    ],
)
def test_a_work_tree_that_holds_more_is_refused(machine: Machine, spoil, told) -> None:
    git = machine.checkout()
    spoil(git)
    before = everything(git)
    with pytest.raises(Precondition, match=told) as caught:
        apply(git)
    assert "--branch NAME" in caught.value.next_step
    assert everything(git) == before


def write(git: Git, files: dict[str, bytes]) -> None:
    factories.write_files(git.directory, files)


def staged(git: Git, files: dict[str, bytes]) -> None:
    write(git, files)
    git.run("add", *files)


def test_an_assumed_unchanged_file_is_not_overwritten(machine: Machine) -> None:
    """git itself does not see this change."""
    git = machine.checkout()
    git.run("update-index", "--assume-unchanged", ROUTER)
    write(git, {ROUTER: b"mine\n"})
    with pytest.raises(Precondition, match=f"has another {ROUTER}"):
        apply(git)
    assert (git.directory / ROUTER).read_bytes() == b"mine\n"


def test_other_untracked_files_are_no_hindrance(machine: Machine) -> None:
    git = machine.checkout()
    write(git, {"notes.txt": b"mine\n"})
    apply(git)
    assert (git.directory / "notes.txt").read_bytes() == b"mine\n"


def test_a_copied_checkout_is_clean(machine: Machine) -> None:
    """Its files have other times and numbers than its index knows."""
    git = machine.checkout(state(0) | {"with space.txt": b"x\n"})
    (git.directory / "link").symlink_to("README.md")
    git.run("add", "-A")
    git.run("commit", "-qm", "link")
    twin = Git(machine.folder / "twin")
    shutil.copytree(git.directory, twin.directory, symlinks=True)
    assert apply(twin).changed
    (twin.directory / "link").unlink()
    (twin.directory / "link").symlink_to("elsewhere")
    with pytest.raises(Precondition, match="changes that no commit holds"):
        revert(twin)


def test_a_repository_runs_nothing_of_its_own(machine: Machine) -> None:
    """Filters, hooks, monitors, drivers: all that its configuration can name."""
    git = machine.checkout(
        state(0) | {".gitattributes": b"* filter=evil diff=evil merge=evil\n"}
    )
    trap = machine.folder / "trap"
    trap.mkdir()
    run = machine.folder / "run"
    run.write_text(f"#!/bin/sh\ntouch {trap}/$$\ncat\n")
    run.chmod(0o755)
    with (git.directory / ".git" / "config").open("a") as stream:
        stream.write(
            f'[filter "evil"]\nclean = {run}\nsmudge = {run}\nprocess = {run}\n'
            "required = true\n"
            f'[diff "evil"]\ncommand = {run}\ntextconv = {run}\n'
            f'[merge "evil"]\ndriver = {run}\n'
            f"[core]\nfsmonitor = {run}\nhooksPath = {machine.folder}/hooks\n"
            f"pager = {run}\neditor = {run}\nsshCommand = {run}\n"
            f"[gpg]\nprogram = {run}\n[log]\nshowSignature = true\n"
            f"[commit]\ngpgSign = true\n[diff]\nexternal = {run}\n"
            f'[remote "origin"]\nurl = "ext::{run}"\npromisor = true\n'
            "[protocol]\nallow = always\n[extensions]\npartialClone = origin\n"
        )
    hooks = ("post-index-change", "reference-transaction", "pre-commit")
    for hook in hooks:
        for folder in (machine.folder / "hooks", git.directory / ".git" / "hooks"):
            folder.mkdir(exist_ok=True)
            (folder / hook).write_bytes(run.read_bytes())
            (folder / hook).chmod(0o755)
    for path in git.directory.rglob("*.py"):
        os.utime(path, (1, 1))
    assert apply(git).changed
    assert revert(git).changed
    assert apply(git, "branch").changed
    assert cli.main(["status", str(git.directory)]) == Exit.OK
    assert list(trap.iterdir()) == []


def test_a_partial_clone_fetches_nothing(machine: Machine) -> None:
    git = machine.checkout()
    blob = git.text("rev-parse", f"HEAD:{EAGLE}")
    objects = git.directory / ".git" / "objects"
    (objects / blob[:2] / blob[2:]).unlink()
    with pytest.raises(Precondition, match="lacks a file of its HEAD") as caught:
        apply(git)
    assert blob in caught.value.cause


def test_a_shallow_clone_will_do(machine: Machine) -> None:
    git = machine.checkout({"README.md": b"before\n"})
    write(git, state(0))
    git.run("add", "-A")
    git.run("commit", "-qm", "release")
    shallow = Git(machine.folder / "shallow")
    url = f"file://{git.directory}"
    git.run("clone", "-q", "--depth", "1", url, str(shallow.directory))
    assert apply(shallow).changed
    assert contents(shallow.directory) == state(3)
    assert revert(shallow).changed
    assert head(shallow) == head(git)


def test_a_fork_with_files_as_released_will_do(machine: Machine) -> None:
    files = state(0) | {"fork.txt": b"ours\n", "README.md": b"a fork\n"}
    git = machine.checkout(files)
    apply(git)
    assert contents(git.directory) == files | state(3) | {"README.md": b"a fork\n"}


def test_the_rest_of_a_series_is_added(machine: Machine) -> None:
    git = machine.checkout(state(1))
    done = apply(git)
    assert len(done.commits) == 2
    assert contents(git.directory) == state(3)


def test_a_later_patch_alone_is_refused(machine: Machine) -> None:
    files = state(0) | {p: state(2)[p] for p in (ROUTER, EAGLE, GUARD, TEST)}
    git = machine.checkout(files)
    with pytest.raises(Conflict, match="is applied, though an earlier") as caught:
        apply(git)
    assert "revert" in caught.value.next_step
    revert(git)
    assert contents(git.directory) == state(0)


def test_a_head_that_moves_meanwhile_keeps_what_it_has(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    git = machine.checkout()
    text = Git.text

    def racing(self, *args, **options):
        if args[:1] == ("commit-tree",) and not raced:
            raced.append(True)
            git.run("commit", "-q", "--allow-empty", "-m", "meanwhile")
        return text(self, *args, **options)

    raced: list[bool] = []
    monkeypatch.setattr(Git, "text", racing)
    with pytest.raises(Conflict, match="HEAD of .* moved meanwhile"):
        apply(git)
    assert git.text("log", "-1", "--format=%s") == "meanwhile"
    assert contents(git.directory) == state(0)


def test_another_git_at_work_takes_all_back(machine: Machine) -> None:
    git = machine.checkout()
    write(git, {".git/index.lock": b""})
    before = everything(git)
    with pytest.raises(Precondition, match="git cannot work") as caught:
        apply(git)
    assert "index.lock" in caught.value.next_step
    assert everything(git) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_somebody_elses_repository(machine: Machine) -> None:
    git = machine.checkout()
    for path in (git.directory, *git.directory.rglob("*")):
        os.lchown(path, 12345, 12345)
    if git.succeeds("rev-parse", "HEAD"):
        pytest.skip("this git trusts every owner")
    with pytest.raises(Precondition, match="git cannot work") as caught:
        apply(git)
    assert "run as the owner" in caught.value.next_step
    assert cli.main(["status", str(git.directory)]) == Exit.OK


def test_no_commit_yet(machine: Machine) -> None:
    root = machine.tree()
    git = Git(root)
    git.run("init", "-q")
    with pytest.raises(Precondition, match="git cannot work"):
        apply(git)


def test_an_old_git_is_refused(machine: Machine, monkeypatch) -> None:
    git = machine.checkout()
    text = Git.text

    def old(self, *args, **options):
        return "git version 2.17.1" if args == ("version",) else text(self, *args)

    monkeypatch.setattr(Git, "text", old)
    with pytest.raises(Precondition, match="2.17.1 is too old"):
        apply(git)


def test_the_command_names_commits_and_branch(machine: Machine, capsys) -> None:
    git = machine.checkout()
    assert cli.main(["apply", str(git.directory), "--branch", "new"]) == Exit.OK
    told = capsys.readouterr().out
    assert git.text("rev-parse", "new") in told and "branch new" in told
    write(git, {ROUTER: b"#\n"})
    assert cli.main(["apply", str(git.directory)]) == Exit.PRECONDITION
    assert ROUTER in capsys.readouterr().err
