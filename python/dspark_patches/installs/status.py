"""``status``: which release a target is, and which patches it has."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import cache

import msgspec

from ..errors import Exit, Failure
from ..model import releases, series
from ..model.diff import ZEROS
from ..model.series import Series
from .confined import Confined, Look
from .identify import identify
from .locate import Kind, Target
from .states import Chain, PatchState

Looker = Callable[[Iterable[str]], Mapping[str, Look]]

_PLAIN = ("applied", "missing", "not needed")


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What was found out about a target.

    Attributes:
        target: its root.
        release: the release's tag; empty when the target is no known release.
        how: what that rests on.
        near: the release to port from when there is none.
        left_out: files of the series that this target does not carry.
        strange: files in no known state, and why.
        blocked: files that must not be replaced, such as links, and why.
        fingerprint: the same for equal files of the same release and series.
    """

    target: str
    kind: Kind
    version: str
    release: str
    how: str
    near: str
    patches: tuple[PatchState, ...] = ()
    left_out: tuple[str, ...] = ()
    strange: dict[str, str] = {}
    blocked: dict[str, str] = {}
    fingerprint: str = ""

    @property
    def lacking(self) -> tuple[PatchState, ...]:
        """The needed patches that are not in, as far as can be told."""
        return tuple(p for p in self.patches if p.needed and p.state != "applied")

    @property
    def mixed(self) -> bool:
        """Whether a part of the series is in, as after an interruption."""
        states = {patch.state for patch in self.patches}
        return "partly applied" in states or {"applied", "missing"} <= states

    def exit_code(self, require: bool, same_as: str = "") -> Exit:
        """How to end.

        Args:
            require: whether every needed patch has to be in.
            same_as: the fingerprint that it has to have; any unless told.
        """
        if not self.release:
            return Exit.PRECONDITION
        plain = all(patch.state in _PLAIN for patch in self.patches)
        plain = plain and same_as in ("", self.fingerprint)
        return Exit.OK if plain and not (require and self.lacking) else Exit.FINDINGS


class View:
    """A target seen through the series of the release that it is taken for.

    Args:
        target: the target.
        named: the release to take it for; found out unless told.
        looker: says what stands at paths; looks at the files unless told.

    Raises:
        Usage: there is no release of that name, or it has no series.
        BadInput: the series is broken.
    """

    def __init__(
        self, target: Target, named: str = "", looker: Looker | None = None
    ) -> None:
        self.target = target
        self._looker = looker or self._look_at_files
        self._looks: dict[str, Look] = {}
        self._loads = cache(lambda tag: series.load(releases.find(tag)))
        self.identity = identify(target.version, self._blobs, self._loads, named)
        release = self.identity.release
        self.series = self._loads(release) if release else None
        self.chain = self.chain_of(self.look(self.paths))

    @property
    def paths(self) -> tuple[str, ...]:
        """Every file that the series touches."""
        return _paths(self.series) if self.series else ()

    @property
    def left_out(self) -> tuple[str, ...]:
        """Those of them that the target does not carry."""
        return tuple(path for path in self.paths if not self.target.place(path))

    def look(self, paths: Iterable[str]) -> dict[str, Look]:
        """What stands at those of ``paths`` that the target carries."""
        carried = [path for path in paths if self.target.place(path)]
        self._looks |= self._looker([p for p in carried if p not in self._looks])
        return {path: self._looks[path] for path in carried}

    def chain_of(self, looks: Mapping[str, Look]) -> Chain:
        """The series as these files see it."""
        patches = self.series.patches if self.series else ()
        chain = Chain(patches, looks)
        if strange := chain.strange():
            # An uninstall does not take along what a killed ``apply`` added.
            return Chain(patches, looks, self._others(strange))
        return chain

    def _others(self, paths: Iterable[str]) -> dict[str, set[str]]:
        """The blobs of files that the series of other releases add."""
        found: dict[str, set[str]] = {path: set() for path in paths}
        for release in releases.with_series():
            try:
                patches = self._loads(release.tag).patches
            except Failure:
                continue
            sections = [s for p in patches for s in p.file.sections if s.path in found]
            added = {s.path for s in sections if s.old == ZEROS}
            for section in sections:
                if section.path in added:
                    found[section.path].add(section.new)
        return found

    def _look_at_files(self, paths: Iterable[str]) -> dict[str, Look]:
        with Confined(self.target.root) as files:
            return {path: files.look(self.target.place(path)) for path in paths}

    def _blobs(self, paths: Iterable[str]) -> dict[str, str]:
        return {path: look.blob for path, look in self.look(paths).items()}


def status(target: Target, named: str = "") -> Status:
    """Find out which patches a target has.

    Args:
        target: the target; it is only read.
        named: the release to take it for; found out unless told.

    Raises:
        Usage: there is no release of that name, or it has no series.
        BadInput: the series is broken.
    """
    view = View(target, named)
    release = view.identity.release
    others = _not_needed(view.series) if view.series else ()
    return Status(
        target=str(target.root),
        kind=target.kind,
        version=target.version,
        release=release,
        how=view.identity.how,
        near=view.identity.near,
        patches=(*view.chain.states(), *others),
        left_out=view.left_out,
        strange=view.chain.strange(),
        blocked=view.chain.blocked(),
        fingerprint=_fingerprint(release, view.chain) if release else "",
    )


def _fingerprint(release: str, chain: Chain) -> str:
    blobs = (
        f"{path} {chain.blob(path)} {sections[-1].new}"
        for path, sections in sorted(chain.sections.items())
    )
    return hashlib.sha256("\n".join([release, *blobs]).encode()).hexdigest()[:12]


def _paths(loaded: Series) -> tuple[str, ...]:
    sections = (s for patch in loaded.patches for s in patch.file.sections)
    return tuple(dict.fromkeys(section.path for section in sections))


def _not_needed(loaded: Series) -> tuple[PatchState, ...]:
    """Fixes that an older release needs and this one, which has them, does not."""
    own = {_slug(patch.name) for patch in loaded.patches}
    known = list(releases.load().values())
    tags = [release.tag for release in known]
    found: dict[str, PatchState] = {}
    for older in reversed(known[: tags.index(loaded.release)]):
        for path in sorted(releases.series_dir(older).glob("[0-9]*.patch")):
            slug = _slug(path.stem)
            if slug not in own and slug not in found:
                found[slug] = PatchState(
                    name=slug,
                    kind="fix",
                    needed=False,
                    state="not needed",
                    notes=(f"{older.tag} needs it, {loaded.release} does not",),
                )
    return tuple(found.values())


def _slug(name: str) -> str:
    return name.partition("-")[2]
