"""A git checkout that is read and moved on without running anything of its own.

git works in a directory of ours that leads to the objects and refs of the
checkout's. Of that one's settings, hooks, filters and remotes it sees none, so
that nothing that it names is run.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import Precondition, Usage
from ..git import MINIMUM_VERSION, Git, GitError
from ..model.diff import ZEROS
from ..trees.workshop import Workshop
from .confined import FileState

FILES_ALONE = "patch the files alone, with --no-commit"

Paths = Collection[str]

_CONFIG = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n"
_SHARED = ("objects", "refs", "packed-refs", "logs", "shallow")
# What says the format of a repository; ours can lead to git's default alone.
_FORMAT = r"^extensions\.(objectformat|refstorage)$"
_BEGUN = "rebase-merge rebase-apply MERGE_HEAD CHERRY_PICK_HEAD REVERT_HEAD".split()
_OTHER = FileState("", "it is a link, a submodule or in conflict")


class Repository:
    """A checkout, and the commit that it stands at, ``head``.

    Raises:
        Precondition: git is too old, or it is no repository that we can use; all
            else that git refuses is one as well.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        scratch = Path(tempfile.mkdtemp(prefix="dspark-patches-"))
        weakref.finalize(self, shutil.rmtree, scratch, ignore_errors=True)
        self._own, shared = _folders(root)
        self._common = scratch / "git"
        _lead(root, shared, self._common)
        where = {"GIT_DIR": str(self._own), "GIT_COMMON_DIR": str(self._common)}
        self._git = Git(root, where)
        with self._refused():
            self.head = self._git.text("rev-parse", "--verify", "-q", "HEAD^{commit}")

    @property
    def begun(self) -> list[Path]:
        """The traces of a merge, rebase or the like that is under way."""
        return [self._own / name for name in _BEGUN if (self._own / name).exists()]

    @property
    def branch(self) -> str:
        """The current branch; empty when HEAD is detached."""
        return self._answer("symbolic-ref", "-q", "--short", "HEAD")

    def commit(self, name: str) -> str:
        """The commit that a name stands for; empty where there is none."""
        return self._answer("rev-parse", "--verify", "-q", f"{name}^{{commit}}")

    def states(self, paths: Paths, commit: str = "HEAD") -> dict[str, FileState]:
        """What a commit has at each of ``paths``."""
        return self._states(paths, "ls-tree", "-r", "-z", commit)

    def staged(self, paths: Paths) -> dict[str, FileState]:
        """What the index has at each of ``paths``."""
        return self._states(paths, "ls-files", "-s", "-z")

    def below(self, folder: str) -> dict[str, FileState]:
        """What the commit has at each path below a folder."""
        return dict(self._told([folder], "ls-tree", "-r", "-z", self.head))

    def content(self, blob: str) -> bytes:
        """The content of a blob; Precondition where it is not here."""
        content = self.find(blob)
        if content is None:
            what, why = (
                f"{self.root} lacks a file of its HEAD",
                f"there is no blob {blob}",
            )
            hint = "fetch it, as with `git checkout HEAD -- .`"
            raise Precondition(what, cause=why, next_step=hint)
        return content

    def find(self, blob: str) -> bytes | None:
        """The content of a blob; None when it is not here."""
        try:
            return self._git.run("cat-file", "blob", blob)
        except GitError:
            return None

    @contextmanager
    def workshop(self, commit: str) -> Iterator[Workshop]:
        """Where commits are built; its index holds the tree of ``commit``."""
        with tempfile.TemporaryDirectory(prefix="dspark-patches-") as scratch:
            with self._refused():
                shop = Workshop(self._common, Path(scratch) / "index")
                shop.load(commit)
                yield shop

    def create_branch(self, name: str, commit: str) -> bool:
        """Let a new branch stand at ``commit``; False when it already does."""
        ref = f"refs/heads/{name}"
        if name.startswith("-") or not self._git.succeeds("check-ref-format", ref):
            raise Usage(f"{name!r} cannot be the name of a branch")
        if found := self.commit(ref):
            if found == commit:
                return False
            hint = "choose another name, or remove it"
            raise Precondition(f"the branch {name} exists already", next_step=hint)
        with self._refused():
            self._git.run("update-ref", ref, commit, ZEROS)
        return True

    def follow(self, paths: Paths, commit: str, message: str) -> None:
        """Bring the index's ``paths`` and ``HEAD`` to a commit; the ref last.

        If that fails both are as they were.
        """
        with self._refused():
            before = self._git.run("ls-files", "-s", "-z", "--", *paths)
            if self.staged(paths) != self.states(paths, commit):
                wanted = self._git.run("ls-tree", "-r", "-z", commit, "--", *paths)
                self._index(paths, wanted)
            if commit == self.head:
                return
            try:
                self._git.run("update-ref", "-m", message, "HEAD", commit, self.head)
            except BaseException:
                self._index(paths, before)
                raise

    def _index(self, paths: Paths, entries: bytes) -> None:
        """Let the index have these entries of ``paths``, and no others."""
        gone = "".join(f"0 {ZEROS}\t{path}\0" for path in paths).encode()
        self._git.run("update-index", "-z", "--index-info", stdin=gone + entries)

    def _answer(self, *ask: str) -> str:
        try:
            return self._git.text(*ask)
        except GitError:
            return ""

    def _states(self, paths: Paths, *ask: str) -> dict[str, FileState]:
        states = dict.fromkeys(paths, FileState(ZEROS))
        # Of no path, git would tell of all.
        told = self._told(paths, *ask) if paths else ()
        states.update((path, state) for path, state in told if path in states)
        return states

    def _told(self, paths: Paths, *ask: str) -> Iterator[tuple[str, FileState]]:
        """The state of each path, from git's lines of a mode, facts and a path."""
        with self._refused():
            output = self._git.run(*ask, "--", *paths)
        for line in output.decode("utf-8", "surrogateescape").split("\0")[:-1]:
            facts, path = line.split("\t", 1)
            mode, *facts = facts.split()
            blob = next(fact for fact in facts if len(fact) == len(ZEROS))
            plain = mode.startswith("100") and {"0", "blob"} & {*facts}
            yield path, FileState(blob) if plain else _OTHER

    @contextmanager
    def _refused(self) -> Iterator[None]:
        try:
            yield
        except GitError as error:
            said = error.stderr.strip()
            hint = FILES_ALONE
            if ".lock" in said:
                hint = "when no git runs there, remove that lock, and run again"
            elif "but expected" in said:
                hint = "it moved meanwhile: run again"
            what = f"git cannot work in {self.root}"
            raise Precondition(what, cause=said, next_step=hint) from error


