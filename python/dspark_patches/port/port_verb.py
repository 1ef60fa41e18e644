"""``dspark-patches port``: a verdict per patch on a tree that differs."""

from __future__ import annotations

from pathlib import Path

import click

from .. import options, report
from ..errors import Conflict, Exit, Usage
from ..files import replace_all
from ..installs.locate import locate
from ..model import releases
from .port import PatchVerdict, Report, port
from .section import Verdict
from .twice import tested

_WIDTH = max(len(str(verdict)) for verdict in Verdict)


@click.command(name="port")
@click.argument("release")
@click.argument("target", type=click.Path(path_type=Path))
@click.option(
    "--write",
    "folder",
    type=click.Path(path_type=Path, file_okay=False, resolve_path=True),
    metavar="DIR",
    help="Write the ported patches there, when all are clean or moved.",
)
@click.option(
    "--test/--no-test",
    "test",
    default=None,
    help="Run the series' tests on the merged tree; --write wants one or the other.",
)
@options.python
@options.form
@click.pass_context
def command(
    context: click.Context,
    release: str,
    target: Path,
    folder: Path | None,
    test: bool | None,
    python: str | None,
    form: str,
) -> None:
    """Say what each patch of RELEASE would do on TARGET, which is no known release.

    \b
    clean             every file is the release's, or every hunk stands at its line
    moved             the same lines, each in the same function or class
    upstreamed        TARGET has all of it already
    partly upstreamed TARGET has some of it
    gone              a file that it edits is not there
    conflict          none of these, or its tests fail on the merged tree
    double fix        it fits, and its tests pass without it and fail with it

    TARGET is only read. A fork may have cured a fault elsewhere, so that a patch
    fits and does it twice: with --test, where all patches fit, the series' tests
    run on a copy that has them, with --python. That runs code of TARGET.

    \b
    Examples:
      dspark-patches port v0.5.16 ~/my-fork
      dspark-patches port v0.5.16 ~/my-fork --test --write /tmp/ported
      git -C ~/my-fork am /tmp/ported/*.patch

    Ends with 0 when every patch is clean, moved or upstreamed, with 1 when
    not, with 4 when --write asks for patches that there cannot be.
    """

    def notify(text: str) -> None:
        report.line(text, stderr=True)

    if folder and test is None:
        raise Usage(
            "patches are written of tested patches",
            cause="a fork may do already what a patch that fits would do",
            next_step=f"add --test, which runs code of {target} on a copy, or --no-test",
        )
    place = locate(target, python)
    found = port(releases.find(release), place, notify)
    if test and found.good:
        found = tested(found, place, notify)
    _print(form, found)
    if folder:
        _write(found, folder)
        notify(f"wrote {len(found.patches)} patches into {folder}")
        notify(f"next: git -C {found.target} am {folder}/*.patch")
    context.exit(Exit.OK if found.good else Exit.FINDINGS)


def _print(form: str, found: Report) -> None:
    if form == "json":
        shown = ("release", "target", "fits", "tested", "left_out")
        told = {name: getattr(found, name) for name in shown}
        patches = [
            {
                "patch": one.patch.name,
                "kind": one.patch.kind,
                "verdict": str(one.verdict),
                "evidence": one.evidence,
            }
            for one in found.patches
        ]
        report.json({"ok": found.good, **told, "patches": patches})
        return
    report.line(f"the series of {found.release} on {found.target}")
    for one in found.patches:
        _print_verdict(form, found.release, one)
    if found.left_out:
        report.line(f"left out, not carried there: {', '.join(found.left_out)}")
    if not found.tested:
        report.line("not tested: what fits may be done there already; --test tells")
    if found.fits:
        report.line("next: --write DIR writes the ported patches")
    else:
        report.line(f"next: dspark-patches test {found.target}")


def _print_verdict(form: str, release: str, one: PatchVerdict) -> None:
    also = " (test)" if one.patch.kind == "test" else ""
    good = one.verdict <= Verdict.UPSTREAMED
    style = "green" if good else "red"
    report.line(f"  {one.verdict!s:{_WIDTH}}  {one.patch.name}{also}", style=style)
    for text in one.evidence:
        report.line(f"  {'':{_WIDTH}}    {text}")
    if form == "github" and not good:
        message = "\n".join([f"{one.patch.name}: {one.verdict}", *one.evidence])
        report.annotation("error", message, title=f"port {release}")


def _write(found: Report, folder: Path) -> None:
    if not found.fits:
        raise Conflict(
            "no patches were written",
            cause="a patch is neither clean nor moved",
            next_step="carry that patch over by hand, or leave it out",
        )
    if left_out := [p for p in found.left_out if not p.startswith("python/")]:
        raise Usage(
            "no patches were written",
            cause=f"{found.target} does not carry {left_out[0]}",
            next_step="name a full checkout as TARGET",
        )
    if folder.exists() and any(folder.iterdir()):
        raise Usage(f"{folder} is not empty", next_step="name a new folder")
    replace_all(
        {folder / f"{n}.patch": data for n, data in found.patch_files().items()}
    )
