"""Which base a target is: by what it says, and by the files that it has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

import msgspec
from packaging.version import InvalidVersion, Version

from .. import bases, lock
from ..bases import Base
from ..errors import BadInput, Failure
from ..lines import read
from ..lock import Lock
from .outline import outlines

Locks = Callable[[Base], Lock]
Blobs = Callable[[Iterable[str]], Mapping[str, str]]

# The one form in which a lock is written; reading all of every lock as TOML
# would take most of the time.
_EDITED = re.compile(
    rb'\n\[edited\."([^"]+)"\]\nbase = "([0-9a-f]{40})"\nresult = "([0-9a-f]{40})"\n'
)


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
    version: str, blobs: Blobs, locks: Locks, tag: Callable[[], str], named: str = ""
) -> Identity:
    """Say which base a target is.

    Args:
        version: what the target says that it is; may be empty.
        blobs: the target's blob ids of given paths; those of paths that it
            does not carry are left out.
        locks: reads a base's lock.
        tag: the tag that a checkout stands on; asked only when nothing else
            decides.
        named: the base that the user named, if any.

    Raises:
        Usage: there is no base of that name.
    """
    if named:
        return Identity(base=bases.find(named).tag, how="as you named it")
    known = bases.load()
    said = _said(version, known)
    own = _fit(known[said], blobs) if said else None
    if own and own.whole and own.total:
        how = f"by its version {version} and its {own.total} edited files"
        return Identity(base=said, how=how)
    fits = [fit for base in known.values() if (fit := _fit(base, blobs))]
    if not any(fit.whole and fit.total for fit in fits):
        fits = [_closer(fit, known[fit.base], blobs, locks) for fit in fits]
    whole = [fit for fit in fits if fit.whole and fit.total]
    # A series that only adds tests edits no file to tell a release by.
    possible = [fit.base for fit in fits if fit.whole]
    if possible and (found := tag()) in possible:
        return Identity(base=found, how=f"by the tag {found}")
    if own and own.whole:
        return Identity(base=said, how=f"by its version {version}")
    if len(whole) == 1:
        how = f"by the {whole[0].total} files that its series edits"
        return Identity(base=whole[0].base, how=how)
    if own:
        how = f"by its version {version}; {own.total - own.known} files differ"
        return Identity(base=said, how=how)
    return _unknown(version, fits, possible)


def _unknown(version: str, fits: list[Fit], possible: list[str]) -> Identity:
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


def _said(version: str, known: Mapping[str, Base]) -> str:
    """The base of a version; a local part such as ``+cu130`` does not matter."""
    try:
        wanted = Version(Version(version).public)
    except InvalidVersion:
        return ""
    return next((t for t, b in known.items() if Version(b.version) == wanted), "")


def _fit(base: Base, blobs: Blobs) -> Fit | None:
    """None for a base that has no lock."""
    path = lock.path_of(base)
    try:
        data = read(path, path.name)
    except BadInput:
        return None
    ends = {
        path.decode("ascii", "replace"): (old.decode(), new.decode())
        for path, old, new in _EDITED.findall(data)
    }
    found = blobs(ends)
    count = sum(blob in ends[path] for path, blob in found.items())
    return Fit(base=base.tag, known=count, total=len(found))


def _closer(fit: Fit, base: Base, blobs: Blobs, locks: Locks) -> Fit:
    """The fit when files may also be as only some of the patches leave them."""
    try:
        locked = locks(base)
        made = {s.new for patch in outlines(base) for s in patch.steps}
    except Failure:
        return fit
    states = {
        path: {file.base, file.result} | made for path, file in locked.edited.items()
    }
    count = sum(blob in states[path] for path, blob in blobs(states).items())
    return msgspec.structs.replace(fit, known=count)
