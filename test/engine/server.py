#!/usr/bin/env python3
"""Serve loads with each release's whole server: server.py [--help].

Tokenizer manager, scheduler, detokenizer and HTTP server, started as
``python -m sglang.launch_server`` is, on loopback. Ends 0 if nothing went wrong on
a patched tree.
"""

from __future__ import annotations

import argparse
import itertools
import json
import signal
import sys
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from engine_runs import service  # noqa: E402
from engine_runs.matrix import ALGORITHMS  # noqa: E402

from bench.place import place  # noqa: E402
from bench.results import PATCHED, RELEASED  # noqa: E402
from dspark_patches.model import releases  # noqa: E402


def main() -> int:
    options = _options()
    # As Ctrl-C, so that the servers end with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    failed = False
    with place() as where:
        for tag, kind, algorithm, name in itertools.product(
            options.release, options.tree, options.algorithm, options.load
        ):
            load = service.LOADS[name](algorithm)
            seen = service.serve(where.tree(tag, kind), load)
            found = service.trouble(load, seen)
            failed |= bool(found) and kind == PATCHED
            which = dict(release=tag, tree=kind, algorithm=algorithm, load=name)
            (_tell_json if options.json else _tell)(which, seen, found)
            sys.stdout.flush()
    return 1 if failed else 0


def _tell_json(which: dict[str, str], seen: service.Seen, found: list[str]) -> None:
    row = dict(**which, seen=msgspec.to_builtins(seen), trouble=found)
    print(json.dumps(row))


def _tell(which: dict[str, str], seen: service.Seen, found: list[str]) -> None:
    print(*which.values(), *(f"{seconds} s" for seconds in seen.seconds))
    print(f"  /health {seen.health}, #swa token at most {seen.swa_peak}")
    for said in itertools.chain(*seen.answers):
        print("  ", *filter(None, msgspec.structs.astuple(said)))
    for line in found:
        print(f"  ! {line}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    tags = [release.tag for release in releases.with_series()]
    parser.add_argument("--release", nargs="+", default=tags, metavar="TAG")
    parser.add_argument(
        "--load",
        nargs="+",
        default=["long", "backup"],
        choices=service.LOADS,
    )
    parser.add_argument(
        "--tree",
        nargs="+",
        default=[RELEASED, PATCHED],
        choices=[RELEASED, PATCHED],
    )
    parser.add_argument(
        "--algorithm",
        nargs="+",
        default=["DSPARK", service.NONE],
        choices=[*ALGORITHMS, service.NONE],
    )
    parser.add_argument("--json", action="store_true", help="a line for each server")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
