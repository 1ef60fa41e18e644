"""The commits of an edited work tree, turned back into a series."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from ..errors import Conflict, Precondition
from ..model import patch_file as patch_files
from ..model.diff import ZEROS, Section
from ..model.patch_file import PatchFile
from ..model.series import Patch, Series, added_paths, chain
from ..trees import workshop
from . import checkout
from .added import Sources
from .checkout import RELEASE_REF, START_REF, Commit
from .export import splice

_LONGEST_SLUG = 48


def changes(
    series: Series,
    tree: Path,
    sources: Path,
    shared: Collection[str],
    features: Mapping[str, bool],
) -> dict[Path, bytes | None]:
    """What the clone needs so that its series is the commits of ``tree``.

    Args:
        series: the series as it stands in the clone.
        tree: the edited work tree.
        sources: the clone; the files that the series adds have their source here.
        shared: added files that other releases need too.
        features: what the release has of the sources' features.

    Returns:
        The new content of each file that changes; None for one that goes.

    Raises:
        Conflict: the clone changed since the work tree was made.
        Precondition: the work tree is not ready, or would lose something.
        Malformed: a commit is no canonical patch.
    """
    outside = _outside(series, tree)
    before = _patch_files(series, checkout.commits(tree, START_REF), tree, outside)
    if list(before.values()) != [patch_files.joined(p.file) for p in series.patches]:
        raise Conflict(
            f"the series of {series.release} changed since {tree} was made",
            next_step=f"make a new work tree with `dspark-patches edit {series.release}` "
            "and cherry-pick your commits onto it",
        )
    after = _patch_files(series, checkout.commits(tree), tree, outside)
    wanted = _series_files(series, after)
    wanted |= _added_files(series, after, tree, sources, shared, features)
    return {path: data for path, data in wanted.items() if _content(path) != data}


def slug(subject: str) -> str:
    """The part of a patch's file name that says what the patch does."""
    words = re.sub(r"[^a-z0-9]+", "-", subject.lower()).strip("-")
    if len(words) > _LONGEST_SLUG:
        whole, _, _ = words[: _LONGEST_SLUG + 1].rpartition("-")
        words = whole or words[:_LONGEST_SLUG]
    return words or "patch"


def _outside(series: Series, tree: Path) -> set[str]:
    """The edited files that the work tree's release lacks."""
    edited = {path for path, link in chain(series).items() if link.old != ZEROS}
    return edited - set(checkout.files(tree, RELEASE_REF, edited))


def _patch_files(
    series: Series, commits: Iterable[Commit], tree: Path, outside: Collection[str]
) -> dict[str, bytes]:
    """A patch for each commit, by its file stem."""
    known = {patch.file.subject: patch for patch in series.patches}
    written: dict[str, bytes] = {}
    seen: set[str] = set()
    with workshop.bare(checkout.objects(tree)) as shop:
        number = 0
        for commit in commits:
            if commit.subject in seen:
                raise Precondition(
                    f"two commits are called {commit.subject!r}",
                    next_step="squash them, or give each its own subject",
                )
            seen.add(commit.subject)
            patch = known.pop(commit.subject, None)
            stem = patch.name[5:] if patch else slug(commit.subject)
            # A number says what a patch is about, on every release; releases leave gaps.
            number = max(number + 1, patch.number if patch else 0)
            kept = [s for s in _sections(patch) if s.path in outside]
            made = shop.restate(
                commit.tree, commit.parent, f"{commit.message}\n", commit.date
            )
            name = f"commit {commit.id[:12]}"
            written[f"{number:04}-{stem}"] = splice(shop.format(made), kept, name)
    for patch in known.values():
        lost = [s.path for s in _sections(patch) if s.path in outside]
        if lost:
            raise Precondition(
                f"no commit is called {patch.file.subject!r} any more",
                cause=f"the patch edits {lost[0]}, which is not in this work tree",
                next_step="keep its subject, or work with `edit --checkout`",
            )
    return written


def _sections(patch: Patch | None) -> tuple[Section, ...]:
    return patch.file.sections if patch else ()


def _series_files(
    series: Series, written: Mapping[str, bytes]
) -> dict[Path, bytes | None]:
    """The series' folder: patches under their names, controls under their numbers."""
    gone: dict[Path, bytes | None] = {}
    moved: dict[Path, bytes | None] = {}
    numbers = {
        patch_files.parse(data).subject: name[:4] for name, data in written.items()
    }
    for patch in series.patches:
        subject = patch.file.subject
        gone[series.path(patch)] = None
        for control in patch.controls:
            if subject not in numbers:
                raise Precondition(
                    f"{control.name}.diff proves {subject!r}, and no commit is called "
                    "so any more",
                    next_step="keep the subject, or remove the control",
                )
            path = series.folder / "controls" / f"{control.name}.diff"
            gone[path] = None
            moved[path.with_name(numbers[subject] + path.name[4:])] = path.read_bytes()
    mailed = {series.folder / f"{name}.patch": data for name, data in written.items()}
    return gone | moved | mailed


def _added_files(
    series: Series,
    written: Mapping[str, bytes],
    tree: Path,
    sources: Path,
    shared: Collection[str],
    features: Mapping[str, bool],
) -> dict[Path, bytes | None]:
    """The sources of what the series adds, unless they changed meanwhile."""
    values = {name: patch_files.parse(data, name) for name, data in written.items()}
    renewed = _with_patch_files(series, values)
    paths = added_paths(series) | added_paths(renewed)
    old = checkout.files(tree, START_REF, paths)
    new = checkout.files(tree, "HEAD", paths)
    released = Sources(sources).of_release(paths, features)
    found: dict[Path, bytes | None] = {}
    for path in sorted(paths):
        here = released.content(path)
        if here == new.get(path) or (path not in new and path in shared):
            continue
        if path in new and here != _content(sources / path):
            raise Conflict(
                f"{path} is derived from the text that all releases share",
                cause=f"in {tree} it is not what the clone's text gives "
                f"{series.release}",
                next_step=f"edit {sources / path}, take the change out of the work "
                f"tree, and run `dspark-patches export {series.release}`",
            )
        if here != old.get(path):
            raise Conflict(
                f"{path} changed in the clone since {tree} was made",
                next_step="bring that change into the work tree's commit, "
                "put the clone's file back, and run again",
            )
        found[sources / path] = new.get(path)
    return found


def _with_patch_files(series: Series, values: Mapping[str, PatchFile]) -> Series:
    patches = (
        Patch(number=int(name[:4]), name=name, file=value)
        for name, value in values.items()
    )
    return Series(release=series.release, folder=series.folder, patches=tuple(patches))


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
