"""What the bench found: one file, from which every table and picture is made."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

RELEASED, PATCHED = TREES = ("released", "patched")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One task, run in one tree.

    Attributes:
        figure, name: the figure, and which of its tasks it is, such as a prefix cache.
        release: the tag of the release.
        tree: ``released`` or ``patched``; or the tag of another release, as released,
            that took turns with these.
        task: the whole configuration, as the simulator took it.
        record: what the simulator found.
        cpu_seconds: how long the task took.
    """

    figure: str
    release: str
    name: str
    tree: str
    task: dict[str, Any]
    record: dict[str, Any]
    cpu_seconds: float

    @property
    def key(self) -> tuple[str, str, str, str]:
        return (self.figure, self.release, self.tree, self.name)


class Results(msgspec.Struct, kw_only=True):
    """All that is known.

    Attributes:
        host: what the last run was made with.
        releases: by tag, the files that the rows were made of, as
            :func:`dspark_patches.maintain.readme.served` names them, and ``missing`` figures.
        rows: in order of figure, release, name and tree.
    """

    host: str = ""
    releases: dict[str, dict[str, Any]] = {}
    rows: list[Row] = []

    def add(self, served: dict[str, str], rows: Sequence[Row]) -> None:
        """Take in rows of one figure and release, in the place of those that had the
        same name and tree.

        Rows of the release that were made of other files are dropped.
        """
        tag = rows[0].release
        known = self.releases.setdefault(tag, {})
        if not served.items() <= known.items():
            self.rows = [row for row in self.rows if row.release != tag]
        known.update(served)
        kept = {row.key: row for row in (*self.rows, *rows)}
        self.rows = sorted(kept.values(), key=_order)

    def names(self, figure: str, release: str, tree: str) -> set[str]:
        """The tasks of which there are rows."""
        place = (figure, release, tree)
        return {row.name for row in self.rows if row.key[:3] == place}


def load(path: Path) -> Results:
    """The results in a file; none where there is no file."""
    if not path.exists():
        return Results()
    return msgspec.json.decode(path.read_bytes(), type=Results)


def encode(results: Results) -> bytes:
    """A line per row, so that a change of one is a change of one line."""
    head = msgspec.json.format(
        msgspec.json.encode(dict(host=results.host, releases=results.releases)),
        indent=1,
    )
    rows = b",\n  ".join(map(msgspec.json.encode, results.rows))
    return head[:-2] + b',\n "rows": [\n  ' + rows + b"\n ]\n}\n"


def natural(text: str) -> list[tuple[int, str]]:
    """A key to sort by that takes numbers by their size."""
    parts = re.split(r"(\d+)", text)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def _order(row: Row):
    tree = (row.tree != RELEASED, natural(row.tree))
    return row.figure, natural(row.release), natural(row.name), tree
