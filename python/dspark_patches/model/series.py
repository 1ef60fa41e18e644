"""A release's series: its patches in order, their controls, the blob chain."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from ..errors import Malformed, Usage
from ..files import read
from . import patch_file as patch_files
from .diff import ZEROS, Section
from .patch_file import PatchFile
from .releases import Release, series_dir

_NAME = re.compile(r"(\d{4})-[a-z0-9]+(?:-[a-z0-9]+)*", re.ASCII)
_TEST_FOLDERS = ("test/", "python/sglang/test/")
_Parsed = TypeVar("_Parsed")


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
    """Read a release's series from ``folder``, our own unless told.

    Raises:
        Usage: the release has no series.
        Malformed: a patch or control is broken, or two patches have one number.
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
    controls: dict[int, tuple[Control, ...]] = {}
    parsed = _parsed(folder, "controls", ".diff", patch_files.parse_control, failures)
    for number, name, (why, sections) in parsed:
        one = Control(number=number, name=name, why=why, sections=sections)
        controls[number] = (*controls.get(number, ()), one)
    patches = tuple(
        Patch(number=number, name=name, file=file, controls=controls.get(number, ()))
        for number, name, file in _parsed(
            folder, "", ".patch", patch_files.parse, failures
        )
    )
    if not patches and not failures:
        raise Usage(
            f"{release.tag} has no series",
            next_step="name a release that has patches below patches/, or carry another "
            f"one's: `dspark-patches carry OTHER --to {release.tag}`",
        )
    return Series(release=release.tag, folder=folder, patches=patches), tuple(failures)


def added_paths(series: Series) -> set[str]:
    """The files that a series adds; of a broken chain, what its patches say."""
    sections = [s for patch in series.patches for s in patch.file.sections]
    gone = {s.path for s in sections if s.kind == "delete"}
    return {s.path for s in sections if s.kind == "add"} - gone


def chain(series: Series, release: Mapping[str, str] | None = None) -> dict[str, Link]:
    """Walk the blob ids of a series, path by path.

    Each section must begin with the blob that the one before it left, and the
    first with the release's blob, so each hunk lands where it was written for.
    ``release`` has that blob for every path that the series edits; without it the
    series' own word is taken. Zeros stand for no file.

    Raises:
        Malformed: a section does not continue the chain.
    """
    links: dict[str, Link] = {}
    for patch in series.patches:
        for section in patch.file.sections:
            link = links.get(section.path)
            known = section.old if release is None else release.get(section.path, ZEROS)
            before = link.new if link else known
            if section.old != before:
                raise Malformed(
                    f"{series.release}/{patch.name}.patch",
                    0,
                    f"{section.path} begins with blob {section.old}, but "
                    f"{'an earlier patch leaves' if link else 'the release has'} {before}",
                    cause="the patch was written for another state of that file",
                )
            old = link.old if link else section.old
            links[section.path] = Link(old=old, new=section.new)
    return links


def blobs_after(series: Series, number: int) -> dict[str, str]:
    """Each path that the series touches, as patches up to ``number`` leave it.

    Raises:
        Malformed: a section does not continue the chain.
    """
    before = {path: link.old for path, link in chain(series).items()}
    sections = (p.file.sections for p in series.patches if p.number <= number)
    return before | {s.path: s.new for each in sections for s in each}


def _parsed(
    folder: Path,
    inside: str,
    suffix: str,
    parse: Callable[[bytes, str], _Parsed],
    failures: list[Malformed],
) -> Iterator[tuple[int, str, _Parsed]]:
    """Number, stem and content of the sound files in a part of a series' folder."""
    place, taken = folder / inside, {}
    for path in sorted(place.iterdir()) if place.is_dir() else ():
        if path.name in ("controls", "lock.toml"):
            continue
        name = path.relative_to(folder.parent).as_posix()
        try:
            match = _NAME.fullmatch(path.stem)
            if not match or path.suffix != suffix:
                what = f"does not belong here; expected NNNN-SLUG{suffix}"
                raise Malformed(name, 0, what)
            if inside and not any(folder.glob(f"{match[1]}-*.patch")):
                raise Malformed(name, 0, f"there is no patch {match[1]}")
            other = taken.setdefault(match[1], name)
            if other != name and not inside:
                raise Malformed(name, 0, f"{other} has the number {match[1]} as well")
            yield int(match[1]), path.stem, parse(read(path, name), name)
        except Malformed as failure:
            failures.append(failure)
