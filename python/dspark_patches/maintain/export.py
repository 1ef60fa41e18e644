"""Patches made anew, by git, from what each of their parts has as its source.

A patch's message and its edits are its own; a file that it adds has its one
source in the clone. From these git builds the commits and writes the patches
again, on the released files.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from ..errors import Precondition
from ..model import diff
from ..model import patch_file as patch_files
from ..model.diff import ZEROS, Section
from ..model.series import Series, added_paths, chain, in_wheels
from ..trees import workshop
from ..trees.workshop import Workshop
from . import derive
from .added import Sources, kit_of
from .used import KIT


def regenerate(series: Series, root: Path, sources: Path) -> dict[str, bytes]:
    """Every patch of a series as git writes it now.

    Args:
        series: the series.
        root: the released tree; it holds ``python/sglang``.
        sources: the clone, with the files that the series adds.

    Returns:
        Each patch's bytes by its file stem, in order.

    Raises:
        Conflict: an edit was not written for the released file.
        Malformed: the blob chain is broken, or a source cannot be in a patch.
        Precondition: an added file has no source in the clone.
    """
    links = chain(series)
    edited = [path for path, link in links.items() if link.old != ZEROS]
    pristine = {p: (root / p).read_bytes() for p in edited if (root / p).is_file()}
    outside = {p for p in edited if p not in pristine and not in_wheels(p)}
    fresh = single_additions(series)
    placed = _placed(series, Sources(sources), fresh)
    released = Sources(sources).of_release(
        added_paths(series).union(*placed.values()), derive.features(sources, root)
    )
    written = {}
    with workshop.bare() as shop:
        modes = file_modes(series)
        commit = shop.start(pristine, modes, series.release)
        for patch in series.patches:
            name = f"{series.release}/{patch.name}.patch"
            sections = [s for s in patch.file.sections if s.path not in outside]
            shop.apply((s for s in sections if s.path not in fresh), name)
            for path in sorted(placed[patch.name]):
                _add(shop, path, modes, released, name)
            commit = shop.commit(commit, patch.file)
            kept = [s for s in patch.file.sections if s.path in outside]
            written[patch.name] = splice(shop.format(commit), kept, name)
    return written


def file_modes(series: Series) -> dict[str, str]:
    """Git's mode of each file that the series touches, by path."""
    return {s.path: s.mode for p in series.patches for s in p.file.sections}


def single_additions(series: Series) -> set[str]:
    """Paths that one patch adds and no other touches: the clone has their source.

    A file that a later patch edits again is, like an edit, its patches' own.
    """
    sections = [s for patch in series.patches for s in patch.file.sections]
    touched = Counter(section.path for section in sections)
    return {s.path for s in sections if s.kind == "add" and touched[s.path] == 1}


def splice(data: bytes, kept: Iterable[Section], name: str) -> bytes:
    """A patch of git's with further sections put where git's order has them.

    Args:
        data: the patch; without a diff where the commit is empty.
        kept: the sections, byte for byte.
        name: the patch's name, for errors.

    Raises:
        Malformed: the result is no canonical patch.
    """
    head, separator, rest = data.partition(b"\ndiff --git ")
    found = diff.parse((separator + rest)[1:], name, head.count(b"\n") + 2)
    sections = sorted((*found, *kept), key=lambda section: section.path)
    # git leaves the blank line after the message out where there is no diff.
    whole = head + b"\n" + b"".join(section.text for section in sections)
    patch_files.parse(whole, name)
    return whole


def first_differences(series: Series, written: Mapping[str, bytes]) -> dict[str, int]:
    """The patches whose patch is not what was written, and where first."""
    found = {}
    for patch in series.patches:
        old, new = patch_files.joined(patch.file), written[patch.name]
        if old != new:
            found[patch.name] = os.path.commonprefix([old, new]).count(b"\n") + 1
    return found


def _placed(
    series: Series, sources: Sources, fresh: Collection[str]
) -> dict[str, set[str]]:
    """What each patch adds from its source; a kit file comes with its first test."""
    ours = {
        patch.name: {s.path for s in patch.file.sections} for patch in series.patches
    }
    twice = set().union(*ours.values()) - set(fresh)
    kit = {path for path in fresh if path.startswith(KIT)}
    placed: dict[str, set[str]] = {}
    for name, paths in ours.items():
        used = kit_of(sources, paths - twice, kit)
        placed[name] = used.difference(twice, *placed.values())
    used = set().union(*placed.values())
    # A kit file that has neither a test nor a source any more goes.
    used |= {path for path in kit if sources.blob(path) == ZEROS}
    return {name: placed[name] | (ours[name] & fresh) - used for name in ours}


def _add(
    shop: Workshop, path: str, modes: Mapping[str, str], sources: Sources, name: str
) -> None:
    content = sources.content(path)
    if content is None:
        raise Precondition(
            f"{name} adds {path}, which the clone does not have",
            next_step=f"restore {path}, or take it out of the patch",
        )
    shop.put(path, modes.get(path, "100644"), content)
