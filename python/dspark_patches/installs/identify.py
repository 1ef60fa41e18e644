"""Which release a target is: by what it says, and by the files that it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec
from packaging.version import InvalidVersion, Version

from ..errors import Failure
from ..model import releases
from ..model.diff import ZEROS
from ..model.series import Series

Blobs = Callable[[Iterable[str]], Mapping[str, str]]
Loads = Callable[[str], Series]


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the files that a release's series edits a target has."""

    release: str
    known: int
    total: int

    @property
    def whole(self) -> bool:
        """Whether every file is as released, as patched, or in between."""
        return self.known == self.total


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Which release a target is taken for.

    Attributes:
        release: its tag; empty when it is no known release.
        how: what that rests on, or why there is none.
        near: the release that is nearest, when there is none.
    """

    release: str
    how: str
    near: str = ""


def identify(version: str, blobs: Blobs, loads: Loads, named: str = "") -> Identity:
    """Say which release a target is.

    Args:
        version: what the target says that it is; may be empty.
        blobs: the target's blob ids of given paths; those of paths that it
            does not carry are left out.
        loads: reads a release's series.
        named: the release that the user named, if any.

    Raises:
        Usage: there is no release of that name.
        BadInput: the series of the release that the target says it is, is broken.
    """
    if named:
        return Identity(release=releases.find(named).tag, how="as you named it")
    said = _said(version)
    own = _fit(loads(said), blobs) if said else None
    if own and own.whole and own.total:
        how = f"by its version {version} and its {own.total} edited files"
        return Identity(release=said, how=how)
    fits = []
    for release in releases.with_series():
        try:
            fits.append(_fit(loads(release.tag), blobs))
        except Failure:
            continue
    tellable = [fit for fit in fits if fit.total]
    whole = [fit for fit in tellable if fit.whole]
    if len(whole) == 1:
        how = f"by the {whole[0].total} files that its series edits"
        return Identity(release=whole[0].release, how=how)
    if own:
        differ = own.total - own.known
        more = f"; {differ} files differ" if differ else ""
        return Identity(release=said, how=f"by its version {version}{more}")
    says = f"it says {version}" if version else "it names no version"
    best = max(tellable, key=lambda f: (f.known / f.total, f.release), default=None)
    if not best:
        return Identity(release="", how=says)
    how = (
        f"{says}; {best.known} of the {best.total} files that the series of "
        f"{best.release} edits are known"
    )
    return Identity(release="", how=how, near=best.release)


def _said(version: str) -> str:
    """The release of a version; a local part such as ``+cu130`` does not matter."""
    try:
        wanted = Version(Version(version).public)
    except InvalidVersion:
        return ""
    found = (b.tag for b in releases.with_series() if Version(b.version) == wanted)
    return next(found, "")


def _fit(series: Series, blobs: Blobs) -> Fit:
    known: dict[str, set[str]] = {}
    for patch in series.patches:
        for section in patch.file.sections:
            known.setdefault(section.path, {section.old}).add(section.new)
    edited = {path: states for path, states in known.items() if ZEROS not in states}
    found = blobs(edited)
    count = sum(blob in edited[path] for path, blob in found.items())
    return Fit(release=series.release, known=count, total=len(found))
