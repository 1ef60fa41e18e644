"""``dspark-patches verify``: every patch red, then green."""

from __future__ import annotations

import time
from pathlib import Path

import click

from .. import options, report
from ..errors import Exit
from ..model import releases
from .judgement import Judgement
from .verify import Options, verify


@click.command(name="verify")
@click.argument("release", nargs=-1)
@options.form
@click.option(
    "--jobs",
    type=click.IntRange(1, 64),
    default=2,
    show_default=True,
    help="How many trees to test at once; each needs about 1 GiB of memory.",
)
@options.timeout
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False, resolve_path=True),
    metavar="DIR",
    help="Keep the trees below DIR, as DIR/RELEASE/pristine and so on.",
)
@click.pass_context
def command(
    context: click.Context,
    release: tuple[str, ...],
    form: str,
    jobs: int,
    timeout: float,
    keep: Path | None,
) -> None:
    """Show that every patch of a RELEASE is needed and works.

    Each release's wheel is downloaded once. Its regression tests must
    fail on the released code, for the right reason, and pass on the patched
    code. With no RELEASE, every release that has a series is verified.

    \b
    Examples:
      dspark-patches verify                      all releases
      dspark-patches verify v0.5.16              one release
      dspark-patches verify --format json        for a program
      dspark-patches verify v0.5.16 --keep /tmp/trees
      dspark-patches exec /tmp/trees/v0.5.16/patched test/.../test_x.py -f

    Ends with 0 when all is proven, 1 when not, 3 when it could not be tried.
    """
    started = time.monotonic()
    seen = verify(
        releases.chosen(release),
        Options(jobs=jobs, timeout=timeout, keep=keep),
        lambda text: report.line(text, stderr=True),
        lambda judgement: _print(form, judgement),
    )
    if form == "json":
        report.json(seen)
    else:
        tags = ", ".join(dict.fromkeys(result.release for result in seen.results))
        proven = sum(result.red and result.green for result in seen.results)
        told = f"{proven} of {len(seen.results)} patches red, then green "
        told += f"({tags}; {time.monotonic() - started:.0f} s)"
        found = f"findings: {len(seen.findings)}; "
        report.line(f"ok: {told}" if seen.ok else found + told)
    context.exit(Exit.OK if seen.ok else Exit.FINDINGS)


def _print(form: str, judgement: Judgement) -> None:
    """Print what was seen of one release."""
    proofs, findings = judgement
    if form == "text":
        width = max(len(proof.patch) for proof in proofs)
        report.line(f"{proofs[0].release:{width}}  kind  red  green  tests")
        for proof in proofs:
            red, green = ("yes" if one else "NO" for one in (proof.red, proof.green))
            told = f"{proof.kind:4}  {red:3}  {green:5}  {len(proof.tests):5}"
            report.line(f"{proof.patch:{width}}  {told}")
        for proof in proofs:
            for path in proof.left_out:
                why = "since no wheel carries it"
                report.line(f"left out of {proof.patch}, {why}: {path}")
    for finding in findings if form != "json" else ():
        report.print_finding(form, finding)
