"""Which release a target is, and which patches it has."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, cached_property

import msgspec
from packaging.version import InvalidVersion, Version

from ..errors import BadInput, Exit, Failure
from ..model import releases, series
from ..model.diff import ZEROS
from ..model.nearest import by_nearness
from .confined import Confined, FileState
from .locate import Target
from .states import File, PatchState, patch_state, touched


class Status:
    """What a target has of the files that its release's series touches.

    The ``release`` is found out unless it is ``named``; ``how`` says what that rests
    on, or why there is none, and then ``near`` is the nearest. ``look`` says what
    stands at paths, if these are not the target's own files. Of the ``files`` of the
    series those in ``left_out`` are not carried.

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
        self._load = cache(lambda name: series.load(releases.named(name)))
        self.near = ""
        self.release, self.how = self._identified(named)
        self.series = self._load(self.release) if self.release else None
        paths = touched(self.series)
        self.left_out = tuple(path for path in paths if not target.place(path))
        self.files = self.track(self._carried(paths))

    @cached_property
    def patches(self) -> tuple[PatchState, ...]:
        """The state of each patch, and the fixes that only older releases need."""
        patches = self.series.patches if self.series else ()
        states = [patch_state(patch, self.files) for patch in patches]
        return (*states, *self._not_needed({s.name.partition("-")[2] for s in states}))

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
    def remedy(self) -> str:
        """What helps where a file is in no known state."""
        hint = f"dspark-patches port {shlex.quote(str(self.target.root))}"
        if self.release and self.target.kind == "package":
            version = releases.named(self.release).version
            return f"reinstall sglang=={version} if a file was edited; else {hint}"
        return hint

    @property
    def fingerprint(self) -> str:
        """The same for equal files of the same release and series."""
        files = (self.files[path] for path in sorted(self.files))
        blobs = (f"{f.path} {f.state.blob} {f.goal('apply')}" for f in files)
        told = "\n".join([self.series.release if self.series else "", *blobs])
        return hashlib.sha256(told.encode()).hexdigest()[:12] if self.release else ""

    def exit_code(self, require: bool, same_as: str = "") -> Exit:
        """How to end, where every needed patch has to be in, or files be the same."""
        if not self.release:
            return Exit.PRECONDITION
        unsure = {patch.state for patch in self.patches} & {"partly applied", "unclear"}
        differs = same_as not in ("", self.fingerprint)
        return (
            Exit.FINDINGS if unsure or differs or require and self.lacking else Exit.OK
        )

    def track(self, states: Mapping[str, FileState]) -> dict[str, File]:
        """The files of the series, of which these are the states, by path."""
        files = {
            path: File(path, self.target.place(path), tuple(sections), states[path])
            for path, sections in touched(self.series).items()
            if path in states
        }
        for path, file in files.items():
            if file.strange and file.sections[0].old == ZEROS:
                # An uninstall does not take along what a killed ``apply`` added.
                left = file.state.blob in self._added_by_others.get(path, ())
                files[path] = msgspec.structs.replace(file, left=left)
        return files

    def _identified(self, named: str) -> tuple[str, str]:
        if named:
            self._load(named)
            return named, "as you named it"
        version = self.target.version
        said = _release_of(version)
        known, total = self._fit(said) if said else (0, 0)
        if known == total > 0:
            return said, f"by its version {version} and its {total} edited files"
        fits = {}
        for release in releases.with_series():
            with suppress(Failure):
                fits[release.tag] = self._fit(release.tag)
        fits = {tag: (known, of) for tag, (known, of) in fits.items() if of}
        whole = [tag for tag, (known, of) in fits.items() if known == of]
        if len(whole) == 1:
            return whole[0], f"by the {fits[whole[0]][1]} files that its series edits"
        if said:
            more = f"; {total - known} files differ" if known < total else ""
            return said, f"by its version {version}{more}"
        how = f"it says {version}" if version else "it names no version"
        if nearest := by_nearness(self._content):
            first = nearest[0]
            self.near = first.release if first.near else ""
            places = f"{first.found} of the {first.total} places that the patches of"
            how = f"{how}; {places} {first.release} edit are there"
        return "", how

    def _content(self, path: str) -> bytes | None:
        """The target's file at a path; None where it has none that can be read."""
        with Confined(self.target.root) as files, suppress(OSError, BadInput):
            return files.read(self.target.place(path))
        return None

    def _fit(self, tag: str) -> tuple[int, int]:
        """How many of the files that a series edits are known, and of how many."""
        files = touched(self._load(tag)).items()
        blobs = {path: {s[0].old, *(one.new for one in s)} for path, s in files}
        states = self._carried(path for path in blobs if ZEROS not in blobs[path])
        return sum(s.blob in blobs[path] for path, s in states.items()), len(states)

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
                for path, sections in touched(self._load(release.tag)).items():
                    if sections[0].old == ZEROS:
                        found.setdefault(path, set()).update(s.new for s in sections)
        return found

    def _not_needed(self, seen: set[str]) -> Iterator[PatchState]:
        """Fixes that an older release needs and this one, which has them, does not."""
        known = list(releases.load().values())
        tags = [release.tag for release in known]
        older = known[: tags.index(self.release)] if self.release in tags else []
        for release in reversed(older):
            for path in sorted(releases.series_dir(release).glob("[0-9]*.patch")):
                name, note = path.stem.partition("-")[2], f"{release.tag} needs it"
                if name not in seen:
                    seen.add(name)
                    notes = (f"{note}, {self.release} does not",)
                    yield PatchState(name, "fix", False, "not needed", notes)


def _release_of(version: str) -> str:
    """The release of a version; a local part such as ``+cu130`` does not matter."""
    with suppress(InvalidVersion):
        wanted = Version(Version(version).public)
        for release in releases.with_series():
            if Version(release.version) == wanted:
                return release.tag
    return ""
