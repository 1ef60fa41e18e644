"""The trees that a bench runs in: a release as it came, and with its series."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dspark_patches.model import releases
from dspark_patches.trees import make as trees

from .results import PATCHED


class Place:
    """A folder of trees, each made when it is first asked for."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def tree(self, tag: str, kind: str) -> Path:
        """The tree of a release; the test kit is in the released one as well.

        Raises:
            Failure: the wheel cannot be had, a patch is broken, or the tree cannot be
                written.
        """
        root = self._root / tag / kind
        if not root.exists():
            say(f"{tag}: making the {kind} tree")
            name = trees.PATCHED if kind == PATCHED else trees.PRISTINE
            trees.make(releases.find(tag), name, root, say)
        return root


@contextmanager
def place() -> Iterator[Place]:
    """A place that lives as long as the context."""
    with tempfile.TemporaryDirectory(prefix="dspark-bench-") as root:
        yield Place(Path(root))


def say(message: str) -> None:
    """Tell on standard error what happens."""
    print(message, file=sys.stderr, flush=True)
