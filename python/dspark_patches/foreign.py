"""git in somebody else's repository, which runs nothing that it names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import Precondition
from .git import MINIMUM_VERSION, Git, GitError

# A missing object is not worth a network, nor the program that a repository
# names to reach it.
OFFLINE = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}


def environment(root: Path) -> dict[str, str]:
    """What git's environment needs besides, to work in ``root``.

    Raises:
        Precondition: git is too old.
    """
    git = Git(root, OFFLINE)
    _check_version(git)
    return OFFLINE | _without_filters(git)


@contextmanager
def refused(root: Path) -> Iterator[None]:
    """Say what git's refusal means.

    Raises:
        Precondition: in place of a :class:`~dspark_patches.git.GitError`.
    """
    try:
        yield
    except GitError as error:
        said = error.stderr.strip()
        mend = ""
        if "dubious ownership" in said:
            mend = f"run as the owner of {root}, or give it to this user"
        elif "index.lock" in said:
            mend = "when no git runs there, remove index.lock, and run again"
        raise Precondition(
            f"git cannot work in {root}", cause=said, next_step=mend
        ) from error


def names(git: Git, *args: str) -> list[str]:
    """What a git command prints, split at its zero bytes."""
    output = git.run(*args)
    return output.decode("utf-8", "surrogateescape").split("\0")[:-1]


def _without_filters(git: Git) -> dict[str, str]:
    """What keeps git from running the filters that a repository names.

    To tell whether a file has changed, git may look at it through its filter.
    An empty command stands for no filter.
    """
    try:
        found = names(git, "config", "-z", "--name-only", "--get-regexp", r"^filter\.")
    except GitError:
        return {}
    empty = {key: "false" if key.endswith(".required") else "" for key in found}
    pairs = {"GIT_CONFIG_COUNT": str(len(empty))}
    for number, (key, value) in enumerate(empty.items()):
        pairs[f"GIT_CONFIG_KEY_{number}"] = key
        pairs[f"GIT_CONFIG_VALUE_{number}"] = value
    return pairs


def _check_version(git: Git) -> None:
    said = git.text("version")
    found = re.search(r"(\d+)\.(\d+)", said)
    if not found or (int(found[1]), int(found[2])) < MINIMUM_VERSION:
        wanted = ".".join(map(str, MINIMUM_VERSION))
        raise Precondition(f"{said} is too old", next_step=f"install git {wanted}")
