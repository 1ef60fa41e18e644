"""``dspark-patches readme``: the README's generated parts, from their sources.

A part stands between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``. The
part ``series`` is made from the patches; every other one is ``docs/NAME.md``,
which the job that measures it writes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import click

from .. import options
from ..errors import BadInput, Exit
from ..findings import Finding
from ..model import lock, releases, series
from ..model.diff import blob_id
from ..model.releases import Release
from ..report import print_findings
from .clone import write

_PART = re.compile(
    r"(?P<begin><!-- begin (?P<name>[a-z0-9/-]+) -->\n).*?(?P<end><!-- end (?P=name) -->)",
    re.DOTALL,
)


@click.command(name="readme")
@click.option("--check", "only_check", is_flag=True, help="Compare; write nothing.")
@options.form
@click.pass_context
def command(context: click.Context, only_check: bool, form: str) -> None:
    """Write the generated parts of the clone's README anew.

    The table of patches comes from the patches; figures come from the files below
    docs that `scripts/bench` and the tests write.

    \b
    Examples:
      dspark-patches readme
      dspark-patches readme --check --format github

    With --check, ends with 1 when a part is out of date.
    """
    root = releases.data_root()
    path = root / "README.md"
    text = path.read_text(encoding="utf-8")
    known = releases.with_series()
    if only_check:
        found = check(text, known, root / "docs")
        failed = print_findings(form, found, "README.md")
        context.exit(Exit.FINDINGS if failed else Exit.OK)
    write({path: fill(text, known, root / "docs").encode()}, "commit it")


def fill(text: str, releases: Sequence[Release], docs: Path) -> str:
    """The README's text with every generated part made anew.

    Raises:
        BadInput: a part is unknown, or a patch is broken.
    """

    def part(match: re.Match[str]) -> str:
        name = match["name"]
        made = series_table(releases) if name == "series" else _of_docs(name, docs)
        return match["begin"] + made + match["end"]

    return _PART.sub(part, text)


def check(text: str, releases: Sequence[Release], docs: Path) -> tuple[Finding, ...]:
    """A finding per generated part that is out of date, and one where figures are
    missing, in part or all, or of other patches than the clone's.

    Raises:
        BadInput: a part is unknown, or a patch or lock is broken.
    """
    found = []
    for old, new in zip(
        _PART.finditer(text), _PART.finditer(fill(text, releases, docs))
    ):
        if old[0] != new[0]:
            line = text.count("\n", 0, old.start()) + 1
            what = f"the part {old['name']!r} is out of date"
            hint = "run `dspark-patches readme`"
            found.append(Finding(file="README.md", line=line, what=what, hint=hint))
    path = docs / "figures" / "results.json"
    made = json.loads(path.read_bytes())["releases"] if path.exists() else {}
    tags = [
        one.tag
        for one in releases
        if path.exists() and made.get(one.tag) != served(one) | {"missing": []}
    ]
    if tags:
        what = f"the figures of {', '.join(tags)} are missing or of other patches"
        hint = f"run `scripts/bench {' '.join(tags)} --readme`, then "
        hint += "`dspark-patches readme`"
        file = "docs/figures/results.json"
        found.append(Finding(file=file, what=what, hint=hint))
    return tuple(found)


def served(release: Release) -> dict[str, str]:
    """What a release's figures stand for: its wheel, and the files that its series
    makes of it, no tests."""
    locked = lock.load(release)
    blobs = sorted(locked.result_blobs().items())
    lines = (f"{path} {blob}" for path, blob in blobs if not series.is_test(path))
    made = blob_id("\n".join(lines).encode())
    return {"wheel_sha256": locked.wheel.sha256, "series_blob": made}


def series_table(releases: Sequence[Release]) -> str:
    """Which patch stands in which series, as a Markdown table.

    A patch is known by its number; its subjects may differ where one release
    needs the fix and another only its test: the fix's own words count.
    """
    rows: dict[int, dict[str, series.Patch]] = {}
    for release in releases:
        for patch in series.load(release).patches:
            rows.setdefault(patch.number, {})[release.tag] = patch
    tags = [release.tag for release in releases]
    lines = ["| | patch | " + " | ".join(tags) + " |", "|---" * (len(tags) + 2) + "|"]
    for number, patches in sorted(rows.items()):
        first, *_ = sorted(patches.values(), key=lambda patch: patch.kind != "fix")
        cells = [patches[tag].kind if tag in patches else "" for tag in tags]
        lines.append(f"| {number:04} | {first.file.subject} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _of_docs(name: str, docs: Path) -> str:
    source = docs / f"{name}.md"
    try:
        return source.read_text(encoding="utf-8").rstrip("\n") + "\n"
    except (OSError, UnicodeDecodeError) as error:
        maker = " with `scripts/bench --readme`" if name.startswith("figures/") else ""
        raise BadInput(
            f"README.md asks for the part {name!r}, and {source} cannot be read",
            cause=str(error),
            next_step=f"make it{maker}, or take the part out",
        ) from error
