"""The trees that a bench runs in: a base as released, and with its series."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .. import lock, series, trees
from ..bases import Base
from ..diff import blob_id
from ..proof import PATCHED
from ..series import is_test
from .results import Release
from .uninterrupted import uninterrupted


class Place:
    """A folder of trees, each made when it is first asked for.

    Args:
        root: an empty folder.
        notify: told before something slow begins.
    """

    def __init__(self, root: Path, notify: Callable[[str], None]) -> None:
        self._root = root
        self._notify = notify
        self._made: dict[tuple[str, str], Path] = {}

    def tree(self, base: Base, kind: str) -> Path:
        """The tree of a base; the kit is in the pristine one as well.

        Raises:
            Precondition: the wheel cannot be had, or the tree not be written.
            BadInput: a mail, the lock or the wheel is broken.
            Conflict: a patch does not fit its base.
        """
        key = (base.tag, kind)
        if key not in self._made:
            root = self._root / base.tag / kind
            released = trees.released(base, self._notify)
            self._notify(f"{base.tag}: making the {kind} tree")
            trees.copy(released, root)
            for patch in series.load(base).patches:
                sections = [
                    section
                    for section in patch.mail.sections
                    if kind == PATCHED or _is_kit(section)
                ]
                trees.apply(root, sections, f"{base.tag}/{patch.name}")
            self._made[key] = root
        return self._made[key]


def release(base: Base) -> Release:
    """Which files stand for a base: what serves, and no test of it."""
    locked = lock.load(base)
    made = {path: file.result for path, file in locked.edited.items()} | locked.added
    serving = (f"{p} {blob}" for p, blob in sorted(made.items()) if not is_test(p))
    return Release(
        version=base.version,
        wheel_sha256=locked.wheel.sha256,
        series_blob=blob_id("\n".join(serving).encode()),
    )


@contextmanager
def place(notify: Callable[[str], None]) -> Iterator[Place]:
    """A place that lives as long as the context."""
    root = tempfile.TemporaryDirectory(prefix="dspark-bench-")
    try:
        yield Place(Path(root.name), notify)
    finally:
        with uninterrupted():
            root.cleanup()


def _is_kit(section) -> bool:
    return section.kind == "add" and is_test(section.path)
