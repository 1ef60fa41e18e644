#!/usr/bin/env python3
"""The whole proof of a release: run.py [RELEASE...] [--help].

Every patch red, then green, the extra tests included; every hunk taken out and every
added line mutated; loads on the release's own scheduler; and upstream's own tests,
where `--tags` holds a checkout of the tag. What was seen goes into docs/proof.json,
and as a table into docs/proof.md, which the README shows. A part takes from two
minutes to an hour of two cores. Ends 0 if nothing is amiss.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PROOF = ROOT / "docs" / "proof.json"
sys.path.insert(0, str(ROOT / "test" / "series"))

import extra  # noqa: E402

from dspark_patches.maintain.readme import served  # noqa: E402
from dspark_patches.model import releases  # noqa: E402
from dspark_patches.model.releases import Release  # noqa: E402
from dspark_patches.proof import verify  # noqa: E402

# What a part counted; "amiss" is how much of it is not as it must be.
Counts = dict[str, int]
# By release and part, the counts and the "series" that they are of.
Proof = dict[str, dict[str, dict[str, Any]]]


def patches(release: Release) -> Counts:
    """Every patch, red and then green, with the extra tests."""
    found = verify.verify([release], verify.Options(), print, load=extra.load)
    return dict(patches=len(found.results), amiss=len(found.findings))


def mutants(release: Release) -> Counts:
    """Every hunk taken out, and every added line mutated by rule."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "mutants.json")
        _run("mutants", release.tag, "--json", out)
        found = json.loads(out.read_bytes())[release.tag]
    rows = found["patches"].values()
    sums = {kind: sum(row[kind] for row in rows) for kind in next(iter(rows))}
    kept = {kind: sums[kind] for kind in ("hunks", "mutants", "exempt")}
    return kept | dict(amiss=sums["alive"] + len(found["stale"]))


def engine(release: Release) -> Counts:
    """Loads on the patched release's scheduler, whose KV is written and read."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = ("--release", release.tag, "--tree", "patched", "--out", folder)
        code = _run("engine", *arguments)
        loads = [json.loads(path.read_bytes()) for path in Path(folder).glob("*.json")]
    answers = [answer for load in loads for answer in load[release.tag]["patched"]]
    # Some releases lack a cache that others have.
    answers = [answer for answer in answers if not answer["absent"]]
    reads = sum(answer["record"]["read"] for answer in answers if answer["record"])
    return dict(runs=len(answers), reads=reads, amiss=int(code != 0))


def upstream(release: Release, checkout: Path) -> Counts:
    """Upstream's own CPU tests and lint, as the tag has them and with the series."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "upstream.json")
        _run("upstream", checkout, "--release", release.tag, "--json", out)
        found = json.loads(out.read_bytes())
    before, after = (counts.get("passed", 0) for counts in found["tests"])
    broken = sum(one["kind"] == "broken" for one in found["differences"])
    return dict(before=before, after=after, amiss=broken)


PARTS = dict(patches=patches, mutants=mutants, engine=engine, upstream=upstream)


def table(proof: Proof, series: dict[str, str]) -> str:
    """A row for each release.

    Args:
        proof: what was seen.
        series: each release's series as it is; what is of another one is not shown.
    """
    columns = ("patches", "hunks out", "lines mutated", "scheduler runs")
    columns += ("KV cells read", "upstream's tests")
    rows = [("release", *columns), (":--", *["--:"] * len(columns))]
    for tag, current in series.items():
        seen = {
            part: counts
            for part, counts in proof.get(tag, {}).items()
            if counts["series"] == current
        }
        rows.append((tag, *_cells(seen)))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _cells(seen: dict[str, dict[str, Any]]) -> list[str]:
    shown = {
        "patches": ["{patches}"],
        "mutants": ["{hunks}", "{mutants}, {exempt} exempt"],
        "engine": ["{runs}", "{reads:,}"],
        "upstream": ["{before:,} -> {after:,}"],
    }
    cells = []
    for part, texts in shown.items():
        counts = seen.get(part)
        amiss = f", {counts['amiss']} amiss" if counts and counts["amiss"] else ""
        cells += [text.format(**counts) + amiss if counts else "-" for text in texts]
    return cells


def current_table() -> str:
    """The table of what docs/proof.json says of the series as they are."""
    series = {one.tag: served(one)["series_blob"] for one in releases.with_series()}
    return table(json.loads(PROOF.read_bytes()), series)


def main() -> int:
    options = _options()
    proof: Proof = json.loads(PROOF.read_bytes()) if PROOF.exists() else {}
    amiss = 0
    for release in releases.chosen(options.release):
        for part in options.part:
            more = [options.tags / release.tag] if part == "upstream" else []
            counts = PARTS[part](release, *more)
            amiss += counts["amiss"]
            seen = counts | dict(series=served(release)["series_blob"])
            proof.setdefault(release.tag, {})[part] = seen
            PROOF.write_text(json.dumps(proof, indent=1, sort_keys=True) + "\n")
    PROOF.with_suffix(".md").write_text(made := current_table())
    print(made, "next: `dspark-patches readme`", sep="")
    return 1 if amiss else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("release", nargs="*", help="all that have a series unless told")
    told = "all unless told, upstream's by --tags; none makes the table alone"
    add("--part", nargs="*", choices=PARTS, help=told)
    add("--tags", type=Path, metavar="DIR", help="holds a checkout of each tag")
    options = parser.parse_args()
    if options.part is None:
        options.part = [part for part in PARTS if part != "upstream" or options.tags]
    elif "upstream" in options.part and not options.tags:
        parser.error("upstream's tests need --tags DIR, a checkout of each tag")
    return options


def _run(name: str, *arguments: object) -> int:
    command = [sys.executable, ROOT / "test" / name / "run.py", *arguments]
    return subprocess.run([str(each) for each in command]).returncode


if __name__ == "__main__":
    sys.exit(main())
