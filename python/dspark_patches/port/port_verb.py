"""``dspark-patches port``: a verdict per patch on a tree that differs."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from .. import options, report
from ..errors import Conflict, Exit, Usage
from ..files import replace_all
from ..installs.locate import locate
from .confirm import confirmed
from .port import Porter
from .section import Verdict
from .verdicts import HELPED, Choice, PatchVerdict, Report, chosen

_WIDTH = max(len(str(verdict)) for verdict in Verdict)
_SHOWN = ("release", "how", "target", "good", "tested", "left_out", "uncommitted")


def _numbers(context, parameter, values: tuple[str, ...]) -> frozenset[int]:
    try:
        return chosen(values)
    except ValueError:
        raise click.BadParameter("expected a patch's number, as 3 or 0003") from None


@click.command(name="port")
@click.argument("target", type=click.Path(path_type=Path))
@click.option(
    "--release",
    "named",
    multiple=True,
    metavar="RELEASE",
    help="Take patches from this release; again for others to try after it.",
)
@click.option(
    "--only",
    multiple=True,
    callback=_numbers,
    help="Judge this patch; may be given again.",
)
@click.option(
    "--skip",
    multiple=True,
    callback=_numbers,
    help="Leave this patch out; may be given again.",
)
@click.option(
    "--write",
    "folder",
    type=click.Path(path_type=Path, file_okay=False, resolve_path=True),
    metavar="DIR",
    help="Write the patches that fit there, for git am.",
)
@click.option(
    "--test/--no-test",
    "test",
    default=None,
    help="Run the patches' tests on the merged tree; --write wants one or the other.",
)
@options.python
@options.form
@click.pass_context
def command(
    context: click.Context,
    target: Path,
    named: tuple[str, ...],
    only: frozenset[int],
    skip: frozenset[int],
    folder: Path | None,
    test: bool | None,
    python: str | None,
    form: str,
) -> None:
    """Say what each patch would do on TARGET, a fork that is no known release.

    \b
    clean             every file is the release's, or every hunk stands at its line
    moved             the same lines, each in the same function or class
    upstreamed        TARGET has all of it already
    partly upstreamed TARGET has some of it
    gone              a file that it edits is not there
    lacks names       it fits, and uses what TARGET does not have
    conflict          none of these, or its tests fail with it and without
    done elsewhere    its tests pass without it and fail with it: TARGET does it
    lacks the fix     tests alone, which fail: no release's fix fits

    Each patch is taken from the nearest release whose patch fits. TARGET is only
    read, and as its last commit has it. Lines that fit may do twice what a fork
    does elsewhere: with --test the patches' tests run, with --python, on a copy
    that has them, and decide. That runs code of TARGET.

    \b
    Examples:
      dspark-patches port ~/my-fork
      dspark-patches port ~/my-fork --test --write /tmp/ported
      git -C ~/my-fork am /tmp/ported/*.patch

    Ends with 0 when every patch fits, is in or is not needed, with 1 when not,
    with 4 when --write has nothing to write.
    """

    def notify(text: str) -> None:
        report.line(text, stderr=True)

    if folder and test is None:
        raise Usage(
            "patches are written of tested patches",
            cause="a fork may do already what a patch that fits would do",
            next_step=f"add --test, which runs code of {target} on a copy, or --no-test",
        )
    porter = Porter(locate(target, python), named, notify)
    choice = Choice(only=only, skip=skip)
    found = confirmed(porter, choice, notify) if test else porter.judge(choice)
    _print(form, found)
    if folder:
        _write(found, folder)
        into = shlex.quote(str(folder))
        notify(f"wrote {len(found.fitting)} patches into {into}")
        notify(f"next: git -C {shlex.quote(found.target)} am {into}/*.patch")
        notify(f"      then, to prove it: dspark-patches status --release {into}")
    context.exit(Exit.OK if found.good else Exit.FINDINGS)


def _print(form: str, found: Report) -> None:
    if form == "json":
        told = {name: getattr(found, name) for name in _SHOWN}
        patches = [
            {
                "patch": one.patch.name,
                "release": one.release,
                "kind": one.patch.kind,
                "verdict": str(one.verdict),
                "tests": one.tests,
                "evidence": one.evidence,
            }
            for one in found.patches
        ]
        report.json({"ok": found.good, **told, "patches": patches})
        return
    report.line(f"{found.target}: nearest is {found.release}, {found.how}")
    for one in found.patches:
        _print_verdict(form, found, one)
    if found.uncommitted:
        report.line(f"judged as committed: {', '.join(found.uncommitted)}")
    if found.left_out:
        report.line(f"left out, not carried there: {', '.join(found.left_out)}")
    if not found.tested:
        report.line("not tested: what fits may be done there already; --test tells")


def _print_verdict(form: str, found: Report, one: PatchVerdict) -> None:
    also = [one.release] if one.release != found.release else []
    also += ["test"] if one.patch.kind == "test" else []
    also += [f"its tests {one.tests}"] if one.tests else []
    more = f" ({', '.join(also)})" if also else ""
    good = one.verdict in HELPED
    style = "green" if good else "red"
    report.line(f"  {one.verdict!s:{_WIDTH}}  {one.patch.name}{more}", style=style)
    for text in one.evidence:
        report.line(f"  {'':{_WIDTH}}    {text}")
    if form == "github" and not good:
        message = "\n".join([f"{one.patch.name}: {one.verdict}", *one.evidence])
        report.annotation("error", message, title=f"port {one.release}")


def _write(found: Report, folder: Path) -> None:
    if not found.fitting:
        raise Conflict(
            "no patches were written",
            cause="none is clean or moved",
            next_step="carry a patch over by hand, as its evidence says",
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
