"""Which release a target is, and which patches it has."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, cached_property

import msgspec

from ..errors import Exit, Failure
from ..model import releases, series
from ..model.diff import ZEROS
from .confined import Confined, FileState
from .identify import Identity, identify
from .locate import Target
from .states import File, PatchState, patch_state, touched


class Status:
    """What a target has of the files that its release's series touches.

    Args:
        target: the target; it is only read.
        named: the release to take it for; found out unless told.
        look: says what stands at paths; the target's own files unless told.

    Attributes:
        release: the release's tag; empty when the target is no known release.
        how: what that rests on, or why there is none.
        near: the release to port from when there is none.
        loaded: the release's series; None when there is no release.
        series: its patches.
        files: the files that it touches, by path.
        left_out: those that the target does not carry.

    Raises:
        Usage: there is no release of that name, or it has no series.
        BadInput: the series is broken.
    """

    def __init__(
        self,
        target: Target,
        named: str = "",
        look: Callable[[list[str]], Mapping[str, FileState]] | None = None,
    ) -> None:
        self.target = target
        self._look = look or self._in_place
        self._states: dict[str, FileState] = {}
        self._load = cache(lambda tag: series.load(releases.find(tag)))
        if named:
            told = Identity(releases.find(named).tag, "as you named it")
        else:
            told = identify(target.version, self._carried, self._load)
        self.release, self.how, self.near = told
        self.loaded = self._load(self.release) if self.release else None
        self.series = self.loaded.patches if self.loaded else ()
        paths = touched(self.series)
        self.left_out = tuple(path for path in paths if not target.place(path))
        self.files = self.track(self._carried(paths))

    @cached_property
    def patches(self) -> tuple[PatchState, ...]:
        """The state of each patch, and the fixes that only older releases need."""
        states = [patch_state(patch, self.files) for patch in self.series]
        return (*states, *self._not_needed(states))

    @property
    def strange(self) -> dict[str, str]:
        """Files in no known state, and why."""
        return {p: file.strange for p, file in self.files.items() if file.strange}

    @property
    def blocked(self) -> dict[str, str]:
        """Files that must not be replaced, such as links, and why."""
        return {p: file.state.why for p, file in self.files.items() if file.state.why}

    @property
    def lacking(self) -> list[PatchState]:
        """The needed patches that are not in, as far as can be told."""
        return [p for p in self.patches if p.needed and p.state != "applied"]

    @property
    def mixed(self) -> bool:
        """Whether a part of the series is in, as after an interruption."""
        states = {patch.state for patch in self.patches}
        return "partly applied" in states or {"applied", "missing"} <= states

    @property
    def fingerprint(self) -> str:
        """The same for equal files of the same release and series."""
        files = (self.files[path] for path in sorted(self.files))
        blobs = (f"{f.path} {f.state.blob} {f.goal('apply')}" for f in files)
        told = "\n".join([self.release, *blobs])
        return hashlib.sha256(told.encode()).hexdigest()[:12] if self.release else ""

    def exit_code(self, require: bool, same_as: str = "") -> Exit:
        """How to end.

        Args:
            require: whether every needed patch has to be in.
            same_as: the fingerprint that it has to have; any unless told.
        """
        if not self.release:
            return Exit.PRECONDITION
        unsure = {patch.state for patch in self.patches} & {"partly applied", "unclear"}
        differs = same_as not in ("", self.fingerprint)
        return (
            Exit.FINDINGS if unsure or differs or require and self.lacking else Exit.OK
        )

    def track(self, states: Mapping[str, FileState]) -> dict[str, File]:
        """The files of the series, of which these are the states, by path."""
        place = self.target.place
        files = {
            p: File(path=p, place=place(p), sections=tuple(sections), state=states[p])
            for p, sections in touched(self.series).items()
            if p in states
        }
        for path, file in files.items():
            if file.strange and file.sections[0].old == ZEROS:
                # An uninstall does not take along what a killed ``apply`` added.
                left = file.state.blob in self._added_by_others.get(path, ())
                files[path] = msgspec.structs.replace(file, left=left)
        return files

    def _in_place(self, paths: list[str]) -> dict[str, FileState]:
        with Confined(self.target.root) as files:
            return {path: files.state(self.target.place(path)) for path in paths}

    def _carried(self, paths: Iterable[str]) -> dict[str, FileState]:
        """What stands at those of ``paths`` that the target carries."""
        carried = [path for path in paths if self.target.place(path)]
        self._states |= self._look([p for p in carried if p not in self._states])
        return {path: self._states[path] for path in carried}

    @cached_property
    def _added_by_others(self) -> dict[str, set[str]]:
        """The blobs of each file that the series of any release adds."""
        found: dict[str, set[str]] = {}
        for release in releases.with_series():
            with suppress(Failure):
                for path, sections in touched(self._load(release.tag).patches).items():
                    if sections[0].old == ZEROS:
                        found.setdefault(path, set()).update(s.new for s in sections)
        return found

    def _not_needed(self, own: list[PatchState]) -> Iterator[PatchState]:
        """Fixes that an older release needs and this one, which has them, does not."""
        known = list(releases.load().values())
        tags = [release.tag for release in known]
        older = known[: tags.index(self.release)] if self.release else []
        seen = {_slug(patch.name) for patch in own}
        for release in reversed(older):
            for path in sorted(releases.series_dir(release).glob("[0-9]*.patch")):
                name = _slug(path.stem)
                if name not in seen:
                    seen.add(name)
                    note = f"{release.tag} needs it, {self.release} does not"
                    yield PatchState(
                        name=name,
                        kind="fix",
                        needed=False,
                        state="not needed",
                        notes=(note,),
                    )


def _slug(name: str) -> str:
    return name.partition("-")[2]
