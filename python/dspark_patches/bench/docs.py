"""The figures as the docs show them: results, tables and pictures."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

from .. import bases, lock
from ..bases import Base
from ..errors import Precondition, Usage
from . import figures, form, place, tables
from .pictures import PICTURES
from .results import TREES, Results, merged, save

RESULTS = "results.json"
ALL = "figures.md"

# The suffixes of what is made from results.
_MADE = ("md", "png", "svg")


def folder() -> Path:
    """Where they stand in a clone.

    Raises:
        Usage: this is no clone.
        Precondition: it is a link, which may lead out of the clone.
    """
    docs = bases.data_root() / "docs"
    if not docs.is_dir():
        raise Usage(
            "there is no clone whose docs could be written",
            next_step="use --plot DIR and --format json, or run it in a clone",
        )
    target = docs / "figures"
    if target.is_symlink():
        raise Precondition(
            f"{target} is a link",
            cause=f"it leads to {target.resolve()}",
            next_step="remove it, and run again",
        )
    return target


def in_clone() -> Results | None:
    """The clone's results; None where there are none yet.

    Raises:
        BadInput: they cannot be read.
    """
    path = folder() / RESULTS
    return form.load(path) if path.exists() else None


@contextmanager
def in_turn() -> Iterator[None]:
    """Wait for whoever else writes the clone's figures: two who read before either
    writes would lose the rows of one."""
    target = folder()
    target.mkdir(exist_ok=True)
    descriptor = os.open(target, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # Some file systems have no locks; there is nothing to wait for then.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def merged_into_clone(new: Results) -> Results:
    """``new``, with what the clone's results have besides."""
    return merged(in_clone(), new)


def files(results: Results) -> dict[Path, bytes | None]:
    """Everything below the clone's docs that is made from results; None for what was
    made once and is no more."""
    target = folder()
    made = pictures(results, target)
    made |= {target / name: text.encode() for name, text in texts(results).items()}
    made[target / RESULTS] = save(results)
    found = [path for suffix in _MADE for path in target.glob(f"*.{suffix}")]
    there = [path for path in found if path.is_symlink() or path.is_file()]
    return dict.fromkeys(there) | made


def texts(results: Results) -> dict[str, str]:
    """The Markdown files, by name: all tables in one, and the README's, one each."""
    sections = [_section(table, results) for table in tables.tables(results)]
    head = f"# Figures\n\n{_origin(results)}\n{tables.HOW_TO_READ}\n"
    short = {
        f"{table.figure}-short.md": tables.markdown(table)
        for table in tables.compact(results)
    }
    return short | {ALL: "\n".join([head, *sections])}


def pictures(results: Results, target: Path) -> dict[Path, bytes]:
    """Every picture that the results allow, as SVG and as PNG.

    Raises:
        Precondition: matplotlib is missing, or a picture cannot be drawn.
    """
    drawn = need_plots().draw(results)
    return {target / name: data for name, data in drawn.items()}


def need_plots() -> ModuleType:
    """What draws; it takes seconds to import, which no other verb should pay.

    Raises:
        Precondition: matplotlib is missing, or a setting keeps it from starting.
    """
    try:
        from . import plots
    except ImportError as error:
        raise Precondition(
            "pictures need matplotlib",
            cause=str(error),
            next_step="install it: pip install 'dspark-patches[bench]'",
        ) from error
    except ValueError as error:
        raise Precondition(
            "matplotlib does not start",
            cause=str(error),
            next_step="unset MPLBACKEND, or mend the matplotlibrc",
        ) from error
    return plots


def outdated(results: Results, known: Sequence[Base]) -> tuple[str, ...]:
    """The bases of which there are no results, results of other patches, or a figure
    of which only a part was made."""
    return tuple(
        base.tag
        for base in known
        if lock.path_of(base).exists()
        and (
            results.releases.get(base.tag) != place.release(base)
            or not _whole(results, base)
        )
    )


def _whole(results: Results, base: Base) -> bool:
    """Whether each figure of a base has rows, and the same ones of both trees."""
    names: dict[tuple[str, str], set[str]] = {}
    for row in results.rows:
        if row.base == base.tag:
            names.setdefault((row.figure, row.tree), set()).add(row.name)
    sides = [
        [names.get((name, tree)) for tree in TREES]
        for name in figures.names_of(base.tag)
    ]
    return all(before and before == after for before, after in sides)


def _section(table: tables.Table, results: Results) -> str:
    shown = [
        f"![{picture.alt}]({picture.name}.svg)\n\n"
        for picture in PICTURES
        if picture.table == table.figure and picture.allowed(results)
    ]
    return f"## {table.title}\n\n{''.join(shown)}{tables.markdown(table)}"


def _origin(results: Results) -> str:
    seeds = sorted({row.task["seed"] for row in results.rows})
    return (
        "Generated by `dspark-patches bench --readme` from "
        f"[{RESULTS}]({RESULTS}), which holds every task's configuration. "
        f"dspark-patches {results.tool}, Python {results.host.python}, torch "
        f"{results.host.torch}, {results.host.platform}, seed "
        f"{', '.join(map(str, seeds))}.\n"
    )
