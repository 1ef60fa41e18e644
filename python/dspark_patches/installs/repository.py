"""A git checkout that is read and moved on without running anything of its own.

Its configuration is not read, see :mod:`.gitdir`. Commits are built aside, and
a ref moves last.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ..errors import Precondition, Usage
from ..git import Git, GitError
from ..model.diff import ZEROS
from ..model.patch_file import PatchFile
from ..model.series import Patch
from ..trees.workshop import Workshop
from . import gitdir
from .confined import Look
from .gitdir import FILES_ALONE

_LINK = "120000"


class Entry(msgspec.Struct, frozen=True):
    """What git has at a path: a mode and a blob."""

    mode: str
    blob: str


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

    def entries(self, paths: Collection[str], commit: str = "HEAD") -> dict[str, Entry]:
        """What a commit has at each of ``paths``; nothing for no file."""
        found = {}
        for mode, kind, blob, path in self._listed(
            "ls-tree", "-r", commit, paths=paths
        ):
            if path in paths:
                found[path] = Entry(mode if kind == "blob" else _LINK, blob)
        return found

    def looks(self, paths: Collection[str], commit: str = "HEAD") -> dict[str, Look]:
        """The same, as a target's files are told."""
        entries = self.entries(paths, commit)
        return {path: _look(entries.get(path)) for path in paths}

    def staged(self, paths: Sequence[str]) -> dict[str, Look]:
        """What the index has at each of ``paths``."""
        found = {
            path: Entry(mode if stage == "0" else _LINK, blob)
            for mode, blob, stage, path in self._listed("ls-files", "-s", paths=paths)
        }
        return {path: _look(found.get(path)) for path in paths}

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
        self, release: str, patches: Sequence[Patch], commit: str = ""
    ) -> tuple[str, ...]:
        """The commits of patches, on top of ``commit``; no ref moves.

        Args:
            release: the release, for errors.
            patches: the patches.
            commit: what they stand on; ``HEAD`` unless told.

        Raises:
            Conflict: ``commit`` does not have the files for it.
        """
        built = []
        commit = commit or self.head
        with self._workshop() as shop:
            shop.load(commit)
            for patch in patches:
                shop.apply(patch.file.sections, f"{release}/{patch.name}.patch")
                commit = shop.commit(commit, patch.file)
                built.append(commit)
        return tuple(built)

    def build_one(
        self, contents: Mapping[str, bytes | None], patch_file: PatchFile
    ) -> str:
        """One commit on ``HEAD`` in which files have these contents."""
        entries = self.entries(contents)
        with self._workshop() as shop:
            shop.load(self.head)
            for path, content in contents.items():
                mode = entries[path].mode if path in entries else "100644"
                shop.put(path, mode, content)
            return shop.commit(self.head, patch_file)

    def parent(self, count: int) -> str:
        """The commit that many first parents before ``HEAD``; may be none."""
        return self._commit(f"HEAD~{count}")

    def create_branch(self, name: str, commit: str) -> bool:
        """Let a new branch stand at ``commit``; False when it already does.

        Raises:
            Usage: no branch can be called so.
            Precondition: it stands elsewhere, or cannot be written.
        """
        ref = f"refs/heads/{name}"
        if name.startswith("-") or not self._git.succeeds("check-ref-format", ref):
            raise Usage(f"{name!r} cannot be the name of a branch")
        if found := self._commit(ref):
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
            wanted = self.entries(paths, commit)
            if self.staged(paths) != self.looks(paths, commit):
                lines = (f"{e.mode} {e.blob}\t{p}" for p, e in wanted.items())
                self._index(paths, "\0".join(lines).encode())
            if commit == self.head:
                return
            try:
                self._git.run("update-ref", "-m", message, "HEAD", commit, self.head)
            except BaseException:
                self._index(paths, before)
                raise

    def _listed(self, *what: str, paths: Collection[str]) -> Iterator[list[str]]:
        """git's lines on some paths: three facts and the path."""
        if not paths:
            return
        with self._refused():
            output = self._git.run(*what[:1], "-z", *what[1:], "--", *paths)
        for line in output.decode("utf-8", "surrogateescape").split("\0")[:-1]:
            facts, path = line.split("\t", 1)
            yield [*facts.split(), path]

    def _commit(self, name: str) -> str:
        try:
            return self._git.text("rev-parse", "--verify", "-q", f"{name}^{{commit}}")
        except GitError:
            return ""

    def _index(self, paths: Sequence[str], entries: bytes) -> None:
        """Let the index have these entries of ``paths``, and no others."""
        gone = "".join(f"0 {ZEROS}\t{path}\0" for path in paths).encode()
        self._git.run("update-index", "-z", "--index-info", stdin=gone + entries)

    @contextmanager
    def _refused(self) -> Iterator[None]:
        """Say what git's refusal means.

        Raises:
            Precondition: in place of a :class:`~dspark_patches.git.GitError`.
        """
        try:
            yield
        except GitError as error:
            said = error.stderr.strip()
            hint = FILES_ALONE
            if ".lock" in said:
                hint = "when no git runs there, remove that lock, and run again"
            elif "but expected" in said:
                hint = "it moved meanwhile: run again"
            raise Precondition(
                f"git cannot work in {self.root}", cause=said, next_step=hint
            ) from error

    @contextmanager
    def _workshop(self) -> Iterator[Workshop]:
        with tempfile.TemporaryDirectory(prefix="dspark-patches-") as scratch:
            with self._refused():
                yield Workshop(self._common, Path(scratch) / "index")


def _look(entry: Entry | None) -> Look:
    if entry and entry.mode == _LINK:
        return Look(blob="", why="it is a link, a submodule or in conflict")
    return Look(blob=entry.blob if entry else ZEROS)
