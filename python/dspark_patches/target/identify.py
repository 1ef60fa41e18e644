"""Which base a target is: by what it says, and by the files that it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec
from packaging.version import InvalidVersion, Version

from .. import bases, lock, series
from ..bases import Base
from ..errors import Failure
from ..lock import Lock

Blobs = Callable[[Iterable[str]], Mapping[str, str]]


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """How well the files that a base's series edits fit a target."""

    base: str
    known: int
    total: int

    @property
    def whole(self) -> bool:
        """Whether every file is as released or as patched."""
        return self.known == self.total


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Which base a target is taken for.

    Attributes:
        base: its tag; empty when it is no known base.
        how: what that rests on, or why there is none.
        near: the base that is nearest, when there is none.
    """

    base: str
    how: str
    near: str = ""


def identify(
    version: str, blobs: Blobs, tag: Callable[[], str], named: str = ""
) -> Identity:
    """Say which base a target is.

    Args:
        version: what the target says that it is; may be empty.
        blobs: the target's blob ids of given paths; those of paths that it
            does not carry are left out.
        tag: the tag that a checkout stands on; asked only when nothing else
            decides.
        named: the base that the user named, if any.

    Raises:
        Usage: there is no base of that name.
    """
    if named:
        return Identity(base=bases.find(named).tag, how="as you named it")
    said = _said(version)
    own = _fit(bases.load()[said], blobs) if said else None
    if own and own.whole and own.total:
        how = f"by its version {version} and its {own.total} edited files"
        return Identity(base=said, how=how)
    fits = tuple(filter(None, (_fit(base, blobs) for base in bases.load().values())))
    whole = [fit for fit in fits if fit.whole and fit.total]
    if len(whole) == 1:
        how = f"by the {whole[0].total} files that its series edits"
        return Identity(base=whole[0].base, how=how)
    # A series that only adds tests edits no file to tell a release by.
    possible = [fit.base for fit in fits if fit.whole]
    if possible and (found := tag()) in possible:
        return Identity(base=found, how=f"by the tag {found}")
    if own:
        differ = own.total - own.known
        files = f"; {differ} of {own.total} files differ" if differ else ""
        return Identity(base=said, how=f"by its version {version}{files}")
    return _unknown(version, fits, possible)


def _unknown(version: str, fits: tuple[Fit, ...], possible: list[str]) -> Identity:
    says = f"it says {version}" if version else "it names no version"
    tellable = [fit for fit in fits if fit.total]
    if not tellable:
        return Identity(base="", how=says)
    best = max(tellable, key=lambda fit: (fit.known / fit.total, fit.base))
    if best.whole or not best.known and possible:
        how = f"{says}; it may be {' or '.join(possible)}"
        return Identity(base="", how=how, near=possible[-1])
    how = (
        f"{says}; {best.known} of the {best.total} files that the series of "
        f"{best.base} edits are known"
    )
    return Identity(base="", how=how, near=best.base)


def _said(version: str) -> str:
    """The base of a version; a local part such as ``+cu130`` does not matter."""
    try:
        wanted = Version(version).public
    except InvalidVersion:
        return ""
    tags = (
        b.tag for b in bases.load().values() if Version(b.version) == Version(wanted)
    )
    return next(tags, "")


def _fit(base: Base, blobs: Blobs) -> Fit | None:
    """None for a base that has no usable series."""
    try:
        locked = lock.load(base)
        found = blobs(locked.edited)
        strange = [p for p, blob in found.items() if blob not in _ends(locked, p)]
        if strange:
            between = _between(base)
            strange = [path for path in strange if found[path] not in between]
    except Failure:
        return None
    return Fit(base=base.tag, known=len(found) - len(strange), total=len(found))


def _ends(locked: Lock, path: str) -> tuple[str, str]:
    return locked.edited[path].base, locked.edited[path].result


def _between(base: Base) -> set[str]:
    """Every blob that a patch of the base makes."""
    patches = series.load(base).patches
    return {section.new for patch in patches for section in patch.mail.sections}
