"""The generated parts of the README.

A part stands between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``. The
part ``series`` is made from the patches; every other one is ``docs/NAME.md``,
which the job that measures it writes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from ..errors import BadInput
from ..findings import Finding
from ..model import lock, series
from ..model.diff import blob_id
from ..model.releases import Release

_PART = re.compile(
    r"(?P<begin><!-- begin (?P<name>[a-z0-9/-]+) -->\n).*?(?P<end><!-- end (?P=name) -->)",
    re.DOTALL,
)
# What writes the files below a folder of docs.
_MAKERS = {"figures": " with `scripts/bench --readme`"}
_MEND = "run `dspark-patches readme`"


def fill(text: str, releases: Sequence[Release], docs: Path) -> str:
    """The README's text with every generated part made anew.

    Raises:
        BadInput: a part is unknown, or a patch is broken.
    """

    def part(match: re.Match[str]) -> str:
        return match["begin"] + _content(match["name"], releases, docs) + match["end"]

    return _PART.sub(part, text)


def check(text: str, releases: Sequence[Release], docs: Path) -> tuple[Finding, ...]:
    """A finding per generated part that is out of date, and one where figures are
    of other patches than the clone's.

    Raises:
        BadInput: a part is unknown, or a patch or lock is broken.
    """
    parts = zip(_PART.finditer(text), _PART.finditer(fill(text, releases, docs)))
    return tuple(
        Finding(
            file="README.md",
            line=text.count("\n", 0, old.start()) + 1,
            what=f"the part {old['name']!r} is out of date",
            hint=_MEND,
        )
        for old, new in parts
        if old[0] != new[0]
    ) + _outdated_figures(releases, docs)


def served(release: Release) -> dict[str, str]:
    """What a release's figures stand for: its wheel, and the files that its series
    makes of it, no tests."""
    locked = lock.load(release)
    blobs = sorted(locked.result_blobs().items())
    text = "\n".join(
        f"{path} {blob}" for path, blob in blobs if not series.is_test(path)
    )
    return {
        "wheel_sha256": locked.wheel.sha256,
        "series_blob": blob_id(text.encode()),
    }


def series_table(releases: Sequence[Release]) -> str:
    """Which patch stands in which series, as a Markdown table.

    A patch is known by its number; its subjects may differ where one release
    needs the fix and another only its test.
    """
    rows: dict[int, dict[str, series.Patch]] = {}
    for release in releases:
        for patch in series.load(release).patches:
            rows.setdefault(patch.number, {})[release.tag] = patch
    tags = [release.tag for release in releases]
    lines = [
        "| | patch | " + " | ".join(tags) + " |",
        "|---|---|" + "---|" * len(tags),
    ]
    for number, patches in sorted(rows.items()):
        subject = _subject(list(patches.values()))
        cells = [patches[tag].kind if tag in patches else "" for tag in tags]
        lines.append(f"| {number:04d} | {subject} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _outdated_figures(releases: Sequence[Release], docs: Path) -> tuple[Finding, ...]:
    """A finding where figures are missing, in part or all, or of other patches."""
    path = docs / "figures" / "results.json"
    made = json.loads(path.read_bytes())["releases"] if path.exists() else None
    tags = [
        release.tag
        for release in releases
        if made is not None
        and made.get(release.tag) != served(release) | {"missing": []}
    ]
    if not tags:
        return ()
    return (
        Finding(
            file="docs/figures/results.json",
            what=f"the figures of {', '.join(tags)} are missing or of other patches",
            hint=(
                f"run `scripts/bench {' '.join(tags)} --readme`, then "
                "`dspark-patches readme`"
            ),
        ),
    )


def _subject(patches: Sequence[series.Patch]) -> str:
    """The fix's own words where there is one."""
    fixes = [patch for patch in patches if patch.kind == "fix"]
    return (fixes or patches)[0].file.subject


def _content(name: str, releases: Sequence[Release], docs: Path) -> str:
    if name == "series":
        return series_table(releases)
    source = docs / f"{name}.md"
    try:
        return source.read_text(encoding="utf-8").rstrip("\n") + "\n"
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"README.md asks for the part {name!r}, and {source} cannot be read",
            cause=str(error),
            next_step=f"make it{_MAKERS.get(source.parent.name, '')}, or take the part out",
        ) from error
