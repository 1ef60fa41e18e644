"""A series goes into a git checkout as commits, and out again."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path

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

from dspark_patches import cli
from dspark_patches.errors import Conflict, Exit, Precondition, Usage
from dspark_patches.git import Git
from dspark_patches.installs.apply import change
from dspark_patches.installs.locate import locate
from dspark_patches.installs.status import Status
from dspark_patches.model import releases

# Since this git a configuration can name hooks, whatever core.hooksPath says.
CONFIGURED_HOOKS = (2, 54)


def change_at(verb: str, git: Git, branch: str = ""):
    return change(locate(git.directory), verb, "", branch)


apply, revert = partial(change_at, "apply"), partial(change_at, "revert")


def head(git: Git) -> str:
    return git.text("rev-parse", "HEAD")


def patch_files(machine: Machine) -> list[Path]:
    return sorted(releases.series_dir(machine.release).glob("*.patch"))


def everything(git: Git) -> tuple:
    """All that a user could miss: files, index, branches, HEAD."""
    return (
        contents(git.directory),
        git.run("ls-files", "-s"),
        git.text("for-each-ref"),
        (git.directory / ".git" / "HEAD").read_bytes(),
    )


def test_one_commit_per_patch_as_git_am_makes_them(machine: Machine) -> None:
    git = machine.checkout()
    twin = Git(machine.folder / "twin")
    shutil.copytree(git.directory, twin.directory)
    released = head(git)
    done = apply(git)
    made = git.text("rev-list", "--reverse", f"{released}..HEAD").split()
    assert done.commits == tuple(made)
    assert (done.head, done.branch) == (head(git), "main")
    assert contents(git.directory) == state(3)
    assert git.text("status", "--porcelain") == ""
    twin.run("am", "-q", *map(str, patch_files(machine)))
    log = ("log", "-3", "--reverse", "--format=%T%n%an %ae %aD%n%B")
    assert git.text(*log) == twin.text(*log)
    assert git.text(*log[:-1], "--format=%s").split("\n") == list(SUBJECTS)


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


@pytest.mark.parametrize("branch", ["main", ""])
def test_there_and_back(machine: Machine, branch: str) -> None:
    """To the very commit, also where HEAD is detached; a second time changes nothing."""
    git = machine.checkout()
    if not branch:
        git.run("checkout", "-q", "--detach")
    before = everything(git)
    assert apply(git).branch == branch
    after = everything(git)
    assert after[0] == state(3)
    assert (after[2] == before[2]) is not bool(branch)
    assert not apply(git).changed
    assert everything(git) == after
    assert revert(git).commits == ()
    assert everything(git) == before
    assert not revert(git).changed


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
    git.run("-c", "user.name=Somebody", "am", "-q", *map(str, patch_files(machine)))
    assert not apply(git).changed
    assert revert(git).changed
    assert contents(git.directory) == state(0)
    assert git.text("status", "--porcelain") == ""


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
    for name in ("-x", "a..b", "a b"):
        with pytest.raises(Usage, match="cannot be the name of a branch"):
            apply(git, name)


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
        (lambda git: write(git, {ROUTER: b"#\n"}), f"has another {ROUTER} than"),
        # git itself does not see this change.
        (lambda git: unseen(git, {ROUTER: b"#\n"}), f"has another {ROUTER} than"),
        (lambda git: staged(git, {ROUTER: b"#\n"}, state(0)), f"another {ROUTER} than"),
        (lambda git: write(git, {HANDOFF: b"#\n"}), f"has another {HANDOFF} than"),
        (lambda git: (git.directory / EAGLE).unlink(), f"has another {EAGLE} than"),
        (lambda git: git.run("rm", "-q", "--cached", EAGLE), f"has another {EAGLE}"),
        (lambda git: write(git, {".git/MERGE_HEAD": b"x\n"}), "under way"),
        (lambda git: write(git, {".git/rebase-merge/x": b""}), "under way"),
    ],
)
def test_a_file_that_is_not_as_in_its_head_is_refused(machine: Machine, spoil, told):
    git = machine.checkout()
    spoil(git)
    before = everything(git)
    with pytest.raises(Precondition, match=told) as caught:
        apply(git)
    assert "--branch" not in caught.value.next_step
    assert everything(git) == before


@pytest.mark.parametrize("verb", ["apply", "revert"])
def test_files_that_the_series_does_not_touch_do_not_matter(
    machine: Machine, verb: str
) -> None:
    """An image's build edits tracked files of its checkout."""
    git = machine.checkout(state(0) | {"python/pyproject.toml": b"cuda 13\n"})
    if verb == "revert":
        apply(git)
    write(git, {"python/pyproject.toml": b"cuda 12\n", "new.txt": b"untracked\n"})
    staged(git, {"README.md": b"staged\n"})
    before = git.text("status", "--porcelain")
    done = change(locate(git.directory), verb)
    assert done.changed
    assert git.text("status", "--porcelain") == before
    found = Status(locate(git.directory))
    assert bool(found.lacking) == (verb == "revert")


def test_files_alone_can_be_changed(machine: Machine) -> None:
    git = machine.checkout()
    before = everything(git)
    target = locate(git.directory)
    assert change(target, "apply", commit=False).changed
    assert contents(git.directory) == state(3)
    assert everything(git)[1:] == before[1:]
    assert not Status(target).lacking
    with pytest.raises(Usage, match="gets no branch"):
        change(target, "apply", "", "new", commit=False)
    # What HEAD has does not hide what runs.
    assert change(target, "revert").changed
    assert everything(git) == before


def write(git: Git, files: dict[str, bytes]) -> None:
    factories.write_files(git.directory, files)


