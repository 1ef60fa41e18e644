"""What the verbs read of a release, and write into the clone."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from .. import report
from ..errors import Precondition
from ..files import replace_all
from ..git import Git, GitError
from ..model import releases, series
from ..model.releases import Release
from ..model.series import Series
from ..trees import make
from ..trees.wheels import Released
from .restack import written


def released(release: Release) -> Released:
    """A release's tree; says so before something slow begins."""
    return make.released(release, lambda text: report.line(text, stderr=True))


def earlier(one: Release, commit: str) -> Series:
    """A release's series as a commit of the clone has it.

    Raises:
        Precondition: the clone has no such commit.
    """
    clone, folder = releases.data_root(), releases.series_dir(one)
    with tempfile.TemporaryDirectory(prefix="dspark-patches-") as scratch:
        root = Path(scratch)
        places = {"GIT_WORK_TREE": scratch, "GIT_INDEX_FILE": str(root / "index")}
        git = Git(clone, places | {"GIT_DIR": str(clone / ".git")})
        try:
            git.run("checkout", "-q", commit, "--", f"patches/{folder.name}")
        except GitError as error:
            raise Precondition(
                f"{commit} of {clone} cannot be read", cause=error.stderr.strip()
            ) from error
        return series.load(one, root / "patches" / folder.name)


def files(one: Release, carried: Series) -> dict[Path, bytes | None]:
    """The patches and controls of a series, and None for those that go."""
    folder = releases.series_dir(one)
    found: dict[Path, bytes | None] = {
        path: None for path in (*folder.glob("*.patch"), *folder.glob("controls/*"))
    }
    found |= {folder / f"{n}.patch": data for n, data in written(carried).items()}
    for patch in carried.patches:
        for control in patch.controls:
            text = b"".join(section.text for section in control.sections)
            path = folder / "controls" / f"{control.name}.diff"
            found[path] = f"{control.why}\n\n".encode() + text
    return found


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
