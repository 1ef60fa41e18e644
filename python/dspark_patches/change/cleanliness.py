"""Whether a work tree holds more than its commit, told by content.

git only says which files it saw another time of; their bytes are compared
with what the index has, and not what a filter makes of them.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ..diff import blob_id
from ..foreign import names
from ..git import Git

_UNDER_WAY = {
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
}
_OPTIONS = ("--name-only", "-z", "--ignore-submodules=all")
_LINK = "120000"


def under_way(git_dir: Path) -> str:
    """What git has begun and not ended; empty when there is nothing."""
    found = (what for name, what in _UNDER_WAY.items() if (git_dir / name).exists())
    return next(found, "")


def staged(git: Git, commit: str = "HEAD", *paths: str) -> list[str]:
    """Files, of all or of ``paths``, whose index entry is not that of a commit."""
    return names(git, "diff-index", "--cached", *_OPTIONS, commit, "--", *paths)


def changed(git: Git, root: Path) -> list[str]:
    """Tracked files whose content is not that of the index.

    A file's mode does not count: a change of ours keeps it.
    """
    suspects = names(git, "diff-files", *_OPTIONS)
    if not suspects:
        return []
    entries = (entry.split("\t", 1) for entry in names(git, "ls-files", "-s", "-z"))
    facts = {path: text.split()[:2] for text, path in entries}
    return [path for path in suspects if not _same(root / path, *facts[path])]


def _same(path: Path, mode: str, blob: str) -> bool:
    try:
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            return mode == _LINK and blob_id(os.fsencode(os.readlink(path))) == blob
        regular = stat.S_ISREG(status.st_mode) and mode != _LINK
        return regular and blob_id(path.read_bytes()) == blob
    except OSError:
        return False
