"""``dspark-patches carry``: an edit of one release's series, on the others too.

What is merged is the state of a file after each patch: what the edit made of the
one release's file goes, by git's three-way merge, into the other's. Since every
later state takes it in as well, the patches that follow are restacked on the way.
A merge counts only where the patch then changes the lines that it should.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import msgspec

from .. import report
from ..errors import Exit, Precondition
from ..git import Git, GitError
from ..model import patch_file as patch_files
from ..model import releases
from ..model import series as all_series
from ..model.diff import Section, hunks
from ..model.patch_file import PatchFile
from ..model.patching import forward
from ..model.releases import Release
from ..model.series import Control, Patch, Series
from ..model.states import Content
from ..port.merging import Clash, Merging
from ..trees.workshop import difference
from .added import single_additions
from .clone import released, write
from .restack import States, blob, file_modes, from_message, restack


@click.command(name="carry")
@click.argument("release")
@click.option(
    "--to",
    multiple=True,
    metavar="RELEASE",
    help="Carry to this release; to every release that has a series unless told.",
)
@click.option(
    "--since",
    default="HEAD",
    show_default=True,
    metavar="COMMIT",
    help="The clone's commit that holds the series of RELEASE before the edit.",
)
@click.pass_context
def command(
    context: click.Context, release: str, to: tuple[str, ...], since: str
) -> None:
    """Carry what was edited in the patches of RELEASE to the series of other releases.

    The edit is what the patches of RELEASE say otherwise than at --since: changed
    messages and lines, patches that are new or gone. git merges it into every
    other release's files, and the patches that follow are restacked, those of RELEASE
    as well. A release for which something conflicts is shown and left as it is.
    Controls are restacked, and new ones carried; an edit of a control is not.
    Commit what was carried before the next edit.

    \b
    Examples:
      dspark-patches edit v0.5.23                  edit one release, and commit
      dspark-patches export --from sglang-v0.5.23 v0.5.23
      dspark-patches carry v0.5.23                 then all others
      dspark-patches lock && dspark-patches check

    Ends with 4 when a release conflicts.
    """
    one, clone = releases.find(release), releases.data_root()
    before = States(_earlier(one, since), released(one).root)
    after = States(all_series.load(one), before.root, before.known())
    failed = False
    for other in dict.fromkeys((one, *releases.chosen(to))):
        ours = before
        if other != one:
            ours = States(all_series.load(other), released(other).root)
        carrying = Carrying(before, after, ours)
        carried = carrying.carried(clone)
        if not carrying.clashes:
            report.line(f"{other.tag}: merged")
            write(_files(other, carried), "`dspark-patches lock`, then `check`")
            continue
        failed = True
        report.line(f"{other.tag}: not written, there are conflicts", style="red")
        for clash in carrying.clashes:
            report.line(f"  {clash.patch}: {clash.what}")
            for line in clash.text.splitlines():
                report.line(f"    {line}")
    context.exit(Exit.CONFLICT if failed else Exit.OK)


class Carrying(Merging):
    """A release's series, with the edit of another's or of its own.

    Args:
        before: the edited release's files under the series before.
        after: the same under the series after, whose patches may lag behind.
        ours: the files of the release that the edit is carried to.
    """

    def __init__(self, before: States, after: States, ours: States) -> None:
        super().__init__(after.clashes)
        self._before, self._after, self._ours = before, after, ours
        self._seen: dict[tuple[str, int], Content] = {}
        self._modes = file_modes(after.series) | file_modes(ours.series)
        self._paths = before.paths | after.paths | ours.paths
        self._paths -= before.outside | after.outside | ours.outside
        self._paths -= single_additions(ours.series) | single_additions(after.series)

    def carried(self, clone: Path) -> Series:
        """The series after the edit; right when there are no clashes.

        Raises:
            Malformed: nothing is left of a patch.
            Precondition: an added file has no source in the clone.
        """
        old, new, here = (
            {patch.number: patch for patch in one.series.patches}
            for one in (self._before, self._after, self._ours)
        )
        # The edited series itself has its names and controls as they are now.
        own = new if self._ours is self._before else here
        numbers = (here.keys() | new.keys() - old.keys()) - (old.keys() - new.keys())
        states = {n: tuple(one.get(n) for one in (old, new, here)) for n in numbers}
        patches = tuple(
            self._patch(own.get(number) or new[number], states[number], own.get(number))
            for number in sorted(numbers)
        )
        series = msgspec.structs.replace(self._ours.series, patches=patches)
        root = self._ours.root
        made = restack(series, self.at, self._paths, self._modes, root, clone)
        for patch in made.patches:
            self._compare(patch, states[patch.number])
        return made

    def at(self, path: str, number: int) -> Content:
        """A file after all patches up to a number, and the edit."""
        if (path, number) not in self._seen:
            places = self._before, self._ours, self._after
            states = tuple(files.at(path, number) for files in places)
            self._seen[path, number] = self.three(states, f"{number:04}", path)
        return self._seen[path, number]

    def _patch(
        self, patch: Patch, states: Sequence[Patch | None], own: Patch | None
    ) -> Patch:
        """A patch with its words, its controls and the sections that have no states."""
        old, new, here = (
            (
                {s.path: s for s in one.file.sections if s.path not in self._paths}
                if one
                else {}
            )
            for one in states
        )
        added = {path: new[path] for path in new.keys() - old.keys()}
        kept = (added | here).keys() - (old.keys() - new.keys())
        sections = tuple((added | here)[path] for path in kept)
        file = msgspec.structs.replace(patch.file, sections=sections)
        if all(states):
            texts = (patch_files.commit_message(one.file).encode() for one in states)
            old_text, new_text, our_text = texts
            what = f"the message of {patch.name}"
            text = self.three((old_text, our_text, new_text), patch.name, what)
            own_sections = states[2].file.sections
            file = from_message(text.decode(), file.date, own_sections, what)
            file = msgspec.structs.replace(file, sections=sections)
        return msgspec.structs.replace(
            patch, file=file, controls=tuple(self._controls(states, own))
        )

    def _compare(self, patch: Patch, states: Sequence[Patch | None]) -> None:
        """Refuse a patch that changes other lines than it changed or should."""
        one, two, ours, made = (
            self._changes(each.file if each else None) for each in (*states, patch)
        )
        for path in {**one, **two, **ours, **made}:
            # It changes here what it changes there, or else what it did before.
            same = one.get(path) == ours.get(path)
            wanted = two.get(path) if same else ours.get(path)
            if (same or one.get(path) == two.get(path)) and made.get(path) != wanted:
                text = "merged, the patch would not change the same lines"
                self.clashes.append(Clash(patch=patch.name, what=path, text=text))

    def _changes(self, file: PatchFile | None) -> dict[str, list[bytes]]:
        """The lines that a patch removes and adds, by path."""
        sections = file.sections if file else ()
        return {
            s.path: [t for hunk in hunks(s) for t in hunk.lines if t[:1] != b" "]
            for s in sections
            if s.path in self._paths
        }

    def _controls(
        self, states: Sequence[Patch | None], own: Patch | None
    ) -> Iterator[Control]:
        """A patch's own controls, and those that the edit adds."""
        before, after = (one.controls if one else () for one in states[:2])
        ours = own.controls if own else ()
        for control in ours:
            yield self._control(control, self._ours)
        names = {control.name for control in (*before, *ours)}
        for control in after:
            if control.name not in names:
                yield self._control(control, self._after)

    def _control(self, control: Control, written: States) -> Control:
        """A control on the tree that its patch leaves here now.

        Args:
            control: the control.
            written: the files that it may have been written for.
        """
        made: list[Section] = []
        for section in control.sections:
            path, number = section.path, control.number
            then, now = written.at(path, number), self.at(path, number)
            if then != now and section.old == blob(then):
                # What a control breaks, it may break otherwise than before the edit.
                states = then, now, forward(then, section)
                after = self.three(states, control.name, path, "--theirs")
                section, *_ = (
                    *difference({path: now}, {path: after}, self._modes),
                    section,
                )
            made.append(section)
        return msgspec.structs.replace(control, sections=tuple(made))