def unseen(git: Git, files: dict[str, bytes]) -> None:
    git.run("update-index", "--assume-unchanged", *files)
    write(git, files)


def staged(git: Git, files: dict[str, bytes], after=None) -> None:
    write(git, files)
    git.run("add", *files)
    write(git, after or {})


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
    assert revert(twin).changed
    assert os.readlink(twin.directory / "link") == "elsewhere"


@pytest.mark.usefixtures("no_pip")
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
            f'[hook "evil"]\ncommand = {run}\nevent = reference-transaction\n'
            "event = post-index-change\n"
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
    for verb in ("status", "port"):
        assert cli.main([verb, str(git.directory)]) == Exit.OK
    assert list(trap.iterdir()) == []
    # A git that has configured hooks runs them, were the configuration read.
    git.run("update-ref", "refs/heads/other", "HEAD")
    version = tuple(map(int, git.text("version").split()[2].split(".")[:2]))
    assert bool(list(trap.iterdir())) == (version >= CONFIGURED_HOOKS)
    # Nor is what it says read at all.
    (git.directory / ".git" / "config").write_bytes(b"[")
    assert apply(git).changed
    assert revert(git).changed


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


@pytest.mark.parametrize(("count", "commits"), [(0, 3), (1, 2)])
def test_a_fork_with_known_files_gets_the_rest(
    machine: Machine, count, commits
) -> None:
    ours = {"fork.txt": b"ours\n", "README.md": b"a fork\n"}
    git = machine.checkout(state(count) | ours)
    assert len(apply(git).commits) == commits
    assert contents(git.directory) == state(3) | ours


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
    with pytest.raises(Precondition, match="git cannot work") as caught:
        apply(git)
    assert caught.value.next_step == "it moved meanwhile: run again"
    assert git.text("log", "-1", "--format=%s") == "meanwhile"
    assert contents(git.directory) == state(0)


def test_another_git_at_work_takes_all_back(machine: Machine) -> None:
    git = machine.checkout()
    write(git, {".git/index.lock": b""})
    before = everything(git)
    with pytest.raises(Precondition, match="git cannot work") as caught:
        apply(git)
    assert "remove that lock" in caught.value.next_step
    assert everything(git) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_somebody_elses_repository(machine: Machine) -> None:
    git = machine.checkout()
    for path in (git.directory, *git.directory.rglob("*")):
        os.lchown(path, 12345, 12345)
    with pytest.raises(Precondition, match="somebody else's checkout") as caught:
        apply(git)
    assert "run as that user, or patch the files alone" in caught.value.next_step
    assert cli.main(["status", str(git.directory)]) == Exit.OK
    assert cli.main(["apply", str(git.directory), "--no-commit"]) == Exit.OK
    assert (git.directory / HANDOFF).stat().st_uid == 12345


def test_no_commit_yet(machine: Machine) -> None:
    root = machine.tree()
    git = Git(root)
    git.run("init", "-q")
    with pytest.raises(Precondition, match="git cannot work"):
        apply(git)


def somebody_elses(git: Git, folder) -> None:
    (git.directory / ".git").rename(folder / "elsewhere")
    (git.directory / ".git").write_text(f"gitdir: {folder / 'elsewhere'}\n")


def link(git: Git, folder) -> None:
    (git.directory / ".git").rename(folder / "elsewhere")
    (git.directory / ".git").symlink_to(folder / "elsewhere")


def config(git: Git, text: str) -> None:
    with (git.directory / ".git" / "config").open("a") as stream:
        stream.write(text)


@pytest.mark.parametrize(
    ("twist", "told"),
    [
        (somebody_elses, "no repository of its own"),
        (link, "no repository of its own"),
        (lambda g, f: config(g, "[extensions]\nobjectFormat=sha256"), "another form"),
        (lambda g, f: config(g, "[extensions]\nrefStorage=reftable"), "another form"),
    ],
)
def test_a_repository_that_is_no_plain_one(machine: Machine, twist, told) -> None:
    git = machine.checkout()
    twist(git, machine.folder)
    with pytest.raises(Precondition, match=told) as caught:
        apply(git)
    assert "--no-commit" in caught.value.next_step
    assert change(locate(git.directory), "apply", commit=False).changed
    assert contents(git.directory).items() >= state(3).items()


def test_without_a_git_files_alone_can_be_changed(
    machine: Machine, monkeypatch
) -> None:
    git = machine.checkout()
    text = Git.text
    old = "git version 2.17.1"
    with monkeypatch.context() as patch:
        patch.setattr(
            Git, "text", lambda s, *a, **o: old if "version" in a else text(s, *a)
        )
        with pytest.raises(Precondition, match="no git that can") as caught:
            apply(git)
        assert caught.value.cause == old
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Precondition, match="no git that can") as caught:
        apply(git)
    assert caught.value.cause == "git was not found"
    assert "--no-commit" in caught.value.next_step
    assert change(locate(git.directory), "apply", commit=False).changed


def test_the_command_names_commits_and_branch(machine: Machine, capsys) -> None:
    git = machine.checkout()
    assert cli.main(["apply", str(git.directory), "--branch", "new"]) == Exit.OK
    told = capsys.readouterr().out
    assert git.text("rev-parse", "new") in told and "branch new" in told
    assert cli.main(["apply", str(git.directory), "--branch", "new"]) == Exit.OK
    told = capsys.readouterr().out
    assert "was already patched" in told and "the work tree is as it was" in told
    assert f"next: git -C {git.directory} switch new" in told
    write(git, {ROUTER: b"#\n"})
    assert cli.main(["apply", str(git.directory)]) == Exit.PRECONDITION
    assert ROUTER in capsys.readouterr().err
