"""The trees that a bench runs in: a release as it came, and with its series."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dspark_patches import bases, series, trees
from dspark_patches.series import is_test

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
            base = bases.find(tag)
            released = trees.released(base, say)
            say(f"{tag}: making the {kind} tree")
            trees.copy(released, root)
            for patch in series.load(base).patches:
                sections = [
                    section
                    for section in patch.mail.sections
                    if kind == PATCHED
                    or (section.kind == "add" and is_test(section.path))
                ]
                trees.apply(root, sections, f"{tag}/{patch.name}")
        return root


@contextmanager
def place() -> Iterator[Place]:
    """A place that lives as long as the context."""
    with tempfile.TemporaryDirectory(prefix="dspark-bench-") as root:
        yield Place(Path(root))


def say(message: str) -> None:
    """Tell on standard error what happens."""
    print(message, file=sys.stderr, flush=True)
