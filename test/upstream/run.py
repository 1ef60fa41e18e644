#!/usr/bin/env python3
"""Ask upstream's own CPU tests, lint and test registry about a series.

run.py CHECKOUT [--help]: CHECKOUT is SGLang's repository at a release's tag, or a
folder with its python, test and scripts; it is only read. Runs what upstream's CI runs
on a CPU in a copy as it is and in one with the release's series, `--dirs` below
test/registered/unit and what the series touches, and the lint of the touched files.
Ends 0 if nothing that passed before does otherwise after, and everything new passes.

A test that differs is run again, with its file, in both trees: it is flaky if one tree
does not say the same twice, and then counts for nothing.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from upstream_runs import tree
from upstream_runs.lint import lint
from upstream_runs.tree import Results

_PATCHES = Path(__file__).resolve().parents[2] / "patches"
_UNIT = "test/registered/unit"
_DIRS = "spec,managers,mem_cache,disaggregation,server_args"
_GOOD = ("passed", "skipped")
_ABSENT = ["absent", ""]

Trees = tuple[Path, Path]
Pair = tuple[list[str], list[str]]


def main() -> int:
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dspark-upstream-") as scratch:
        trees = tree.pair(options.checkout, options.patches, Path(scratch))
        report = {"release": options.release, **check(trees, options)}
    report["minutes"] = round((time.monotonic() - start) / 60, 1)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    _print(report)
    return 1 if any(d["kind"] == "broken" for d in report["differences"]) else 0


def check(trees: Trees, options: argparse.Namespace) -> dict:
    """What both trees say, and in what they differ."""
    touched = tree.touched(*trees)
    prefixes = tuple(f"{_UNIT}/{name}" for name in options.dirs.split(","))
    checks: list[Results] = []
    results: list[Results] = []
    for root in trees:
        selected = tree.selected(root)
        for prefix in prefixes:
            if not any(file.startswith(prefix) for file in selected):
                raise tree.Trouble(f"run_suite selects nothing in {prefix}")
        found, left_out = lint(root, touched)
        for file in touched:
            if re.match(r"test/registered/.*/test_\w+\.py", file):
                if (root / file).is_file():
                    state = "passed" if file in selected else "failed"
                    found[f"run_suite selects: {file}"] = [state, ""]
        checks.append(found)
        files = [f for f in selected if f.startswith(prefixes) or f in touched]
        results.append(_run(root, files, options.limit, options.jobs))
    return {
        "tests": [_counts(found) for found in results],
        "checks": [_counts(found) for found in checks],
        "checks_left_out": left_out,
        "differences": [
            *_judged(_differing(*results), trees, options.limit),
            *_judged(_differing(*checks)),
        ],
        "results": [checks[side] | results[side] for side in (0, 1)],
    }


def _run(root: Path, files: list[str], limit: float, jobs: int) -> Results:
    results: Results = {}
    for number, (file, found) in enumerate(tree.tests(root, files, limit, jobs), 1):
        results |= found
        where = f"{root.name} {number}/{len(files)} {file}"
        odd = [f"\n    {k}: {v[0]}" for k, v in found.items() if v[0] not in _GOOD]
        shown = _shown(_counts(found)) + "".join(odd)
        print(f"{where}: {shown}", file=sys.stderr, flush=True)
    return results


def _differing(before: Results, after: Results) -> dict[str, Pair]:
    """What was there before and differs after, or is new and does not pass."""
    pairs = {k: (before.get(k, _ABSENT), after.get(k, _ABSENT)) for k in before | after}
    return {
        k: (b, a)
        for k, (b, a) in pairs.items()
        if b[0] != a[0] and (b is not _ABSENT or _is_worse(b, a))
    }


def _is_worse(before: list[str], after: list[str]) -> bool:
    if before is _ABSENT:
        return after[0] not in (*_GOOD, "absent")
    return before[0] == "passed" and after[0] != "passed"


def _judged(
    pairs: dict[str, Pair], trees: Trees | None = None, limit: float = 0
) -> Iterator[dict]:
    """Each difference with what a second run says of it, where there are trees."""
    again = [{}, {}]
    files = sorted({name.partition("::")[0] for name in pairs})
    for side, root in enumerate(trees if trees and files else ()):
        had = [file for file in files if (root / file).is_file()]
        again[side] = _run(root, had, limit, 1)
    for name, pair in pairs.items():
        second = [found.get(name, _ABSENT) for found in again] if trees else pair
        kind = "changed"
        if _is_worse(*pair):
            stays = second[0][0] == pair[0][0] and _is_worse(*second)
            kind = "broken" if stays else "flaky"
        elif [state for state, _ in second] != [state for state, _ in pair]:
            kind = "flaky"
        yield {
            "kind": kind,
            "what": name,
            "before": pair[0],
            "after": pair[1],
            "again": [state for state, _ in second],
        }


def _counts(results: Results) -> dict[str, int]:
    return dict(Counter(state for state, _ in results.values()).most_common())


def _shown(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in counts.items())


def _print(report: dict) -> None:
    for what in ("tests", "checks"):
        for side, counts in zip(("before", "after"), report[what]):
            print(f"{report['release']} {what} {side}: {_shown(counts)}")
    for name, why in report["checks_left_out"].items():
        print(f"not run: {name}: {why}")
    for d in report["differences"]:
        print(
            f"{d['kind']}: {d['what']}: {d['before'][0]} before, {d['after'][0]} "
            f"after; again {' and '.join(d['again'])}"
        )
        if d["kind"] == "broken":
            print("    " + d["after"][1].strip().replace("\n", "\n    "))
    print(f"{report['minutes']} minutes")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", type=Path)
    parser.add_argument(
        "--release", help="the series; what the folder or tag is called"
    )
    parser.add_argument("--json", type=Path, help="takes every result and its reason")
    parser.add_argument(
        "--dirs", default=_DIRS, help="or files, by commas (%(default)s)"
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=300, help="seconds for a file")
    parser.add_argument(
        "--patches", dest="folder", type=Path, default=_PATCHES, help=argparse.SUPPRESS
    )
    options = parser.parse_args()
    options.checkout = options.checkout.resolve()
    if not options.release:
        options.release = tree.tag(options.checkout) or options.checkout.name
    options.patches = sorted(
        (options.folder / options.release).resolve().glob("*.patch")
    )
    if not options.patches:
        parser.error(
            f"there is no series for {options.release}: name one with --release"
        )
    return options


if __name__ == "__main__":
    try:
        sys.exit(main())
    except tree.Trouble as trouble:
        print(trouble, file=sys.stderr)
        sys.exit(2)
