"""Work trees with one commit per patch, made to be edited and read back.

Two refs, private to the work tree, say where its commits begin and what they
were when it was made, so that reading back can tell what changed since.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ..errors import Precondition, Usage
from ..git import Git, GitError
from ..model.diff import ZEROS
from ..model.releases import Release
from ..model.series import Series, chain, in_wheels
from ..trees.workshop import Workshop
from .export import file_modes

RELEASE_REF = "refs/worktree/dspark-patches/release"
START_REF = "refs/worktree/dspark-patches/start"

_BRANCH = "series"
_FIELDS = "%H%x00%P%x00%T%x00%aD%x00%B"
# What git keeps in its folder while a rebase or the like is under way.
_UNDER_WAY = ("rebase-merge", "rebase-apply", "MERGE_HEAD", "CHERRY_PICK_HEAD")


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """A commit of a work tree; ``date`` is its author's."""

    id: str
    parent: str
    tree: str
    date: str
    message: str

    @property
    def subject(self) -> str:
        """The message's first line."""
        return self.message.split("\n", 1)[0]


def from_wheel(series: Series, released: Path, target: Path) -> tuple[str, ...]:
    """Make a new repository from a release's Python files.

    Args:
        series: the series; one commit per patch.
        released: the folder that holds the released ``python/sglang``.
        target: the work tree to make.

    Returns:
        The edited files that wheels do not carry; their sections are left out.

    Raises:
        Usage: ``target`` exists and is not empty.
        Conflict: a patch was not written for the released files.
    """
    _must_be_free(target)
    left_out = {
        path
        for path, link in chain(series).items()
        if link.old != ZEROS and not in_wheels(path)
    }
    target.mkdir(parents=True, exist_ok=True)
    try:
        _fill(series, released, target, left_out)
    except BaseException:
        # It was free before: nothing in it is anybody's but ours.
        shutil.rmtree(target, ignore_errors=True)
        raise
    return tuple(sorted(left_out))


def from_checkout(
    series: Series, release: Release, checkout: Path, target: Path
) -> None:
    """Add a work tree to a full checkout of SGLang, at the release's tag.

    Args:
        series: the series; one commit per patch.
        release: the release.
        checkout: the checkout; its own files, index and branches stay as they are.
        target: the work tree to make.

    Raises:
        Usage: ``target`` exists and is not empty.
        Precondition: the checkout is none, or lacks the tag or has another.
        Conflict: a patch was not written for the tag's files.
    """
    _must_be_free(target)
    git = Git(checkout)
    commit = _tagged(git, release, checkout)
    git_dir = Path(git.text("rev-parse", "--path-format=absolute", "--git-common-dir"))
    with _workshop(git_dir) as shop:
        tip = _build(shop, series, commit, ())
    git.run("worktree", "add", "-q", "--detach", str(target.absolute()), tip)
    _mark(Git(target), commit, tip)


def commits(tree: Path, until: str = "HEAD") -> tuple[Commit, ...]:
    """The commits of a work tree that came on top of its release, oldest first.

    Args:
        tree: a work tree that :func:`from_wheel` or :func:`from_checkout` made.
        until: the last commit.

    Raises:
        Precondition: it is no such work tree, has changes that no commit
            holds, a merge, or something under way.
    """
    git = Git(tree)
    if not git.succeeds("rev-parse", "-q", "--verify", RELEASE_REF):
        raise Precondition(
            f"{tree} is no work tree of ours",
            next_step="make one with `dspark-patches edit RELEASE`",
        )
    _must_be_at_rest(git, tree)
    if not git.succeeds("merge-base", "--is-ancestor", RELEASE_REF, until):
        raise Precondition(f"{tree} does not stand on the release any more")
    span = f"{RELEASE_REF}..{until}"
    if git.text("rev-list", "--min-parents=2", span):
        raise Precondition(
            f"{tree} has a merge among its commits",
            next_step="make the commits a line with `git rebase`",
        )
    ids = git.text("rev-list", "--reverse", span).split()
    return tuple(_commit(git, commit) for commit in ids)


