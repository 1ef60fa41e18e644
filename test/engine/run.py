#!/usr/bin/env python3
"""Serve loads with each release's own scheduler: run.py [--help].

Every release as released and with its series, each in processes of its own. What was
seen goes into OUT as JSON, and as tables in Markdown. Ends 0 if, on patched trees,
all requests ended with the right text and full pools, and every sabotage was
noticed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from engine_runs import children, matrix, tables

from dspark_patches.model import releases

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.place import Place, place  # noqa: E402
from bench.results import PATCHED, RELEASED  # noqa: E402

_NOTICED = "WrongKV"


def main() -> int:
    options = _options()
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    findings: list[str] = []
    with place() as where:
        for load in options.load:
            seen: tables.Seen = {}
            for tag in options.release:
                seen[tag] = {}
                for kind, tree in _trees(options, where, tag):
                    answers = _serve(load, f"{tag} {kind}", tree)
                    seen[tag][kind] = answers
                    if kind != RELEASED or load == "sabotage":
                        findings += _findings(load, f"{tag} {kind}", answers)
                _write(out, load, seen)
    for finding in findings:
        print(finding)
    return 1 if findings else 0


def _serve(load: str, where: str, tree: Path) -> list[tables.Answer]:
    tasks = matrix.LOADS[load]()
    answers = []
    for answer in children.answers(tree, tasks):
        answers.append(answer)
        _tell(f"{where}, {load}: {len(answers)} of {len(tasks)}")
    return answers


def _findings(load: str, where: str, answers: list[tables.Answer]) -> Iterator[str]:
    for answer in answers:
        found = tables.trouble(answer)
        name = f"{where}, {load}, {answer['task']['name']}"
        if load != "sabotage":
            if found:
                yield f"{name}: {found}"
        elif _NOTICED not in found:
            yield f"{name}: not noticed: {found or 'all ended well'}"


def _trees(options, where: Place, tag: str) -> Iterator[tuple[str, Path]]:
    for kind in options.tree:
        if kind in (RELEASED, PATCHED):
            yield kind, where.tree(tag, kind)
        else:
            label, _, path = kind.partition("=")
            yield label, Path(path.format(tag=tag)).absolute()


def _write(out: Path, load: str, seen: tables.Seen) -> None:
    Path(out, f"{load}.json").write_text(json.dumps(seen) + "\n")
    Path(out, f"{load}.md").write_text(
        tables.markdown(load, seen) + "\n" + tables.NOTES
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    tags = [release.tag for release in releases.with_series()]
    parser.add_argument("--release", nargs="+", default=tags, metavar="TAG")
    parser.add_argument("--load", nargs="+", default=list(matrix.LOADS))
    parser.add_argument(
        "--tree",
        nargs="+",
        default=[RELEASED, PATCHED],
        metavar="KIND",
        help=f"{RELEASED}, {PATCHED}, or LABEL=PATH with {{tag}} for the release",
    )
    parser.add_argument("--out", type=Path, default=Path("engine-results"))
    return parser.parse_args()


def _tell(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
