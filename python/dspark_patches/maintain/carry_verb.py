"""``dspark-patches carry``: an edit of one release's series, on the others too."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from .. import report
from ..errors import Exit, Precondition
from ..git import Git, GitError
from ..model import releases, series, states
from ..model.releases import Release
from ..model.series import Series
from ..trees import make
from . import export
from .carry import Carried, Edit, carry
from .export_verb import write


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
    one = releases.find(release)
    others = tuple(map(releases.find, to)) or releases.with_series()
    before = _earlier(one, since)
    edit = Edit(before, series.load(one), _find(one))
    failed = False
    for other in dict.fromkeys((one, *others)):
        here = before if other == one else series.load(other)
        carried = carry(edit, here, _find(other))
        if carried.clashes:
            _show(other, carried)
            failed = True
        else:
            _write(other, carried)
    report.line("next: `dspark-patches lock`, and `dspark-patches check`")
    context.exit(Exit.CONFLICT if failed else Exit.OK)


def _find(one: Release) -> states.Find:
    notify = lambda text: report.line(text, stderr=True)  # noqa: E731
    return states.in_folder(make.released(one, notify).root)


def _earlier(one: Release, commit: str) -> Series:
    """A release's series as a commit of the clone has it."""
    clone = releases.data_root()
    folder = releases.series_dir(one).relative_to(clone).as_posix()
    git = Git(clone)
    with tempfile.TemporaryDirectory(prefix="dspark-patches-") as scratch:
        root = Path(scratch) / one.tag
        try:
            listed = git.text("ls-tree", "-r", "--name-only", commit, "--", folder)
            for name in listed.splitlines():
                file = root / Path(name).relative_to(folder)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(git.run("cat-file", "blob", f"{commit}:{name}"))
        except GitError as error:
            raise Precondition(
                f"{commit} of {clone} cannot be read", cause=error.stderr.strip()
            ) from error
        return series.load(one, root)


def _write(one: Release, carried: Carried) -> None:
    folder, root = releases.series_dir(one), releases.data_root()
    released = make.released(one).root
    written: dict[Path, bytes | None] = {
        path: None for path in (*folder.glob("*.patch"), *folder.glob("controls/*"))
    }
    for name, data in export.regenerate(carried.series, released, root).items():
        written[folder / f"{name}.patch"] = data
    for patch in carried.series.patches:
        for control in patch.controls:
            text = b"".join(section.text for section in control.sections)
            path = folder / "controls" / f"{control.name}.diff"
            written[path] = f"{control.why}\n\n".encode() + text
    changes = {
        path: data
        for path, data in written.items()
        if (path.read_bytes() if path.is_file() else None) != data
    }
    write(changes)
    if not changes:
        report.line(f"{one.tag}: nothing changed")


def _show(one: Release, carried: Carried) -> None:
    report.line(f"{one.tag}: not written, there are conflicts", style="red")
    for clash in carried.clashes:
        report.line(f"  {clash.patch}: {clash.what}")
        for line in clash.text.splitlines():
            report.line(f"    {line}")
