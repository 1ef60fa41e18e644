"""Patches made anew, by git, from what each of their parts has as its source.

A patch's message is its own. An edit is the difference between two states of a file,
before the patch and after it; a file that a patch adds has its one source in the
clone; an edit of a file that no wheel carries stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from ..errors import Conflict, Precondition
from ..model import diff
from ..model import patch_file as patch_files
from ..model.diff import ZEROS, Section, blob_id
from ..model.patch_file import PatchFile
from ..model.patching import forward
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
        known: by blob id, what a patch may have been written for as well as for the
            state that the one before it leaves; the patch is merged.

    Attributes:
        outside: the edited files that the tree lacks, as wheels do.

    Raises:
        Conflict: a patch was not written for the file that is there.
    """

    def __init__(
        self, series: Series, root: Path, known: Mapping[str, bytes] | None = None
    ) -> None:
        super().__init__()
        self.series, self.root = series, root
        self.outside: set[str] = set()
        self._made: dict[str, dict[int, Content]] = {}
        for patch in series.patches:
            for section in patch.file.sections:
                self._take(patch, section, known or {})

    @property
    def paths(self) -> set[str]:
        """The files whose states are known."""
        return set(self._made)

    def at(self, path: str, number: int) -> Content:
        """A file after all patches up to a number; None for no file."""
        made = [c for n, c in self._made.get(path, {}).items() if n <= number]
        return made[-1] if made else content(self.root / path)

    def known(self) -> dict[str, bytes]:
        """Every content that a touched file has at some time, by blob id."""
        found = (
            state
            for path, made in self._made.items()
            for state in (content(self.root / path), *made.values())
        )
        return {blob_id(state): state for state in found if state is not None}

    def _take(self, patch: Patch, section: Section, known: Mapping[str, bytes]) -> None:
        path, number = section.path, patch.number
        now = self.at(path, number)
        base = now if section.old == blob(now) else known.get(section.old, now)
        if now is None and section.old != ZEROS and not in_wheels(path):
            self.outside.add(path)
            return
        try:
            states = base, now, forward(base, section)
        except Conflict as failure:
            raise Conflict(
                f"{self.series.release}/{patch.name}.patch does not fit {path}",
                cause=f"{failure.message}: {failure.cause}",
                next_step="run `dspark-patches check`",
            ) from failure
        self._made.setdefault(path, {})[number] = self.three(states, patch.name, path)


def regenerate(series: Series, root: Path, sources: Path) -> dict[str, bytes]:
    """Every patch of a series as git writes it now.

    Args:
        series: the series.
        root: the released tree; it holds ``python/sglang``.
        sources: the clone, with the files that the series adds.

    Returns:
        Each patch's bytes by its file stem, in order.

    Raises:
        Conflict: an edit was not written for the released file.
        Malformed: the blob chain is broken, or a source cannot be in a patch.
        Precondition: an added file has no source in the clone.
    """
    chain(series)
    states = States(series, root)
    modes = file_modes(series)
    made = restack(series, states.at, states.paths, modes, root, sources)
    return {patch.name: patch_files.joined(patch.file) for patch in made.patches}


def restack(
    series: Series,
    at: Callable[[str, int], Content],
    paths: Iterable[str],
    modes: Mapping[str, str],
    root: Path,
    sources: Path,
) -> Series:
    """A series whose patches lead from state to state, and add what the clone has.

    Args:
        series: the series; of its sections only those of other files count.
        at: a file after all patches up to a number.
        paths: the files that have states.
        modes: git's mode of each file; of a new one, that of most files.
        root: the released tree.
        sources: the clone.

    Raises:
        Malformed: a source cannot be in a patch, or nothing is left of one.
        Precondition: an added file has no source in the clone.
    """
    fresh = added.single_additions(series)
    texts = added.read(sources)
    texts = added.of_release(texts, series, derive.features(texts, root))
    placed = added.placed(series, texts)
    edited = set(paths) - fresh
    last, patches = 0, []
    for patch in series.patches:
        name = f"{series.release}/{patch.name}.patch"
        before, after = (
            {path: at(path, n) for path in edited} for n in (last, patch.number)
        )
        own = patch.file.sections
        sections = [s for s in own if s.path not in edited and s.path not in fresh]
        sections += difference(before, after, modes)
        for path in placed[patch.name]:
            if path not in texts:
                raise Precondition(
                    f"{name} adds {path}, which the clone does not have",
                    next_step=f"restore {path}, or take it out of the patch",
                )
            mode = modes.get(path, "100644")
            sections.append(diff.render_add(path, texts[path], mode))
        made = msgspec.structs.replace(patch.file, sections=ordered(sections))
        patch_files.parse(patch_files.joined(made), name)
        patches.append(msgspec.structs.replace(patch, file=made))
        last = patch.number
    return msgspec.structs.replace(series, patches=tuple(patches))


def from_message(
    message: str, date: str, sections: Iterable[Section], name: str
) -> PatchFile:
    """The patch of a commit.

    Args:
        message: what the commit says, trailers and all.
        date: its author's date.
        sections: its diff.
        name: what to call it, for errors.

    Raises:
        Malformed: it is no canonical patch.
    """
    made = PatchFile(
        subject=subject_of(message),
        date=date,
        author=patch_files.AUTHOR,
        body=message.strip("\n").partition("\n\n")[2],
        trailers=(),
        sections=ordered(sections),
    )
    return patch_files.parse(patch_files.joined(made), name)


def subject_of(message: str) -> str:
    """A commit's subject: its first paragraph, on one line."""
    return message.strip("\n").partition("\n\n")[0].replace("\n", " ")


def file_modes(series: Series) -> dict[str, str]:
    """Git's mode of each file that the series touches, by path."""
    return {s.path: s.mode for p in series.patches for s in p.file.sections}


def ordered(sections: Iterable[Section]) -> tuple[Section, ...]:
    """Sections in git's order of paths."""
    return tuple(sorted(sections, key=lambda section: section.path))


def blob(state: Content) -> str:
    """The blob id of a file's state; zeros for no file."""
    return ZEROS if state is None else blob_id(state)


def content(file: Path) -> Content:
    """A file's bytes; None where there is none."""
    return file.read_bytes() if file.is_file() else None
