"""What a bench found, as data; a file of it is the one source of every table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from ..proof import PATCHED, PRISTINE

FORM = 2
TREES = (PRISTINE, PATCHED)
MOST_SEED = 2**32 - 1

Record = TypeVar("Record", bound=msgspec.Struct)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One task, run in one tree.

    Attributes:
        figure: the figure that it belongs to.
        base: the base's tag.
        tree: ``pristine`` or ``patched``; in the cost of a base, also the tag of a
            pristine release that it is compared with.
        name: which of the figure's tasks it is, such as a prefix cache.
        task: the whole configuration, seed included, as the simulator took it.
        record: what the simulator found, see its records.
        cpu_seconds: how long the task took.
    """

    figure: str
    base: str
    tree: str
    name: str
    task: dict[str, Any]
    record: dict[str, Any]
    cpu_seconds: float

    @property
    def key(self) -> tuple[str, str, str, str]:
        return (self.figure, self.base, self.tree, self.name)


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """What the figures were made with."""

    python: str
    torch: str
    platform: str


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """Which files a base stands for: its wheel, and what its series makes of it."""

    version: str
    wheel_sha256: str
    series_blob: str


class Results(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that is known.

    Attributes:
        form: of this file.
        tool: the version of dspark-patches.
        host: of the last run.
        releases: by base.
        rows: by figure, base, tree and name.
    """

    form: int
    tool: str
    host: Host
    releases: dict[str, Release]
    rows: tuple[Row, ...]

    def of(
        self, figure: str, record: type[Record], tree: str | None = None
    ) -> Iterator[tuple[Row, Record]]:
        """A figure's rows, oldest base first, each with its record typed."""
        for row in self.rows:
            if row.figure == figure and tree in (None, row.tree):
                yield row, msgspec.convert(row.record, record)


def merged(old: Results | None, new: Results) -> Results:
    """Both, the new ones in the place of old rows of the same key.

    A row of a release whose files have changed since is dropped with them.
    """
    if old is None:
        return new
    same = {
        tag: release
        for tag, release in old.releases.items()
        if new.releases.get(tag, release) == release
    }
    rows = {row.key: row for row in old.rows if row.base in same}
    rows |= {row.key: row for row in new.rows}
    return Results(
        form=new.form,
        tool=new.tool,
        host=new.host,
        releases=ordered(same | new.releases),
        rows=_sorted(rows.values()),
    )


def ordered(releases: dict[str, Release]) -> dict[str, Release]:
    return {tag: releases[tag] for tag in sorted(releases, key=_version)}


def save(results: Results) -> bytes:
    """A line per row, so that a change of one is a change of one line."""
    head = msgspec.to_builtins(results) | {"rows": []}
    text = msgspec.json.format(msgspec.json.encode(head), indent=1).decode()
    rows = ",\n  ".join(msgspec.json.encode(row).decode() for row in results.rows)
    return text.replace('"rows": []', f'"rows": [\n  {rows}\n ]').encode() + b"\n"


def _sorted(rows: Iterable[Row]) -> tuple[Row, ...]:
    return tuple(
        sorted(
            rows,
            key=lambda row: (
                row.figure,
                _version(row.base),
                row.tree not in TREES,
                row.tree == PATCHED,
                row.tree,
                _words(row.name),
            ),
        )
    )


def _words(name: str) -> tuple[tuple[int, str], ...]:
    """The name's words, numbers by their size."""
    words = name.split()
    return tuple((int(w), "") if w.isdigit() else (-1, w) for w in words)


def _version(tag: str) -> tuple[int, ...]:
    return tuple(int(part) for part in tag.lstrip("v").split("."))
