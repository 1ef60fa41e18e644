"""Trees to run: a release or any other package, with files of a series laid over it.

What is laid over is made in memory first, so that a tree is written once, when all
of it is known to fit.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath

from ..errors import Precondition
from ..model import lock, series, states
from ..model.diff import ZEROS, Section, forward
from ..model.releases import Release
from ..model.series import Control, Series
from ..model.states import Content
from . import wheels
from .wheels import Released

PRISTINE = "pristine"
PATCHED = "patched"

PACKAGE = "python/sglang"

# By path, relative to the tree; None stands for no file.
Files = dict[str, Content]

_NOT_COPIED = shutil.ignore_patterns("__pycache__", ".dspark-patches*")


def tree_of(control: Control) -> str:
    """The name of the tree that a control makes."""
    return f"control {control.name}"


def released(
    release: Release, notify: Callable[[str], None] = lambda message: None
) -> Released:
    """The released tree, its touched files verified against the lock.

    A release that has no lock yet is taken as its wheel is.

    Raises:
        Precondition: the wheel cannot be had, or the files are not the locked
            ones.
        BadInput: the wheel or the lock is broken.
    """
    if not lock.path_of(release).exists():
        return wheels.obtain(release, notify=notify)
    locked = lock.load(release)
    found = wheels.obtain(release, locked.wheel.sha256, notify)
    wheels.verify_files(found, locked.released_blobs(in_wheel=True))
    return found


def make(
    release: Release,
    name: str,
    root: Path,
    notify: Callable[[str], None] = lambda message: None,
) -> None:
    """Make one of the trees that :func:`recipes` names, at ``root``."""
    found = released(release, notify)
    build(root, found.package, recipes(series.load(release), found.root)[name])


def build(root: Path, package: Path, files: Mapping[str, Content]) -> None:
    """Write a tree: a copy of ``package``, and ``files`` over it.

    A real copy: with hard links a test that writes to a file in place would
    change the cache as well, and copying takes well below a second.

    Raises:
        Precondition: the tree cannot be written.
    """
    try:
        shutil.copytree(package, root / PACKAGE, symlinks=True, ignore=_NOT_COPIED)
        for path, content in files.items():
            _lay(root, path, content)
    except (OSError, shutil.Error) as error:
        raise Precondition(
            f"{package} cannot be copied to {root}",
            cause=str(error)[:500],
            next_step="free some space, or set TMPDIR to another folder",
        ) from error


def recipes(loaded: Series, root: Path) -> dict[str, Files]:
    """What lies over the release in each tree of a series, by the tree's name.

    The pristine tree has the tests and test kit; the patched one has the whole
    series; a control stands on the patches up to its own.

    Raises:
        Conflict: a patch or control does not fit.
    """
    made: dict[str, Files] = {}
    files: Files = {}
    for patch in loaded.patches:
        source = f"{loaded.release}/{patch.name}"
        files = after(files, root, patch.file.sections, source)
        for control in patch.controls:
            source = f"{loaded.release}/{control.name}"
            made[tree_of(control)] = after(files, root, control.sections, source)
    return {PATCHED: files, PRISTINE: dict(tests(loaded)), **made}


def after(files: Files, root: Path, sections: Iterable[Section], source: str) -> Files:
    """``files`` over the tree at ``root`` after a diff of ``source``, or nothing.

    Edits to files that no wheel carries are left out.

    Raises:
        Conflict: a file is not the one that the diff was written for.
    """
    made = dict(files)
    for section in sections:
        step = states.step(section, made, states.in_folder(root), source)
        if not step.known and series.in_wheels(section.path):
            forward(None, section, source)
    return made


def tests(loaded: Series) -> dict[str, bytes]:
    """The tests and the test kit that a series adds, as it leaves them."""
    found: Files = {}
    for patch in loaded.patches:
        for section in patch.file.sections:
            path = section.path
            if series.is_test(path) and (section.old == ZEROS or path in found):
                found[path] = forward(found.get(path), section)
    return {path: content for path, content in found.items() if content is not None}


def _lay(root: Path, path: str, content: Content) -> None:
    # From the top, so that no link in the copy leads out of it.
    for part in (*[*PurePosixPath(path).parents][-2::-1], path):
        if (root / part).is_symlink():
            (root / part).unlink()
    file = root / path
    if content is None:
        file.unlink(missing_ok=True)
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
