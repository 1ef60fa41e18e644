"""The SGLang releases that have a place here, and where their files lie.

``patches/releases.toml`` names each release once. In a clone the data stand in the
repository itself; an installed distribution carries a copy of them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from ..errors import BadInput, Usage


class Release(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One SGLang release that we support, called by its ``tag``.

    Attributes:
        version: its version in the package registry.
        wheel: the full file name of the one wheel that stands for the release.
        commit: the tag's commit; empty where it is not known.
    """

    tag: str
    version: str
    wheel: str
    requires_python: str
    commit: str = ""


class Fork(Release, frozen=True, kw_only=True):
    """A tree that is no release, and the folder of the patches that fit it."""

    folder: Path


def data_root() -> Path:
    """The folder that holds ``patches/`` and the files that the series add."""
    package = Path(__file__).resolve().parents[1]
    shipped = package / "data"
    return shipped if shipped.is_dir() else package.parents[1]


def load(path: Path | None = None) -> dict[str, Release]:
    """Every release by name, oldest first, from our own table unless told.

    Raises:
        BadInput: the table is missing or not of the expected form.
    """
    path = path or data_root() / "patches" / "releases.toml"
    try:
        tables = msgspec.toml.decode(path.read_bytes(), type=dict[str, dict[str, str]])
        return {
            tag: msgspec.convert(table | {"tag": tag}, Release)
            for tag, table in tables.items()
        }
    except (OSError, UnicodeDecodeError, msgspec.MsgspecError) as error:
        raise BadInput(
            f"{path} cannot be read as the table of releases", cause=str(error)
        )


def find(name: str) -> Release:
    """The release called ``name``.

    Raises:
        Usage: there is no such release; the message offers the nearest name.
    """
    known = load()
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    offer = f"did you mean {near[0]}?" if near else ""
    raise Usage(
        f"no release is called {name!r}",
        cause=offer,
        next_step="choose one of " + ", ".join(known),
    )


def named(name: str) -> Release:
    """The release of that name or, of a path, the fork whose patches lie there.

    Raises:
        Usage: there is no such release.
        BadInput: there is no such folder.
    """
    if "/" not in name:
        return find(name)
    folder = Path(name).absolute()
    if not folder.is_dir():
        raise BadInput(f"{name} is no folder of patches, as `port --write` makes it")
    nothing = dict(version="", wheel="", requires_python="")
    return Fork(tag=folder.name, folder=folder, **nothing)


def series_dir(release: Release) -> Path:
    """Where the release's patches, controls and lock lie."""
    if isinstance(release, Fork):
        return release.folder
    return data_root() / "patches" / release.tag


def with_series() -> tuple[Release, ...]:
    """The releases that have at least one patch, oldest first."""
    return tuple(
        release
        for release in load().values()
        if any(series_dir(release).glob("[0-9][0-9][0-9][0-9]-*.patch"))
    )


def chosen(names: Iterable[str]) -> tuple[Release, ...]:
    """The releases of these names, each once; of none, every release with a series.

    Raises:
        Usage: there is no such release, or no release has a series.
    """
    found = tuple(map(find, dict.fromkeys(names))) or with_series()
    if not found:
        raise Usage(
            "no release has a series yet", next_step="add a patch below patches/"
        )
    return found
