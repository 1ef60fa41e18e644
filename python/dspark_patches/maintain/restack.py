"""Patches made anew, by git, from what each of their parts has as its source.

A patch's message is its own. An edit is the difference between two states of a file,
before the patch and after it; a file that a patch adds has its one source in the
clone; an edit of a file that no wheel carries stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from ..errors import Conflict, Precondition
from ..model import diff
from ..model import patch_file as patch_files
from ..model.diff import ZEROS, Section, blob_id, blob_of, forward
from ..model.patch_file import PatchFile
from ..model.series import Patch, Series, chain, in_wheels
from ..model.states import Content
from ..port.merging import Merging
from ..trees.workshop import difference
from . import added, derive


class States(Merging):
    """What a series makes of a release's files, patch by patch.

    Args:
        series: the series.
        root: the released tree; it holds ``python/sglang``.
        known: by blob id, what a patch may have been written for in place of the
            state that the one before it leaves; the patch is merged into that.

    Attributes:
        paths: the files whose states are known.
        outside: the edited files that the tree lacks, as wheels do.
        modes: git's mode of each file.

    Raises:
        Conflict: a patch was not written for the file that is there.
    """

    def __init__(
        self, series: Series, root: Path, known: Mapping[str, bytes] | None = None
    ) -> None:
        super().__init__()
        self.series, self.root, self.modes = series, root, file_modes(series)
        self.outside: set[str] = set()
        self._known = known or {}
        self._made: dict[str, dict[int, Content]] = {}
        for patch in series.patches:
            for section in patch.file.sections:
                self._take(patch, section)
        self.paths = set(self._made)

    def own(self, path: str, number: int) -> Content:
        """A file after all patches up to a number; None for no file."""
        made = [c for n, c in self._made.get(path, {}).items() if n <= number]
        return made[-1] if made else content(self.root / path)

    def base(self, section: Section, number: int) -> Content:
        """What a section was written for: as :meth:`own` says, or else what is known."""
        now = self.own(section.path, number)
        return now if section.old == blob_of(now) else self._known.get(section.old, now)

    def at(self, path: str, number: int) -> Content:
        """The same, as a series made anew shall leave the file."""
        return self.own(path, number)

    def known(self) -> dict[str, bytes]:
        """Every content that a touched file has at some time, by blob id."""
        states = [content(self.root / path) for path in self._made]
        states += [state for made in self._made.values() for state in made.values()]
        return {blob_id(state): state for state in states if state is not None}

    def restack(self, series: Series, clone: Path) -> Series:
        """A series whose patches lead from state to state, and add what the clone has.

        Of the sections of ``series`` only those of files without states count.

        Raises:
            Malformed: a source cannot be in a patch.
            Precondition: an added file has no source in the clone.
        """
        fresh = added.single_additions(series)
        texts = added.read(clone)
        texts = added.of_release(texts, series, derive.answers(texts, self.root))
        placed = added.placed(series, texts)
        edited = self.paths - fresh
        last, patches = 0, []
        for patch in series.patches:
            before, after = (
                {path: self.at(path, number) for path in edited}
                for number in (last, patch.number)
            )
            own = patch.file.sections
            sections = [s for s in own if s.path not in edited | fresh]
            sections += difference(before, after, self.modes)
            for path in placed[patch.name]:
                if path not in texts:
                    name = f"{series.release}/{patch.name}.patch"
                    hint = f"restore {path}, or take it out of the patch"
                    what = f"{name} adds {path}, which the clone does not have"
                    raise Precondition(what, next_step=hint)
                mode = self.modes.get(path, "100644")
                sections.append(diff.render_add(path, texts[path], mode))
            made = with_sections(patch.file, sections)
            patches.append(msgspec.structs.replace(patch, file=made))
            last = patch.number
        return msgspec.structs.replace(series, patches=tuple(patches))

    def _take(self, patch: Patch, section: Section) -> None:
        path, number = section.path, patch.number
        now = self.own(path, number)
        if now is None and section.old != ZEROS and not in_wheels(path):
            self.outside.add(path)
            return
        base = self.base(section, number)
        try:
            states = base, now, forward(base, section)
        except Conflict as failure:
            raise Conflict(
                f"{self.series.release}/{patch.name}.patch does not fit {path}",
                cause=f"{failure.message}: {failure.cause}",
                next_step="run `dspark-patches check`",
            ) from failure
        self._made.setdefault(path, {})[number] = self.three(states, patch.name, path)


def regenerate(series: Series, root: Path, clone: Path) -> dict[str, bytes]:
    """Every patch of a series as git writes it now, by its file stem, in order.

    Raises:
        Conflict: an edit was not written for the released file.
        Malformed: the blob chain is broken, or a source cannot be in a patch.
        Precondition: an added file has no source in the clone.
    """
    chain(series)
    return written(States(series, root).restack(series, clone))


def written(series: Series) -> dict[str, bytes]:
    """Every patch's bytes by its file stem, in order.

    Raises:
        Malformed: a patch is not canonical, or nothing is left of it.
    """
    found = {patch.name: patch_files.joined(patch.file) for patch in series.patches}
    for name, data in found.items():
        patch_files.parse(data, f"{series.release}/{name}.patch")
    return found


def from_message(
    message: str, date: str, sections: Iterable[Section], name: str
) -> PatchFile:
    """The patch of a commit that says ``message``, trailers and all.

    Raises:
        Malformed: it is no canonical patch; ``name`` tells which.
    """
    made = PatchFile(
        subject=subject_of(message),
        date=date,
        author=patch_files.AUTHOR,
        body=message.strip("\n").partition("\n\n")[2],
        trailers=(),
        sections=(),
    )
    return patch_files.parse(patch_files.joined(with_sections(made, sections)), name)


def subject_of(message: str) -> str:
    """A commit's subject: its first paragraph, on one line."""
    return message.strip("\n").partition("\n\n")[0].replace("\n", " ")


def with_sections(file: PatchFile, sections: Iterable[Section]) -> PatchFile:
    """A patch with other sections, in git's order of paths."""
    made = tuple(sorted(sections, key=lambda section: section.path))
    return msgspec.structs.replace(file, sections=made)


def file_modes(series: Series) -> dict[str, str]:
    """Git's mode of each file that the series touches, by path."""
    return {s.path: s.mode for p in series.patches for s in p.file.sections}


def content(file: Path) -> Content:
    """A file's bytes; None where there is none."""
    return file.read_bytes() if file.is_file() else None