def _earlier(one: Release, commit: str) -> Series:
    """A release's series as a commit of the clone has it."""
    clone, folder = releases.data_root(), releases.series_dir(one)
    with tempfile.TemporaryDirectory(prefix="dspark-patches-") as scratch:
        root = Path(scratch)
        places = {"GIT_WORK_TREE": scratch, "GIT_INDEX_FILE": str(root / "index")}
        git = Git(clone, places | {"GIT_DIR": str(clone / ".git")})
        try:
            git.run("checkout", "-q", commit, "--", f"patches/{folder.name}")
        except GitError as error:
            raise Precondition(
                f"{commit} of {clone} cannot be read", cause=error.stderr.strip()
            ) from error
        return all_series.load(one, root / "patches" / folder.name)


def _files(one: Release, carried: Series) -> dict[Path, bytes | None]:
    """The patches and controls of a series, and None for those that go."""
    folder = releases.series_dir(one)
    found: dict[Path, bytes | None] = {
        path: None for path in (*folder.glob("*.patch"), *folder.glob("controls/*"))
    }
    for patch in carried.patches:
        found[folder / f"{patch.name}.patch"] = patch_files.joined(patch.file)
        for control in patch.controls:
            text = b"".join(section.text for section in control.sections)
            path = folder / "controls" / f"{control.name}.diff"
            found[path] = f"{control.why}\n\n".encode() + text
    return found
