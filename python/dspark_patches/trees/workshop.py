"""Commits built aside: objects and a private index, no work tree, no refs.

What git derives from these commits cannot depend on anybody's configuration
or attributes, because the repository is ours, new and bare; objects of another
repository are borrowed, its configuration is not.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ..git import Git, GitError
from ..model import diff
from ..model import patch_file as patch_files
from ..model.diff import Section, forward
from ..model.patch_file import PatchFile

# Without a diffstat git writes no "---" line: a blank line ends the message.
FORMAT_PATCH = (
    "--full-index",
    "--zero-commit",
    "--no-signature",
    "--no-stat",
    "--no-renames",
    "--no-numbered",
    "--no-ext-diff",
    "--no-textconv",
    "--subject-prefix=PATCH",
    "--always",
    "-U3",
)

_RELEASE_DATE = "Thu, 1 Jan 2026 00:00:00 +0000"


class Workshop:
    """A place to build commits: a repository and a private index.

    ``borrowed`` is an object folder of another repository to read from.
    """

    def __init__(
        self, git_dir: Path, index: Path, borrowed: Path | None = None
    ) -> None:
        self._directory = git_dir
        self._env = {"GIT_DIR": str(git_dir), "GIT_INDEX_FILE": str(index)}
        if borrowed:
            self._env["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = str(borrowed)
        self._git = Git(git_dir, self._env)

    def start(
        self, files: Mapping[str, bytes], modes: Mapping[str, str], message: str
    ) -> str:
        """A root commit that holds ``files``, whose modes git gives; the index follows."""
        self._git.run("read-tree", "--empty")
        for path, content in files.items():
            self.put(path, modes[path], content)
        return self._commit((), f"{message}\n", _RELEASE_DATE)

    def load(self, commit: str) -> None:
        """Let the index hold the tree of ``commit``."""
        self._git.run("read-tree", commit)

    def put(self, path: str, mode: str, content: bytes | None) -> None:
        """Let the index hold ``content`` at ``path``; None stands for no file."""
        if content is None:
            self._git.run("update-index", "--force-remove", "--", path)
            return
        blob = self._git.text("hash-object", "-w", "--stdin", stdin=content)
        entry = f"{mode},{blob},{path}"
        self._git.run("update-index", "--add", "--cacheinfo", entry)

    def apply(self, sections: Iterable[Section], source: str) -> None:
        """Apply a diff to the index, exactly where it was written for.

        Raises:
            Conflict: a file is not the one that the diff was written for.
        """
        for section in sections:
            try:
                content = self._git.run("cat-file", "blob", f":{section.path}")
            except GitError:
                content = None
            after = forward(content, section, source)
            self.put(section.path, section.mode, after)

    def commit(self, parent: str, patch_file: PatchFile) -> str:
        """A commit of the index that says what ``patch`` says."""
        return self._commit(
            (parent,),
            patch_files.commit_message(patch_file),
            patch_file.date,
            patch_file.author,
        )

    def compare(self, before: str, after: str) -> bytes:
        """The diff between two commits, as patches have it."""
        options = ("--full-index", "--no-renames", "--no-ext-diff", "--no-textconv")
        return self._git.run("diff", *options, "-U3", before, after)

    def format(self, commit: str) -> bytes:
        """The commit as a patch; an empty commit has no diff."""
        return self._git.run("format-patch", "--stdout", *FORMAT_PATCH, "-1", commit)

    def _commit(
        self,
        parents: Iterable[str],
        message: str,
        date: str,
        author: str = patch_files.AUTHOR,
    ) -> str:
        name, _, address = author.removesuffix(">").partition(" <")
        identity = {}
        for role in ("AUTHOR", "COMMITTER"):
            identity[f"GIT_{role}_NAME"] = name
            identity[f"GIT_{role}_EMAIL"] = address
            identity[f"GIT_{role}_DATE"] = date
        git = Git(self._directory, self._env | identity)
        options = [word for parent in parents for word in ("-p", parent)]
        return git.text(
            "commit-tree", *options, git.text("write-tree"), stdin=message.encode()
        )


@contextmanager
def bare(borrowed: Path | None = None) -> Iterator[Workshop]:
    """A workshop in a new repository that lives as long as the context."""
    with tempfile.TemporaryDirectory(prefix="dspark-patches-") as folder:
        root = Path(folder)
        git_dir = root / "objects.git"
        options = ("--bare", "--template=", "--object-format=sha1")
        Git(root).run("init", "-q", *options, str(git_dir))
        yield Workshop(git_dir, root / "index", borrowed)


def difference(
    before: Mapping[str, bytes | None],
    after: Mapping[str, bytes | None],
    modes: Mapping[str, str],
) -> tuple[Section, ...]:
    """git's difference between two states of the same paths; None for no file."""
    changed = [path for path in before if before[path] != after[path]]
    if not changed:
        return ()
    with bare() as shop:
        trees = []
        for contents in (before, after):
            held = {p: c for p in changed if (c := contents[p]) is not None}
            trees.append(shop.start(held, modes, "state"))
        made = shop.compare(*trees)
    return diff.parse(made, "difference")
