"""A git checkout that is read and moved on without running anything of its own.

Commits are built aside, and a ref moves last.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..confined import Confined, Look
from ..diff import ZEROS
from ..errors import Conflict, Precondition, Usage
from ..foreign import environment, names, refused
from ..git import Git, GitError
from ..mail import Mail
from ..series import Patch
from ..workshop import Workshop
from . import cleanliness
from .journal import Journal

_SHOWN = 5


class Repository:
    """A checkout.

    Args:
        root: its top folder.

    Raises:
        Precondition: git is too old or refuses it, or it is no checkout.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._env = environment(root)
        self._git = Git(root, self._env)
        with refused(root):
            text = self._git.text(
                "rev-parse", "--path-format=absolute", "--git-dir", "--show-toplevel"
            )
            self._git_dir, top = text.split("\n")
            self.head = self._git.text("rev-parse", "--verify", "-q", "HEAD^{commit}")
        if Path(top).resolve() != root.resolve():
            raise Precondition(f"{root} is not the top of a checkout", cause=top)

    @property
    def branch(self) -> str:
        """The current branch; empty when HEAD is detached."""
        try:
            return self._git.text("symbolic-ref", "-q", "--short", "HEAD")
        except GitError:
            return ""

    def looks(self, paths: Iterable[str], commit: str = "HEAD") -> dict[str, Look]:
        """What a commit has at each of ``paths``."""
        found = {path: Look(blob=ZEROS) for path in paths}
        with refused(self.root):
            listed = names(self._git, "ls-tree", "-r", "-z", commit, "--", *found)
        for entry in listed:
            facts, path = entry.split("\t", 1)
            mode, kind, blob = facts.split()
            if path in found and kind == "blob" and mode != "120000":
                found[path] = Look(blob=blob)
            elif path in found:
                found[path] = Look(blob="", why="it is a link or a submodule")
        return found

    def content(self, blob: str) -> bytes:
        """The content of a blob that is here."""
        with refused(self.root):
            return self._git.run("cat-file", "blob", blob)

    def find(self, blob: str) -> bytes | None:
        """The content of a blob; None when it is not here, as in a partial clone."""
        try:
            return self._git.run("cat-file", "blob", blob)
        except GitError:
            return None

    def must_have(self, blobs: Iterable[str]) -> None:
        """Be sure that blobs are here, without fetching them.

        Raises:
            Precondition: one is not, as in a partial clone.
        """
        listed = "".join(f"{blob}\n" for blob in blobs if blob != ZEROS)
        with refused(self.root):
            said = self._git.text("cat-file", "--batch-check", stdin=listed.encode())
        for line in said.splitlines():
            if not re.fullmatch("[0-9a-f]{40} blob [0-9]+", line):
                raise Precondition(
                    f"{self.root} lacks a file of its HEAD",
                    cause=line,
                    next_step="fetch it, as with `git checkout HEAD -- .`",
                )

    def must_be_clean(self, paths: Sequence[str]) -> None:
        """Be sure that the work tree and the index hold nothing but ``HEAD``.

        Args:
            paths: files that are about to be replaced; they are compared byte
                for byte, and nothing untracked may stand in their place.

        Raises:
            Precondition: they hold more, or something is under way.
        """
        if under_way := cleanliness.under_way(Path(self._git_dir)):
            raise _unclean(self.root, f"has a {under_way} under way", [])
        with refused(self.root):
            if staged := cleanliness.staged(self._git):
                raise _unclean(self.root, "has staged changes", staged)
            if changed := cleanliness.changed(self._git, self.root):
                what = "has changes that no commit holds"
                raise _unclean(self.root, what, changed)
        with Confined(self.root) as files:
            for path, look in self.looks(paths).items():
                found = files.look(path)
                if found.why or found.blob != look.blob:
                    there = found.why or "what stands there is no file of HEAD"
                    raise _unclean(self.root, f"has another {path}", [there])

    def build(
        self, base: str, patches: Sequence[Patch], commit: str = ""
    ) -> tuple[str, ...]:
        """The commits of patches, on top of ``commit``; no ref moves.

        Args:
            base: the base, for errors.
            patches: the patches.
            commit: what they stand on; ``HEAD`` unless told.

        Raises:
            Conflict: ``commit`` does not have the files for it.
        """
        built = []
        commit = commit or self.head
        with self._workshop() as (shop, _):
            shop.load(commit)
            for patch in patches:
                shop.apply(patch.mail.sections, f"{base}/{patch.name}.patch")
                commit = shop.commit(commit, patch.mail)
                built.append(commit)
        return tuple(built)

    def build_one(self, contents: Mapping[str, bytes | None], mail: Mail) -> str:
        """One commit on ``HEAD`` in which files have these contents."""
        with refused(self.root):
            listed = names(self._git, "ls-tree", "-r", "-z", "HEAD", "--", *contents)
        modes = {entry.split("\t", 1)[1]: entry.split()[0] for entry in listed}
        with self._workshop() as (shop, git):
            shop.load(self.head)
            for path, content in contents.items():
                if content is None:
                    git.run("update-index", "--force-remove", "--", path)
                else:
                    shop.put(path, modes.get(path, "100644"), content)
            return shop.commit(self.head, mail)

    def parent(self, count: int) -> str:
        """The commit that many first parents before ``HEAD``; may be none."""
        try:
            return self._git.text(
                "rev-parse", "--verify", "-q", f"HEAD~{count}^{{commit}}"
            )
        except GitError:
            return ""

    def create_branch(self, name: str, commit: str) -> bool:
        """Let a new branch stand at ``commit``; False when it already does.

        Raises:
            Usage: no branch can be called so.
            Precondition: it stands elsewhere, or cannot be written.
        """
        ref = f"refs/heads/{name}"
        if name.startswith("-") or not self._git.succeeds("check-ref-format", ref):
            raise Usage(f"{name!r} cannot be the name of a branch")
        if self._git.succeeds("rev-parse", "--verify", "-q", ref):
            if self._git.text("rev-parse", "--verify", "-q", ref) == commit:
                return False
            raise Precondition(
                f"the branch {name} exists already",
                next_step="choose another name, or remove it",
            )
        with refused(self.root):
            self._git.run("update-ref", ref, commit, ZEROS)
        return True

    def follow(self, journal: Journal) -> None:
        """Bring index and ``HEAD`` to the goal of a journal; the ref last.

        Raises:
            Conflict: ``HEAD`` is neither the old nor the new commit.
            Precondition: git cannot write.
        """
        if not journal.commits:
            return
        ends = (journal.commits.old, journal.commits.new)
        source, target = ends if journal.goal == "new" else ends[::-1]
        head = self._git.text("rev-parse", "--verify", "-q", "HEAD^{commit}")
        if head not in ends and journal.goal == "new":
            raise Conflict(
                f"HEAD of {self.root} moved meanwhile",
                cause=f"it is {head}, neither {ends[0]} nor {ends[1]}",
                next_step="run `dspark-patches revert`, then begin again",
            )
        paths = [file.place for file in journal.files]
        with refused(self.root):
            # Compared first: what is right already needs no lock to be had.
            if cleanliness.staged(self._git, target, *paths):
                self._git.run("read-tree", "-i", "-m", source, target)
            # Whoever moved HEAD elsewhere meanwhile keeps it there.
            if head == source:
                message = f"dspark-patches: {journal.verb} {journal.base}"
                self._git.run("update-ref", "-m", message, "HEAD", target, source)

    @contextmanager
    def _workshop(self) -> Iterator[tuple[Workshop, Git]]:
        with tempfile.TemporaryDirectory(prefix="dspark-patches-") as scratch:
            index = Path(scratch) / "index"
            env = {"GIT_DIR": self._git_dir, "GIT_INDEX_FILE": str(index)}
            with refused(self.root):
                git = Git(Path(self._git_dir), self._env | env)
                yield Workshop(Path(self._git_dir), index), git


def _unclean(root: Path, what: str, paths: Sequence[str]) -> Precondition:
    more = [f"and {len(paths) - _SHOWN} more"] if len(paths) > _SHOWN else []
    return Precondition(
        f"{root} {what}",
        cause="\n".join([*paths[:_SHOWN], *more]),
        next_step="commit it or put it aside, or leave the work tree alone with "
        "--branch NAME",
    )
