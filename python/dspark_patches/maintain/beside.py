"""What a new release has changed beside the lines of patches that merged into it.

A patch may merge, pass its tests, and be wrong: it takes a value that the release has
replaced, or the release has a second copy of the place. A name that the patch's lines
have then stands less often in its file, or more often anywhere.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ..model.diff import hunks
from ..model.series import Patch, Series
from ..trees.make import PACKAGE

# Words of prose have no underscore.
_NAME = re.compile(rb"[A-Za-z]*_\w+")
# What stands in more places is everybody's; then the patch's own files tell.
_RARE = 60

Counts = dict[str, Counter[bytes]]


def changed(series: Series, old: Path, new: Path) -> Iterator[str]:
    """Each name of a patch's lines that the new release has elsewhere than the old."""
    before, after = _counts(old), _counts(new)
    total: Counter[bytes] = Counter()
    for counts in before.values():
        total.update(counts)
    paths, none = sorted(after), Counter()
    for patch in series.patches:
        edited = {s.path for s in patch.file.sections if s.kind != "add"}
        for name in sorted(_names(patch) & total.keys()):
            rare = total[name] <= _RARE
            both = (
                (path, before.get(path, none)[name], after[path][name])
                for path in paths
            )
            found = [
                f"{path} {was} -> {now}"
                for path, was, now in both
                if (was != now if rare else was > now and path in edited)
            ]
            if found:
                yield f"{patch.number:04} {name.decode()}: {', '.join(found)}"


def _names(patch: Patch) -> set[bytes]:
    """What the lines that a patch changes name, but for those of added files."""
    edits = (s for s in patch.file.sections if s.kind != "add")
    lines = (line for s in edits for hunk in hunks(s) for line in hunk.lines)
    changed = (line[1:] for line in lines if line[:1] in (b"+", b"-"))
    return {name for line in changed for name in _NAME.findall(line.split(b"#")[0])}


def _counts(root: Path) -> Counts:
    """How often each name stands in each file of a release, its tests apart."""
    return {
        path.relative_to(root).as_posix(): Counter(_NAME.findall(path.read_bytes()))
        for path in sorted((root / PACKAGE).rglob("*.py"))
        if "test" not in path.relative_to(root).parts
    }
