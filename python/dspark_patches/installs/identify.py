"""Which release a target is: by what it says, and by the files that it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

from ..errors import Failure
from ..model import releases
from ..model.diff import ZEROS
from ..model.series import Series
from .confined import FileState
from .states import touched


class Identity(NamedTuple):
    """Which release a target is taken for.

    Attributes:
        release: its tag; empty when it is no known release.
        how: what that rests on, or why there is none.
        near: the release that is nearest, when there is none.
    """

    release: str
    how: str
    near: str = ""


def identify(
    version: str,
    look: Callable[[Iterable[str]], Mapping[str, FileState]],
    load: Callable[[str], Series],
) -> Identity:
    """Say which release a target is.

    Args:
        version: what the target says that it is; may be empty.
        look: what the target has at those of some paths that it carries.
        load: reads a release's series.

    Raises:
        BadInput: the series of the release that the target says it is, is broken.
    """

    def fit(tag: str) -> tuple[int, int]:
        """How many of the files that a series edits are known, and of how many."""
        files = touched(load(tag).patches).items()
        blobs = {path: {s[0].old, *(one.new for one in s)} for path, s in files}
        states = look(path for path in blobs if ZEROS not in blobs[path])
        return sum(s.blob in blobs[path] for path, s in states.items()), len(states)

    said = _release_of(version)
    known, total = fit(said) if said else (0, 0)
    if known == total > 0:
        how = f"by its version {version} and its {total} edited files"
        return Identity(said, how)
    fits = {}
    for release in releases.with_series():
        with suppress(Failure):
            fits[release.tag] = fit(release.tag)
    fits = {tag: (known, of) for tag, (known, of) in fits.items() if of}
    whole = [tag for tag, (known, of) in fits.items() if known == of]
    if len(whole) == 1:
        how = f"by the {fits[whole[0]][1]} files that its series edits"
        return Identity(whole[0], how)
    if said:
        more = f"; {total - known} files differ" if known < total else ""
        return Identity(said, f"by its version {version}{more}")
    says = f"it says {version}" if version else "it names no version"
    if not fits:
        return Identity("", says)
    near = max(fits, key=lambda tag: (fits[tag][0] / fits[tag][1], tag))
    known, total = fits[near]
    files = f"{known} of the {total} files that the series of {near} edits"
    return Identity("", f"{says}; {files} are known", near)


def _release_of(version: str) -> str:
    """The release of a version; a local part such as ``+cu130`` does not matter."""
    try:
        wanted = Version(Version(version).public)
    except InvalidVersion:
        return ""
    known = (r.tag for r in releases.with_series() if Version(r.version) == wanted)
    return next(known, "")
