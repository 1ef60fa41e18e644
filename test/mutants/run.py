#!/usr/bin/env python3
"""Measure what the tests of a series notice: run.py [RELEASE...] [--help].

Each hunk is taken out of the patched tree on its own, and each line that a patch adds
is mutated by rule. Ends 0 if the tests noticed all but the exempt mutants, and every
exemption is still of use.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from dspark_patches.errors import Failure
from dspark_patches.model import releases

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "series")]

from mutation import campaign  # noqa: E402
from mutation.measure import release  # noqa: E402

EXEMPT = Path(__file__).with_name("exempt.toml")


def main() -> int:
    options = _options()
    tags = [release.tag for release in releases.chosen(options.release)]
    with ThreadPoolExecutor(options.jobs) as pool:
        # What waits for a thread cannot be stopped.
        apply = pool.map if options.jobs > 1 else map
        seen = dict(zip(tags, apply(partial(_one, options), tags)))
    if options.json:
        options.json.write_text(json.dumps(seen, indent=1) + "\n")
    bad = [line for each in seen.values() for line in campaign.findings(each)]
    print("\n".join(bad) if bad else "ok: no mutant lives that is not exempt")
    return 1 if bad else 0


def _one(options: argparse.Namespace, tag: str) -> dict[str, Any]:
    return campaign.run(release(tag), options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("release", nargs="*", help="all that have a series unless told")
    add("--json", type=Path, metavar="OUT", help="write all that was seen there")
    add("--sample", type=int, default=0, metavar="N", help="test N of them, by chance")
    add("--seed", type=int, default=0, metavar="S", help="which N")
    add("--patch", type=int, action="append", metavar="N", help="only this one's")
    add("--by-hand", type=Path, metavar="TOML", help="only the mutants of this file")
    add("--exempt", type=Path, default=EXEMPT, metavar="TOML", help="which may live")
    add("--jobs", type=int, default=1, metavar="N", help="releases at once")
    return parser.parse_args()


if __name__ == "__main__":
    # So that what was begun is ended, and the trees go.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sys.exit(main())
    except Failure as failure:
        sys.exit(f"{failure.message}: {failure.cause}")
