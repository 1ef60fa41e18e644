"""Everything about the series that can be known offline, at once.

Needs neither the released files nor git: blob ids tell where hunks land, and
the lock tells the release's blob ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ..errors import Failure, Malformed, Usage
from ..files import read
from ..findings import Finding, of_failure
from ..model import lock
from ..model import series as all_series
from ..model.diff import ZEROS
from ..model.releases import Release
from ..model.series import Patch, Series, added_paths, blobs_after, chain
from . import added, derive, lint, used
from .added import Sources
from .lint import Reference, Wrong

_SELECTOR = re.compile(r"[^:]+\.py(::\w+(\.\w+)?)?", re.ASCII)


def check(chosen: Sequence[Release], root: Path, *, whole: bool) -> tuple[Finding, ...]:
    """Check the series of these releases.

    Args:
        chosen: the releases.
        root: the clone: ``patches/`` and the files that the series add.
        whole: whether these are all releases; then each file that is there to be
            added must be added by one of them.

    Returns:
        All findings, in the order of the releases.
    """
    sources = Sources(root)
    found: list[Finding] = []
    all_added: set[str] = set()
    released: list[Sources] = []
    known = _references(root / "patches" / lint.REFERENCES, found)
    for release in chosen:
        series, findings = _read(release, root / "patches" / release.tag)
        found.extend(findings)
        if not series:
            continue
        all_added |= added_paths(series)
        try:
            released.append(_of_release(release, series, sources))
        except Malformed as failure:
            hint = "ask for a feature as `if NAME:` or `X if NAME else Y`"
            file = {"file": failure.file, "line": failure.line}
            found.append(
                Finding(release=release.tag, what=failure.what, hint=hint, **file)
            )
            continue
        for patch in series.patches:
            wrong = _wrong(series, patch, released[-1], known)
            found.extend(lint.lint(series, patch, wrong))
        if not findings:
            # A patch that could not be read leaves gaps in the chain that are its own.
            found.extend(_check_series(release, series, released[-1]))
    for path in sorted(all_added):
        found.extend(added.lint(sources, path))
    if whole:
        found.extend(_orphans(sources, all_added))
        found.extend(_unused(sources, released))
        found.extend(_strays(root / "patches", {release.tag for release in chosen}))
    return tuple(found)


def _references(path: Path, found: list[Finding]) -> dict[str, Reference] | None:
    try:
        return lint.load_references(path)
    except Malformed as failure:
        found.append(of_failure("", failure, "correct or restore it"))
        return None


def _read(release: Release, folder: Path) -> tuple[Series | None, list[Finding]]:
    try:
        series, failures = all_series.scan(release, folder)
    except Usage as failure:
        file = f"patches/{release.tag}"
        return None, [
            Finding(
                release=release.tag,
                file=file,
                what=failure.message,
                hint=failure.next_step,
            )
        ]
    hint = "mend it, or make it anew with `dspark-patches edit` and `export --from`"
    return series, [of_failure(release.tag, failure, hint) for failure in failures]


def _check_series(
    release: Release, series: Series, sources: Sources
) -> Iterator[Finding]:
    try:
        chain(series)
    except Malformed as failure:
        yield of_failure(
            release.tag, failure, f"run `dspark-patches edit {release.tag}`"
        )
        return
    yield from _check_controls(series)
    yield from _check_sources(series, sources)
    yield from _check_lock(release, series, sources)


def _of_release(release: Release, series: Series, sources: Sources) -> Sources:
    """The sources as the release's patches must have them."""
    try:
        features = lock.load(release, series.folder).features
    except Failure:
        # Told by the check of the lock.
        return sources
    return sources.of_release(added_paths(series), features)


def _wrong(
    series: Series,
    patch: Patch,
    sources: Sources,
    known: Mapping[str, Reference] | None,
) -> Iterator[Wrong]:
    """What is wrong with the tests, the kit and the numbers that a patch names."""
    here = {s.path for p in series.patches for s in p.file.sections if s.kind == "add"}
    for test in patch.tests:
        path, marker = test.partition("::")[0], f"\nRegression-Test: {test}\n"
        if not _SELECTOR.fullmatch(test):
            yield f"{test} names no test", "write PATH[::CLASS[.TEST]]", marker
        elif path not in here:
            hint = "name a test that the series adds"
            yield f"the series does not add {path}", hint, marker
        elif missed := added.missing(sources, test):
            yield f"{missed} does not exist", "name a test that exists", marker
    # A part of the kit comes with the first test that uses it.
    own = {s.path for s in patch.file.sections if s.kind == "add"}
    kit = {path for path in own if path.startswith(used.KIT)}
    for path in sorted(kit - added.kit_of(sources, own, kit)):
        hint = f"run `dspark-patches export {series.release}`"
        yield f"no test of this patch uses {path}", hint, f"\ndiff --git a/{path} "
    if known is not None:
        yield from lint.wrong_references(patch, known)


