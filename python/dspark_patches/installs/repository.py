"""A git checkout that is read and moved on without running anything of its own.

Its configuration is not read, see :mod:`.gitdir`. Commits are built aside, and
a ref moves last.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..errors import Precondition, Usage
from ..git import Git, GitError
from ..model.diff import ZEROS
from ..model.patch_file import PatchFile
from ..model.series import Patch
from ..trees.workshop import Workshop
from . import gitdir
from .confined import FileState
from .replace import Change

_OTHER = FileState("", "it is a link, a submodule or in conflict")


class Repository:
    """A checkout.

    Args:
        root: its top folder.

    Attributes:
        git_dir: its own git directory.
        head: the commit that it stands at.

    Raises:
        Precondition: git is too old, or it is no repository that we can use.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        scratch = Path(tempfile.mkdtemp(prefix="dspark-patches-"))
        weakref.finalize(self, shutil.rmtree, scratch, ignore_errors=True)
        self._common = scratch / "git"
        self.git_dir = gitdir.lead(root, self._common)
        where = {"GIT_DIR": str(self.git_dir), "GIT_COMMON_DIR": str(self._common)}
        self._git = Git(root, where)
        with self._refused():
            self.head = self._git.text("rev-parse", "--verify", "-q", "HEAD^{commit}")

    @property
    def branch(self) -> str:
        """The current branch; empty when HEAD is detached."""
        try:
            return self._git.text("symbolic-ref", "-q", "--short", "HEAD")
        except GitError:
            return ""

    def commit(self, name: str) -> str:
        """The commit that a name stands for; empty where there is none."""
        try:
            return self._git.text("rev-parse", "--verify", "-q", f"{name}^{{commit}}")
        except GitError:
            return ""

    def states(
        self, paths: Collection[str], commit: str = "HEAD"
    ) -> dict[str, FileState]:
        """What a commit has at each of ``paths``."""
        return self._told(paths, "ls-tree", "-r", "-z", commit)

    def staged(self, paths: Collection[str]) -> dict[str, FileState]:
        """What the index has at each of ``paths``."""
        return self._told(paths, "ls-files", "-s", "-z")

    def content(self, blob: str) -> bytes:
        """The content of a blob.

        Raises:
            Precondition: it is not here, as in a partial clone.
        """
        content = self.find(blob)
        if content is None:
            raise Precondition(
                f"{self.root} lacks a file of its HEAD",
                cause=f"there is no blob {blob}",
                next_step="fetch it, as with `git checkout HEAD -- .`",
            )
        return content

    def find(self, blob: str) -> bytes | None:
        """The content of a blob; None when it is not here."""
        try:
            return self._git.run("cat-file", "blob", blob)
        except GitError:
            return None

    def build(
        self, release: str, patches: Sequence[Patch], commit: str
    ) -> tuple[str, ...]:
        """The commits of patches, on top of ``commit``; no ref moves.

        Args:
            release: the release, for errors.
            patches: the patches.
            commit: what they stand on.

        Raises:
            Conflict: ``commit`` does not have the files for it.
        """
        built = []
        with self._workshop(commit) as shop:
            for patch in patches:
                shop.apply(patch.file.sections, f"{release}/{patch.name}.patch")
                commit = shop.commit(commit, patch.file)
                built.append(commit)
        return tuple(built)

    def build_one(self, changes: Iterable[Change], message: PatchFile) -> str:
        """One commit of changes on ``HEAD``; no ref moves."""
        with self._workshop(self.head) as shop:
            for change in changes:
                mode = "100755" if change.executable else "100644"
                shop.put(change.place, mode, change.new)
            return shop.commit(self.head, message)

    def create_branch(self, name: str, commit: str) -> bool:
        """Let a new branch stand at ``commit``; False when it already does.

        Raises:
            Usage: no branch can be called so.
            Precondition: it stands elsewhere, or cannot be written.
        """
        ref = f"refs/heads/{name}"
        if name.startswith("-") or not self._git.succeeds("check-ref-format", ref):
            raise Usage(f"{name!r} cannot be the name of a branch")
        if found := self.commit(ref):
            if found == commit:
                return False
            raise Precondition(
                f"the branch {name} exists already",
                next_step="choose another name, or remove it",
            )
        with self._refused():
            self._git.run("update-ref", ref, commit, ZEROS)
        return True

    def follow(self, paths: Sequence[str], commit: str, message: str) -> None:
        """Bring the index's ``paths`` and ``HEAD`` to a commit; the ref last.

        Raises:
            Precondition: git cannot write, or ``HEAD`` has moved; both are as
                they were.
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

    def _told(self, paths: Collection[str], *ask: str) -> dict[str, FileState]:
        """The state of each path, from git's lines of a mode, facts and a path."""
        states = dict.fromkeys(paths, FileState(ZEROS))
        if paths:
            with self._refused():
                output = self._git.run(*ask, "--", *paths)
            for line in output.decode("utf-8", "surrogateescape").split("\0")[:-1]:
                facts, path = line.split("\t", 1)
                mode, *facts = facts.split()
                blob = next(fact for fact in facts if len(fact) == len(ZEROS))
                plain = mode.startswith("100") and {"0", "blob"} & {*facts}
                if path in states:
                    states[path] = FileState(blob) if plain else _OTHER
        return states

    def _index(self, paths: Sequence[str], entries: bytes) -> None:
        """Let the index have these entries of ``paths``, and no others."""
        gone = "".join(f"0 {ZEROS}\t{path}\0" for path in paths).encode()
        self._git.run("update-index", "-z", "--index-info", stdin=gone + entries)

    @contextmanager
    def _refused(self) -> Iterator[None]:
        """Say what git's refusal means, in place of its :class:`GitError`."""
        try:
            yield
        except GitError as error:
            said = error.stderr.strip()
            hint = gitdir.FILES_ALONE
            if ".lock" in said:
                hint = "when no git runs there, remove that lock, and run again"
            elif "but expected" in said:
                hint = "it moved meanwhile: run again"
            raise Precondition(
                f"git cannot work in {self.root}", cause=said, next_step=hint
            ) from error

    @contextmanager
    def _workshop(self, commit: str) -> Iterator[Workshop]:
        """A workshop whose index holds the tree of a commit."""
        with tempfile.TemporaryDirectory(prefix="dspark-patches-") as scratch:
            with self._refused():
                shop = Workshop(self._common, Path(scratch) / "index")
                shop.load(commit)
                yield shop
