"""An edit of one release's series, merged into another's.

What is merged is the state of a file after each patch: what the edit made of the
one release's file goes, by git's three-way merge, into the other's. Since every
later state takes it in as well, the patches that follow are restacked on the way.
A merge counts only where the patch then changes the lines that it should.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from itertools import product
from pathlib import Path

import msgspec

from ..model import patch_file as patch_files
from ..model.diff import Section, blob_of, forward, hunks
from ..model.patch_file import PatchFile
from ..model.series import Control, Patch, Series
from ..model.states import Content
from ..port.merging import Clash
from ..trees.workshop import difference
from .added import single_additions
from .restack import States, from_message, with_sections

# A patch before the edit, after it, and of the release that it is carried to.
Versions = tuple[Patch, Patch, Patch]

_FILE = PatchFile(subject="", date="", author="", body="", trailers=(), sections=())
_NONE = Patch(number=0, name="", file=_FILE)

_IMPORT = re.compile(rb"[-+](from [\w.]+ import .*|    \w+,|\))\n?")


class Carrying(States):
    """A release's series, with the edit of another's or of its own.

    Args:
        before: the edited release's files under the series before.
        after: the same under the series after, whose patches may lag behind.
        series: the series that the edit is carried to; ``before`` its own.
        root: its released tree.
        anew: whether it gets the controls that it lacks, or that do not fit it.
    """

    def __init__(
        self,
        before: States,
        after: States,
        series: Series,
        root: Path,
        anew: bool = False,
    ) -> None:
        super().__init__(series, root)
        self.clashes += after.clashes
        self.modes |= after.modes
        self.paths |= before.paths | after.paths
        self.paths -= before.outside | after.outside | self.outside
        self.paths -= single_additions(series) | single_additions(after.series)
        self._before, self._after, self._anew = before, after, anew
        self._seen: dict[tuple[str, int], Content] = {}

    def at(self, path: str, number: int) -> Content:
        """A file after all patches up to a number, and the edit."""
        if (path, number) not in self._seen:
            ours = self.own(path, number)
            old, new = (one.own(path, number) for one in (self._before, self._after))
            merged = self.three((old, ours, new), f"{number:04}", path)
            self._seen[path, number] = merged
        return self._seen[path, number]

    def carried(self, clone: Path) -> Series:
        """The series after the edit; right when there are no clashes.

        Raises:
            Malformed: a source cannot be in a patch.
            Precondition: an added file has no source in the clone.
        """
        old, new, here = (
            {patch.number: patch for patch in one.series.patches}
            for one in (self._before, self._after, self)
        )
        # The edited series itself has its names and controls as they are now.
        own = new if self.series is self._before.series else here
        numbers = (here.keys() | new.keys() - old.keys()) - (old.keys() - new.keys())
        versions = {
            n: (old.get(n, _NONE), new.get(n, _NONE), here.get(n, _NONE))
            for n in sorted(numbers)
        }
        # A clash is the first patch's that has it: a control would ask for a later one.
        for number, path in product(versions, sorted(self.paths)):
            self.at(path, number)
        patches = tuple(self._patch(own.get(n, _NONE), versions[n]) for n in versions)
        series = msgspec.structs.replace(self.series, patches=patches)
        made = self.restack(series, clone)
        shown = {clash.what for clash in self.clashes}
        for patch in made.patches:
            self._compare(patch, versions[patch.number], shown)
        return made

    def _patch(self, own: Patch, versions: Versions) -> Patch:
        """A patch with its words, its controls and the sections that have no states."""
        old, new, here = (
            {s.path: s for s in one.file.sections if s.path not in self.paths}
            for one in versions
        )
        kept = {path: new[path] for path in new.keys() - old.keys()} | here
        sections = [kept[path] for path in kept.keys() - (old.keys() - new.keys())]
        patch = versions[1] if own is _NONE else own
        file = patch.file
        if _NONE not in versions:
            one, two, ours = (
                patch_files.commit_message(one.file).encode() for one in versions
            )
            what = f"the message of {patch.name}"
            text = self.three((one, ours, two), patch.name, what).decode()
            file = from_message(text, file.date, file.sections, what)
        theirs = {c.name for c in versions[1].controls} if self._anew else ()
        kept = [c for c in own.controls if c.name not in theirs or self._fits(c)]
        names = {c.name for c in (*(() if theirs else versions[0].controls), *kept)}
        added = (c for c in versions[1].controls if c.name not in names)
        controls = (
            *(self._control(control, self) for control in kept),
            *(self._control(control, self._after) for control in added),
        )
        file = with_sections(file, sections)
        return msgspec.structs.replace(patch, file=file, controls=controls)

    def _compare(
        self, patch: Patch, versions: Versions, shown: Collection[str]
    ) -> None:
        """Refuse a patch that changes other lines than it changed or should.

        Where a file's conflict is ``shown``, nobody knows what its patches change.
        """
        one, two, ours, made = map(self._changes, (*versions, patch))
        for path in sorted({**one, **two, **ours, **made}.keys() - shown):
            # It changes here what it changes there, or else what it did before.
            same = one.get(path) == ours.get(path)
            wanted = two.get(path) if same else ours.get(path)
            if (same or one.get(path) == two.get(path)) and made.get(path) != wanted:
                text = "merged, the patch would not change the same lines"
                self.clashes.append(Clash(patch=patch.name, what=path, text=text))

    def _changes(self, patch: Patch) -> dict[str, list[bytes]]:
        """The lines that a patch removes and adds, by path."""
        return {
            s.path: _net(t for hunk in hunks(s) for t in hunk.lines if t[:1] != b" ")
            for s in patch.file.sections
            if s.path in self.paths
        }

    def _fits(self, control: Control) -> bool:
        """Whether a control was written for what its patch leaves."""
        states = ((s, self.own(s.path, control.number)) for s in control.sections)
        return all(section.old == blob_of(state) for section, state in states)

    def _control(self, control: Control, written: States) -> Control:
        """A control of ``written`` files on the tree that its patch leaves here now."""
        made: list[Section] = []
        for section in control.sections:
            path, number = section.path, control.number
            then, now = written.base(section, number), self.at(path, number)
            if then != now and section.old == blob_of(then):
                # What a control breaks, it may break otherwise than before the edit.
                states = then, now, forward(then, section)
                after = self.three(states, control.name, path, "--theirs")
                # It may break a file that no patch touches.
                modes = {path: section.mode} | self.modes
                made += difference({path: now}, {path: after}, modes) or [section]
            else:
                made.append(section)
        return msgspec.structs.replace(control, sections=tuple(made))


def _net(lines: Iterable[bytes]) -> list[bytes]:
    """Changed lines; of imports, which may be wrapped otherwise, the names alone."""
    kept: list[bytes] = []
    names: Counter[bytes] = Counter()
    for line in lines:
        if _IMPORT.fullmatch(line):
            for name in re.findall(rb"\w+", line):
                names[name] += 1 if line[:1] == b"+" else -1
        else:
            kept.append(line)
    return kept + sorted(b"%s %d" % pair for pair in names.items() if pair[1])
