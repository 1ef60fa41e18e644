"""A git directory of ours that leads to the objects and refs of another.

git then works with our configuration: of the other repository's settings,
hooks, filters and remotes it sees none, so that nothing that it names is run.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from ..errors import Precondition
from ..git import MINIMUM_VERSION, Git, GitError

FILES_ALONE = "patch the files alone, with --no-commit"

_CONFIG = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n"
_SHARED = ("objects", "refs", "packed-refs", "logs", "shallow")
# The one format of a repository that ours can lead to; git's default.
_FORMAT = {"extensions.objectformat": "sha1", "extensions.refstorage": "files"}
_UNDER_WAY = {
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
}
# Where no repository is found, whose configuration git would read.
_OUTSIDE = Path("/")


def lead(root: Path, common: Path) -> Path:
    """Make a common git directory that leads to a checkout's.

    Args:
        root: the checkout.
        common: the folder to make.

    Returns:
        The checkout's own git directory.

    Raises:
        Precondition: git is too old, or the repository is somebody else's or
            of a format that this cannot lead to.
    """
    _check_version()
    git_dir, shared = _folders(root)
    _check_format(root, shared)
    common.mkdir()
    (common / "config").write_text(_CONFIG)
    (common / "HEAD").write_text("ref: refs/heads/none\n")
    for name in _SHARED:
        if (shared / name).exists():
            (common / name).symlink_to((shared / name).absolute())
    return git_dir


def under_way(git_dir: Path) -> str:
    """What git has begun and not ended; empty when there is nothing."""
    found = (what for name, what in _UNDER_WAY.items() if (git_dir / name).exists())
    return next(found, "")


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
            raise Precondition(
                f"{root} is somebody else's checkout",
                cause=f"{folder} belongs to the user {owner}",
                next_step=f"run as that user, or {FILES_ALONE}",
            )
    return git_dir, common


def _text(path: Path) -> str:
    try:
        return path.read_bytes()[:4096].decode("utf-8", "surrogateescape").strip()
    except OSError:
        return ""


def _check_format(root: Path, common: Path) -> None:
    config = ("config", "--file", str(common / "config"), "--get")
    for key, known in _FORMAT.items():
        with suppress(GitError):
            if (found := Git(_OUTSIDE).text(*config, key)) != known:
                raise Precondition(
                    f"{root} has a repository of another format",
                    cause=f"its {key} is {found}, not {known}",
                    next_step=FILES_ALONE,
                )


def _check_version() -> None:
    try:
        said = Git(_OUTSIDE).text("version")
    except Precondition as missing:
        hint = f"{missing.next_step}, or {FILES_ALONE}"
        raise Precondition(missing.message, next_step=hint) from missing
    found = re.search(r"(\d+)\.(\d+)", said)
    if not found or (int(found[1]), int(found[2])) < MINIMUM_VERSION:
        wanted = ".".join(map(str, MINIMUM_VERSION))
        raise Precondition(
            f"{said} is too old", next_step=f"install git {wanted}, or {FILES_ALONE}"
        )