def _folders(root: Path) -> tuple[Path, Path]:
    """A checkout's git directory, and the one that its work trees share."""
    git_dir = common = root / ".git"
    own = git_dir.is_dir() and not git_dir.is_symlink()
    if git_dir.is_file():
        git_dir = root / _text(git_dir).removeprefix("gitdir: ")
        common = git_dir / _text(git_dir / "commondir")
        # A linked work tree is named by its repository as well.
        back = _text(git_dir / "gitdir")
        own = bool(back) and (git_dir / back).resolve() == (root / ".git").resolve()
    if not own:
        what = f"{root} has no repository of its own"
        raise Precondition(what, next_step=FILES_ALONE)
    for folder in (root, git_dir, common):
        if (owner := folder.stat().st_uid) != os.geteuid():
            what, why = f"{root} is somebody else's checkout", f"{folder} belongs to"
            hint = f"run as that user, or {FILES_ALONE}"
            raise Precondition(what, cause=f"{why} the user {owner}", next_step=hint)
    return git_dir, common


def _text(path: Path) -> str:
    with suppress(OSError):
        return path.read_bytes()[:4096].decode("utf-8", "surrogateescape").strip()
    return ""


def _lead(root: Path, shared: Path, common: Path) -> None:
    """Make a common git directory, ``common``, that leads to ``shared``."""
    # Where no repository is found, whose configuration git would read.
    ask = Git(Path("/")).text
    said = ask("version") if shutil.which("git") else "git was not found"
    if tuple(map(int, re.findall(r"\d+", said)[:2])) < MINIMUM_VERSION:
        hint = "install git {}.{}, or {}".format(*MINIMUM_VERSION, FILES_ALONE)
        raise Precondition("there is no git that can do it", cause=said, next_step=hint)
    with suppress(GitError):
        config = ("config", "--file", str(shared / "config"), "--get-regexp", _FORMAT)
        for fact in ask(*config).splitlines():
            if fact.split()[-1] not in ("sha1", "files"):
                what = f"{root} has a repository of another format"
                raise Precondition(what, cause=fact, next_step=FILES_ALONE)
    common.mkdir()
    (common / "config").write_text(_CONFIG)
    (common / "HEAD").write_text("ref: refs/heads/none\n")
    for name in _SHARED:
        if (shared / name).exists():
            (common / name).symlink_to((shared / name).absolute())
