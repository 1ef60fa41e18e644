"""Make ``docs/pd-algorithms.md``: which algorithms decode after a PD handoff.

    python test/series/pd_table.py

runs ``cases/pd_algorithms.py`` in every release's pristine and patched tree and
writes the table that the README shows.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from dspark_patches.model import releases
from dspark_patches.model.releases import Release
from dspark_patches.proof import runner
from dspark_patches.trees import make as trees
from dspark_patches.trees.make import PATCHED, PRISTINE

PROBE = Path(__file__).parent / "cases" / "pd_algorithms.py"
TABLE = Path(__file__).parents[2] / "docs" / "pd-algorithms.md"


class Probed(msgspec.Struct, frozen=True):
    """What became of one algorithm in one tree, as the probe prints it."""

    algorithm: str
    overlap: bool
    refused: bool
    wrong: tuple[str, ...]


class Measured(msgspec.Struct, frozen=True):
    """One release: what was probed in its released and in its patched tree."""

    tag: str
    released: tuple[Probed, ...]
    patched: tuple[Probed, ...]

    def verdict(self, algorithm: str) -> str:
        """The table's cell. Start-up must refuse what cannot work and no more.

        Raises:
            AssertionError: it refuses what works, or leaves what does not.
        """
        released = [one for one in self.released if one.algorithm == algorithm]
        patched = [one for one in self.patched if one.algorithm == algorithm]
        if not released:
            return ""
        fixed = not any(one.wrong for one in patched)
        refused = all(one.refused for one in patched)
        if refused == fixed:
            raise AssertionError(f"{self.tag} {algorithm}: {patched}")
        if not any(one.wrong for one in released):
            return "works"
        return "crashes, refused" if refused else "crashes, works"


def measure_all() -> list[Measured]:
    """Measure every release that has a series, two trees at a time."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(measure, releases.with_series()))


def measure(release: Release) -> Measured:
    """Probe a release's pristine and patched tree."""
    return Measured(release.tag, probe(release, PRISTINE), probe(release, PATCHED))


def probe(release: Release, tree: str) -> tuple[Probed, ...]:
    """Run the probe with the sglang of one of a release's trees."""
    with tempfile.TemporaryDirectory(prefix="dspark-pd-") as root:
        trees.make(release, tree, Path(root))
        ran = subprocess.run(
            [sys.executable, str(PROBE)],
            cwd=root,
            env=runner.environment(Path(root)),
            capture_output=True,
            check=True,
            timeout=runner.TIMEOUT,
        )
    lines = [line for line in ran.stdout.splitlines() if line.startswith(b"{")]
    return tuple(msgspec.json.decode(line, type=Probed) for line in lines)


def render(measured: Sequence[Measured]) -> str:
    """The table, and below it where each algorithm fails as released."""
    names = dict.fromkeys(one.algorithm for m in measured for one in m.released)
    lines = [
        "| algorithm | " + " | ".join(m.tag for m in measured) + " |",
        "|---|" + "---|" * len(measured),
    ]
    for name in names:
        cells = (m.verdict(name) for m in measured)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "Two requests are followed through the decode node's own code up to the draft"
        " model's forward, with and without overlap. *works*: as released, and with"
        " the series. *crashes, works*: as released, then with the series."
        " *crashes, refused*: the series refuses it at start-up.",
        "",
        "| fails as released | where and how |",
        "|---|---|",
        *(f"| {who} | {how} |" for who, how in _failures(measured)),
    ]
    return "\n".join(lines) + "\n"


def _failures(measured: Sequence[Measured]) -> Iterable[tuple[str, str]]:
    """Who fails in which way: alike on several releases, told once."""
    seen: dict[tuple[str, str], list[tuple[str, bool]]] = {}
    for one in measured:
        for probed in one.released:
            if probed.wrong:
                how = "; then ".join(probed.wrong)
                where = seen.setdefault((probed.algorithm, how), [])
                where.append((one.tag, probed.overlap))
    for (algorithm, how), where in sorted(seen.items()):
        tags = list(dict.fromkeys(tag for tag, _ in where))
        span = tags[0] if len(tags) == 1 else f"{tags[0]} to {tags[-1]}"
        overlaps = {overlap for _, overlap in where}
        mode = {(True,): ", overlap", (False,): ", no overlap"}.get((*overlaps,), "")
        yield f"{algorithm}, {span}{mode}", how.replace("|", "\\|")


if __name__ == "__main__":
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(render(measure_all()), encoding="utf-8")
