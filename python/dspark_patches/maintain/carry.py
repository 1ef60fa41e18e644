"""An edit of one release's series, carried to the series of the others.

What is merged is the state of a file after each patch: what the edit made of the
one release's file goes, by git's three-way merge, into the other's. Since every
later state takes it in as well, the patches that follow are restacked on the way.
A merge counts only where the patch then changes the lines that it should.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..errors import Conflict
from ..model.diff import ZEROS, Section, blob_id, forward, hunks
from ..model.patch_file import PatchFile
from ..model.series import Control, Patch, Series, in_wheels
from ..model.states import Content, Files, Find
from ..port.merging import Clash, Merging
from ..trees.workshop import difference
from .export import file_modes, single_additions

_NONE = PatchFile(subject="", date="", author="", body="", trailers=(), sections=())


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """A series after an edit; right when there are no clashes."""

    series: Series
    clashes: tuple[Clash, ...]


class Edit(Merging):
    """What became of one release's series.

    Args:
        old: the series before.
        new: the series after; each patch may begin with a state that the files had
            before or have now.
        find: finds the release's files.

    Raises:
        Conflict: a patch was written for a file that is not known.
    """

    def __init__(self, old: Series, new: Series, find: Find) -> None:
        super().__init__()
        self.old, self.new = old, new
        self.before, self.after = Files(find).read(old), Files(find)
        known = {blob_id(content): content for content in self.before.contents()}
        for patch in new.patches:
            for section in patch.file.sections:
                path = section.path
                now = self.after.at(path, patch.number)
                known |= {blob_id(now): now} if now is not None else {}
                if section.old in known or section.old == ZEROS:
                    release = known.get(section.old)
                    states = release, now, forward(release, section)
                    merged = self.three(states, patch.name, path)
                    self.after.put(path, patch.number, merged)
                elif in_wheels(path):
                    raise Conflict(
                        f"{new.release}/{patch.name}.patch was written for a {path} "
                        "that is not known",
                        cause=f"it begins with blob {section.old}",
                    )


def carry(edit: Edit, series: Series, find: Find) -> Carried:
    """A release's series with the edit of another's, or of its own.

    Args:
        edit: the edit.
        series: the series as it was before.
        find: finds its release's files.

    Raises:
        Conflict: a file is not what the series was written for.
    """
    return _Carrying(edit, series, find).carried()


class _Carrying(Merging):
    def __init__(self, edit: Edit, series: Series, find: Find) -> None:
        super().__init__(edit.clashes)
        self._edit, self._series = edit, series
        self._ours = Files(find).read(series)
        self._seen: dict[tuple[str, int], Content] = {}
        self._fresh = single_additions(series) | single_additions(edit.new)
        self._modes = file_modes(edit.new) | file_modes(series)

    def carried(self) -> Carried:
        old, new, here = map(_by_number, (self._edit.old, self._edit.new, self._series))
        # The edited series itself has its names and controls as they are now.
        first = new if self._series.release == self._edit.new.release else here
        numbers = (here.keys() | new.keys() - old.keys()) - (old.keys() - new.keys())
        last, patches = 0, []
        for number in sorted(numbers):
            patch = first.get(number) or here.get(number) or new[number]
            found = (one.get(number) for one in (old, new, here))
            patch_files = tuple(one.file if one else None for one in found)
            patch_file = self._patch_file(patch, patch_files, last)
            controls = self._controls(*(one.get(number) for one in (old, new, first)))
            patches.append(
                msgspec.structs.replace(patch, file=patch_file, controls=controls)
            )
            last = number
        series = msgspec.structs.replace(self._series, patches=tuple(patches))
        return Carried(series=series, clashes=tuple(self.clashes))

    def _after(self, path: str, number: int) -> Content:
        """A file after all patches up to a number, and the edit."""
        if (path, number) not in self._seen:
            places = self._edit.before, self._ours, self._edit.after
            release, ours, theirs = (files.at(path, number) for files in places)
            merged = self.three((release, ours, theirs), f"{number:04}", path)
            self._seen[path, number] = merged
        return self._seen[path, number]

    def _patch_file(
        self, patch: Patch, patch_files: tuple[PatchFile | None, ...], last: int
    ) -> PatchFile:
        """A patch's file here, from those before and after the edit, and here."""
        paths = {
            s.path for patch_file in patch_files for s in (patch_file or _NONE).sections
        }
        edited = [path for path in paths - self._fresh if in_wheels(path)]
        before, after = (
            {path: self._after(path, number) for path in edited}
            for number in (last, patch.number)
        )
        made = (*self._kept(patch_files), *difference(before, after, self._modes))
        value = msgspec.structs.replace(
            self._worded(patch, patch_files) if all(patch_files) else patch.file,
            sections=tuple(sorted(made, key=lambda section: section.path)),
        )
        one, two, ours, merged = (
            self._changes(patch_file) for patch_file in (*patch_files, value)
        )
        for path in {**one, **two, **ours, **merged}:
            # It changes here what it changes there, or else what it did before.
            same = one.get(path) == ours.get(path)
            wanted = two.get(path) if same else ours.get(path)
            if (same or one.get(path) == two.get(path)) and merged.get(path) != wanted:
                text = "merged, the patch would not change the same lines"
                self.clashes.append(Clash(patch=patch.name, what=path, text=text))
        return value

    def _kept(self, patch_files: tuple[PatchFile | None, ...]) -> Iterable[Section]:
        """The sections whose source is the clone, or whose file no wheel has."""
        old, new, here = (
            {
                section.path: section
                for section in (patch_file or _NONE).sections
                if section.path in self._fresh or not in_wheels(section.path)
            }
            for patch_file in patch_files
        )
        added = {path: new[path] for path in new.keys() - old.keys()}
        gone = old.keys() - new.keys()
        return (s for path, s in (added | here).items() if path not in gone)

    def _worded(
        self, patch: Patch, patch_files: tuple[PatchFile | None, ...]
    ) -> PatchFile:
        """The patch of a patch here, with what the edit made of its words."""
        old, new, here = map(_words, patch_files)
        subject, body, trailers = (
            self.three(texts, patch.name, f"the {part} of {patch.name}")
            for part, *texts in zip(("subject", "body", "trailers"), old, here, new)
        )
        pairs = (line.split(": ", 1) for line in trailers.decode().splitlines())
        return msgspec.structs.replace(
            patch.file,
            subject=subject.decode()[:-1],
            body=body.decode()[:-1],
            trailers=tuple((key, value) for key, value in pairs),
        )

    def _changes(self, patch_file: PatchFile | None) -> dict[str, list[bytes]]:
        """The lines that a patch removes and adds, by path."""
        return {
            section.path: [
                line
                for hunk in hunks(section)
                for line in hunk.lines
                if not line.startswith(b" ")
            ]
            for section in (patch_file or _NONE).sections
            if section.path not in self._fresh
        }

    def _controls(
        self, old: Patch | None, new: Patch | None, own: Patch | None
    ) -> tuple[Control, ...]:
        """A patch's own controls, and those that the edit adds."""
        before, after, here = (one.controls if one else () for one in (old, new, own))
        names = {control.name for control in (*before, *here)}
        return (
            *(self._control(one, self._ours) for one in here),
            *(self._control(n, self._edit.after) for n in after if n.name not in names),
        )

    def _control(self, control: Control, written: Files) -> Control:
        """A control on the tree that its patch leaves here now.

        Args:
            control: the control.
            written: the files that it may have been written for.
        """
        before: dict[str, Content] = {}
        after: dict[str, Content] = {}
        for section in control.sections:
            path, number = section.path, control.number
            release, ours = written.at(path, number), self._after(path, number)
            old = ZEROS if release is None else blob_id(release)
            if release != ours and section.old == old:
                states = release, ours, forward(release, section)
                before[path] = ours
                # What a control breaks, it may break otherwise than before the edit.
                after[path] = self.three(states, control.name, path, "--theirs")
        made = {one.path: one for one in difference(before, after, self._modes)}
        sections = tuple(made.get(s.path, s) for s in control.sections)
        return msgspec.structs.replace(control, sections=sections)


def _by_number(series: Series) -> dict[int, Patch]:
    return {patch.number: patch for patch in series.patches}


def _words(patch_file: PatchFile) -> tuple[bytes, ...]:
    trailers = "".join(f"{key}: {value}\n" for key, value in patch_file.trailers)
    return (
        f"{patch_file.subject}\n".encode(),
        f"{patch_file.body}\n".encode(),
        trailers.encode(),
    )
