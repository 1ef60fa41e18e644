"""A release's series: its patches in order, their controls, the blob chain."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from ..errors import Usage
from ..lines import Malformed, read
from . import patch_file as patch_files
from .diff import ZEROS, Section
from .patch_file import PatchFile
from .releases import Release, series_dir

_NAME = re.compile(r"(\d{4})-[a-z0-9]+(?:-[a-z0-9]+)*", re.ASCII)
_TEST_FOLDERS = ("test/", "python/sglang/test/")
_OTHERS = ("controls", "lock.toml")


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """A diff that brings back the defect that a patch's tests guard against.

    It applies to the pristine tree plus all patches up to its number.
    """

    number: int
    name: str
    why: str
    sections: tuple[Section, ...]


class Patch(msgspec.Struct, frozen=True, kw_only=True):
    """One patch of a series, with the controls that prove it."""

    number: int
    name: str
    file: PatchFile
    controls: tuple[Control, ...] = ()

    @property
    def kind(self) -> Literal["fix", "test"]:
        """Whether the patch changes anything but tests and test kit."""
        paths = (section.path for section in self.file.sections)
        return "test" if all(map(is_test, paths)) else "fix"

    @property
    def tests(self) -> tuple[str, ...]:
        """What ``Regression-Test`` trailers name: ``PATH[::CLASS[.TEST]]``."""
        return self.file.values("Regression-Test")


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """The ordered patches of one release, and the folder that holds them."""

    release: str
    folder: Path
    patches: tuple[Patch, ...]

    def path(self, patch: Patch) -> Path:
        """Where a patch's file stands."""
        return self.folder / f"{patch.name}.patch"


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """What a whole series does to one path: the blob before and after."""

    old: str
    new: str


def is_test(path: str) -> bool:
    """Whether a file of SGLang's tree is a test or part of a test kit."""
    return path.startswith(_TEST_FOLDERS)


def in_wheels(path: str) -> bool:
    """Whether wheels carry this part of SGLang's tree; a checkout has it all."""
    return path.startswith("python/")


def load(release: Release, folder: Path | None = None) -> Series:
    """Read a release's series.

    Args:
        release: the release.
        folder: where its patches lie; our own unless told.

    Raises:
        Usage: the release has no series.
        Malformed: a patch or control is broken, or two have one number;
            names the first of what :func:`scan` finds.
    """
    series, failures = scan(release, folder)
    if failures:
        raise failures[0]
    return series


def scan(
    release: Release, folder: Path | None = None
) -> tuple[Series, tuple[Malformed, ...]]:
    """Like :func:`load`, but read on: what is sound, and every failure.

    Raises:
        Usage: the release has no series.
    """
    folder = folder or series_dir(release)
    failures: list[Malformed] = []
    files = _numbered(folder, ".patch", failures)
    if not files and not failures:
        raise Usage(
            f"{release.tag} has no series",
            next_step="name a release that has patches below patches/",
        )
    controls = _controls(folder, {number for number, _ in files}, failures)
    patches = []
    taken: dict[int, str] = {}
    for number, path in files:
        name = _name(path, folder)
        if number in taken:
            what = f"{taken[number]} has the number {number:04} as well"
            failures.append(Malformed(name, 0, what))
        taken.setdefault(number, name)
        try:
            patch_file = patch_files.parse(read(path, name), name)
        except Malformed as failure:
            failures.append(failure)
            continue
        own = tuple(control for control in controls if control.number == number)
        patches.append(
            Patch(number=number, name=path.stem, file=patch_file, controls=own)
        )
    series = Series(release=release.tag, folder=folder, patches=tuple(patches))
    return series, tuple(failures)


def added_paths(series: Series) -> set[str]:
    """The files that a series adds; of a broken chain, what its patches say."""
    sections = [s for patch in series.patches for s in patch.file.sections]
    gone = {s.path for s in sections if s.kind == "delete"}
    return {s.path for s in sections if s.kind == "add"} - gone


def chain(series: Series, release: Mapping[str, str] | None = None) -> dict[str, Link]:
    """Walk the blob ids of a series, path by path.

    Each section must begin with the blob that the one before it left, and the
    first with the release's blob, so each hunk lands where it was written for.

    Args:
        series: the series.
        release: the release's blob id of every path that the series edits; leave it
            out to take the series' own word for it.

    Returns:
        For each path that the series touches, its blob before and after;
        zeros stand for no file.

    Raises:
        Malformed: a section does not continue the chain.
    """
    links: dict[str, Link] = {}
    for patch in series.patches:
        for section in patch.file.sections:
            link = links.get(section.path)
            if link:
                before = link.new
            elif release is None:
                before = section.old
            else:
                before = release.get(section.path, ZEROS)
            if section.old != before:
                raise Malformed(
                    f"{series.release}/{patch.name}.patch",
                    0,
                    f"{section.path} begins with blob {section.old}, but "
                    f"{'an earlier patch leaves' if link else 'the release has'} {before}",
                    cause="the patch was written for another state of that file",
                )
            first = link.old if link else section.old
            links[section.path] = Link(old=first, new=section.new)
    return links


def blobs_after(series: Series, number: int) -> dict[str, str]:
    """Each path that the series touches, as patches up to ``number`` leave it.

    Raises:
        Malformed: a section does not continue the chain.
    """
    before = {path: link.old for path, link in chain(series).items()}
    sections = (p.file.sections for p in series.patches if p.number <= number)
    return before | {s.path: s.new for each in sections for s in each}


def _name(path: Path, folder: Path) -> str:
    return path.relative_to(folder.parent).as_posix()


def _numbered(
    folder: Path, suffix: str, failures: list[Malformed], root: Path | None = None
) -> list[tuple[int, Path]]:
    files = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.name in _OTHERS:
            continue
        match = _NAME.fullmatch(path.stem)
        if match and path.suffix == suffix:
            files.append((int(match[1]), path))
        else:
            what = f"does not belong here; expected NNNN-SLUG{suffix}"
            failures.append(Malformed(_name(path, root or folder), 0, what))
    return files


def _controls(
    folder: Path, numbers: set[int], failures: list[Malformed]
) -> list[Control]:
    controls = []
    files = _numbered(folder / "controls", ".diff", failures, folder)
    for number, path in files:
        name = _name(path, folder)
        if number not in numbers:
            failures.append(Malformed(name, 0, f"there is no patch {number:04}"))
        try:
            why, sections = patch_files.parse_control(read(path, name), name)
        except Malformed as failure:
            failures.append(failure)
            continue
        controls.append(
            Control(number=number, name=path.stem, why=why, sections=sections)
        )
    return controls
