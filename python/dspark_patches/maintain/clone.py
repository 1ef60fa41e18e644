"""What the verbs read of a release, and write into the clone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from .. import report
from ..files import replace_all
from ..model.releases import Release
from ..trees import make
from ..trees.wheels import Released


def released(release: Release) -> Released:
    """A release's tree; says so before something slow begins."""
    return make.released(release, lambda text: report.line(text, stderr=True))


def write(wanted: Mapping[Path, bytes | None], next_step: str) -> None:
    """Let files have this content or, for None, not be; tell which change."""
    changes = {
        path: data
        for path, data in wanted.items()
        if (path.read_bytes() if path.is_file() else None) != data
    }
    replace_all(changes)
    for path, data in sorted(changes.items()):
        report.line(f"{'removed' if data is None else 'wrote'} {path}")
    report.line(f"next: {next_step}" if changes else "nothing changed")