def _check_controls(series: Series) -> Iterator[Finding]:
    """Whether the controls fit, as far as the series tells of their files."""
    for patch in series.patches:
        state = blobs_after(series, patch.number)
        pairs = ((c, section) for c in patch.controls for section in c.sections)
        for control, section in pairs:
            blob = state.get(section.path, section.old)
            if section.old == blob:
                continue
            yield Finding(
                release=series.release,
                patch=patch.name,
                file=f"patches/{series.release}/controls/{control.name}.diff",
                what=f"{section.path} begins with blob {section.old}, but patch "
                f"{patch.number:04} leaves {blob}",
                hint="write it again, on the tree that the patch leaves",
            )


def _check_sources(series: Series, sources: Sources) -> Iterator[Finding]:
    last = {s.path: patch for patch in series.patches for s in patch.file.sections}
    links = chain(series)
    for path in sorted(added_paths(series)):
        blob = sources.blob(path)
        if blob == ZEROS:
            what = f"{path} is not in the clone"
            hint = f"restore {path}, or take it out of the patch"
        elif blob != links[path].new:
            what = f"{path} is not what the clone has"
            hint = f"run `dspark-patches export {series.release}`"
        else:
            continue
        line = lint.line_of(last[path], f"\ndiff --git a/{path} ")
        yield lint.finding(series, last[path], what, hint, line=line)


def _check_lock(
    release: Release, series: Series, sources: Sources
) -> Iterator[Finding]:
    path = lock.path_of(release, series.folder)
    renew = f"run `dspark-patches lock {release.tag}`"

    def finding(what: str) -> Finding:
        file = f"patches/{release.tag}/{lock.NAME}"
        return Finding(release=release.tag, file=file, what=what, hint=renew)

    try:
        locked = lock.load(release, series.folder)
        edited = {p for p, link in chain(series).items() if link.old != ZEROS}
        for unknown in sorted(edited - set(locked.edited)):
            yield finding(f"the lock does not know {unknown}")
            return
        carried = locked.released_blobs(in_wheel=True)
        named = derive.places(sources.content(derive.FEATURES))
        known = {name: locked.features.get(name, False) for name in named}
        built = lock.build(release, series, locked.wheel.sha256, carried, known)
    except Malformed as failure:
        yield of_failure(release.tag, failure, renew)
    except Failure as failure:
        yield finding(failure.message)
    else:
        if lock.render(built) != read(path, lock.NAME):
            yield finding("the lock is out of date")


def _orphans(sources: Sources, used: set[str]) -> Iterator[Finding]:
    for path in sources.paths():
        if path not in used and path != derive.FEATURES:
            hint = "add it in a patch, or remove it"
            yield Finding(file=path, what="no series adds this file", hint=hint)


def _unused(sources: Sources, released: Sequence[Sources]) -> Iterator[Finding]:
    """What the shared text of the kit defines, and no release has."""
    for path in sources.paths():
        modules = [one.module(path) for one in released if path in one.texts]
        known = {name for module in modules for name in module.definitions}
        if path.startswith(used.KIT) and modules:
            for name, line in sources.module(path).definitions.items():
                if name not in known:
                    what = f"no release uses {name}"
                    yield Finding(file=path, line=line, what=what, hint="remove it")


def _strays(folder: Path, tags: set[str]) -> Iterator[Finding]:
    for path in sorted(folder.iterdir()):
        # Folders without a file do not exist for git.
        filled = path.is_dir() and any(file.is_file() for file in path.rglob("*"))
        if filled and path.name not in tags:
            what = "this folder holds no series of a known release"
            hint = "name the release in patches/releases.toml, or remove the folder"
            yield Finding(file=f"patches/{path.name}", what=what, hint=hint)