def files(tree: Path, commit: str, paths: Collection[str]) -> dict[str, bytes]:
    """The content of those ``paths`` that a commit has."""
    git = Git(tree)
    found = {}
    for path in paths:
        if listed := git.text("ls-tree", commit, "--", path):
            found[path] = git.run("cat-file", "blob", listed.split()[2])
    return found


def objects(tree: Path) -> Path:
    """Where the repository of a work tree keeps its objects."""
    return Path(
        Git(tree).text("rev-parse", "--path-format=absolute", "--git-path", "objects")
    )


@contextmanager
def _workshop(git_dir: Path) -> Iterator[Workshop]:
    with tempfile.TemporaryDirectory(prefix="dspark-patches-") as scratch:
        yield Workshop(git_dir, Path(scratch) / "index")


def _fill(
    series: Series, released: Path, target: Path, left_out: Collection[str]
) -> None:
    git = Git(target)
    git.run("init", "-q", "-b", _BRANCH, "--template=", "--object-format=sha1")
    # What a maintainer commits here must come out as it went in.
    git.run("config", "core.autocrlf", "false")
    executables = [
        path
        for path, mode in file_modes(series).items()
        if mode == "100755" and (released / path).is_file()
    ]
    with _workshop(target / ".git") as shop:
        name = f"SGLang {series.release}"
        release = shop.snapshot(released, "python", executables, name)
        tip = _build(shop, series, release, left_out)
    git.run("update-ref", f"refs/heads/{_BRANCH}", tip)
    git.run("checkout", "-q", _BRANCH)
    _mark(git, release, tip)


def _build(
    shop: Workshop, series: Series, release: str, left_out: Collection[str]
) -> str:
    shop.load(release)
    commit = release
    for patch in series.patches:
        sections = [s for s in patch.file.sections if s.path not in left_out]
        shop.apply(sections, f"{series.release}/{patch.name}.patch")
        commit = shop.commit(commit, patch.file)
    return commit


def _mark(git: Git, release: str, tip: str) -> None:
    git.run("update-ref", RELEASE_REF, release)
    git.run("update-ref", START_REF, tip)


def _must_be_free(target: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise Usage(
            f"{target} exists and is not empty",
            next_step="name a folder that does not exist yet",
        )


def _must_be_at_rest(git: Git, tree: Path) -> None:
    for name in _UNDER_WAY:
        path = git.text("rev-parse", "--path-format=absolute", "--git-path", name)
        if Path(path).exists():
            raise Precondition(
                f"{tree} has a rebase, merge or cherry-pick under way",
                next_step="finish or abort it, and run again",
            )
    if changes := git.text("status", "--porcelain"):
        raise Precondition(
            f"{tree} has changes that no commit holds",
            cause=changes,
            next_step="commit or drop them, and run again",
        )


def _tagged(git: Git, release: Release, checkout: Path) -> str:
    try:
        commit = git.text("rev-parse", "--verify", "-q", f"{release.tag}^{{commit}}")
    except (GitError, NotADirectoryError, FileNotFoundError) as error:
        raise Precondition(
            f"{checkout} is no checkout that has the tag {release.tag}",
            next_step=f"run `git fetch origin tag {release.tag} --no-tags` there",
        ) from error
    if release.commit and commit != release.commit:
        raise Precondition(
            f"the tag {release.tag} in {checkout} is not SGLang's",
            cause=f"it is {commit}; SGLang's is {release.commit}",
        )
    return commit


def _commit(git: Git, commit: str) -> Commit:
    shown = git.text("log", "-1", "--no-show-signature", f"--format={_FIELDS}", commit)
    id, parent, tree, date, message = shown.split("\0", 4)
    return Commit(id=id, parent=parent, tree=tree, date=date, message=message)
