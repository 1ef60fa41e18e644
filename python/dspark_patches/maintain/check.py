"""``dspark-patches check``: all that can be known offline, at once.

Needs neither the released files nor git: blob ids tell where hunks land, and
the lock tells the release's blob ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from .. import options
from ..errors import Exit, Failure, Malformed, Precondition, Usage
from ..files import read
from ..findings import Finding, of_failure
from ..model import lock, releases
from ..model import series as all_series
from ..model.diff import ZEROS, blob_id
from ..model.releases import Release
from ..model.series import Patch, Series, added_paths, blobs_after, chain
from ..report import print_findings
from . import added, derive, lint
from . import newer as registry
from .lint import Reference, Wrong

_SELECTOR = re.compile(r"[^:]+\.py(::\w+(\.\w+)?)?", re.ASCII)


@click.command(name="check")
@click.argument("release", nargs=-1)
@click.option(
    "--newer", is_flag=True, help="Also ask pip for an sglang newer than the last here."
)
@options.form
@click.pass_context
def command(
    context: click.Context, release: tuple[str, ...], newer: bool, form: str
) -> None:
    """Check the series of every RELEASE, offline and in a second.

    Every patch must be what git writes, say why and name its tests; every hunk
    must land where it was written for; every added file must be the clone's;
    every lock must be up to date. All findings are reported at once. With no
    RELEASE, every release that has a series is checked, and every file below
    python/sglang and test/registered must belong to one. With --newer a newer release
    in the package registry is an error, and one that cannot be asked a warning.

    \b
    Examples:
      dspark-patches check
      dspark-patches check --newer
      dspark-patches check v0.5.16 --format json

    Ends with 0 when there is nothing to mend, warnings aside, else with 1.
    """
    chosen = releases.chosen(release)
    found = check(chosen, releases.data_root(), whole=not release)
    found += tuple(registry.newer()) if newer else ()
    failed = print_findings(form, found, f"{len(chosen)} series")
    context.exit(Exit.FINDINGS if failed else Exit.OK)


def check(chosen: Sequence[Release], root: Path, *, whole: bool) -> tuple[Finding, ...]:
    """Check the series of these releases in the clone at ``root``.

    Where they are the ``whole`` of its releases, each file that is there to be added
    must be added by one of them.
    """
    texts, known = added.read(root), None
    found: list[Finding] = []
    try:
        known = lint.load_references(root / "patches" / lint.REFERENCES)
    except Malformed as failure:
        found.append(of_failure("", failure, "correct or restore it"))
    all_added: set[str] = set()
    derived: list[dict[str, bytes]] = []
    for release in chosen:
        folder = root / "patches" / release.tag
        try:
            series, failures = all_series.scan(release, folder)
        except Usage as failure:
            found.append(_finding(release, failure.message, failure.next_step))
            continue
        hint = "mend it, or make it anew with `dspark-patches edit` and `export --from`"
        found += [of_failure(release.tag, failure, hint) for failure in failures]
        all_added |= added_paths(series)
        try:
            answers = lock.load(release, folder).features
        except Failure:
            answers = {}  # Told by the check of the lock.
        try:
            derived.append(added.of_release(texts, series, answers))
        except Malformed as failure:
            hint = "ask for a feature as `if NAME:` or `X if NAME else Y`"
            more = {"file": failure.file, "line": failure.line}
            found.append(_finding(release, failure.what, hint, **more))
            continue
        for patch in series.patches:
            wrong = _wrong(series, patch, derived[-1], known)
            found += lint.lint(series, patch, wrong)
        if not failures:
            # A patch that could not be read leaves gaps in the chain that are its own.
            found += _check_series(release, series, derived[-1], texts)
    for path in sorted(all_added & texts.keys()):
        found += added.lint(path, texts[path])
    if whole:
        found += _check_texts(texts, all_added, derived)
        found += _check_folders(root / "patches", {release.tag for release in chosen})
    return tuple(found)


def _finding(release: Release, what: str, hint: str, file: str = "", **more) -> Finding:
    """A finding about a release; ``file`` stands in its folder unless told."""
    file = file or f"patches/{release.tag}"
    return Finding(release=release.tag, file=file, what=what, hint=hint, **more)


def _wrong(
    series: Series,
    patch: Patch,
    texts: derive.Texts,
    known: Mapping[str, Reference] | None,
) -> Iterator[Wrong]:
    """What is wrong with the tests, the kit and the numbers that a patch names."""
    for test in patch.tests:
        marker = f"\nRegression-Test: {test}\n"
        if not _SELECTOR.fullmatch(test):
            yield f"{test} names no test", "write PATH[::CLASS[.TEST]]", marker
        elif missed := added.missing(texts, test):
            hint = "name a test that the series adds"
            yield f"{missed} does not exist", hint, marker
    # A part of the kit comes with the first test that uses it.
    own = {s.path for s in patch.file.sections if s.kind == "add"}
    kit = {path for path in own if path.startswith(derive.KIT)}
    for path in sorted(kit - added.kit_of(texts, own, kit)):
        hint = f"run `dspark-patches export {series.release}`"
        yield f"no test of this patch uses {path}", hint, f"\ndiff --git a/{path} "
    if known is not None:
        yield from lint.wrong_references(patch, known)


def _check_series(
    release: Release, series: Series, derived: derive.Texts, texts: derive.Texts
) -> Iterator[Finding]:
    """Whether patches, controls, added files and the lock agree."""
    folder = f"patches/{release.tag}"
    try:
        links = chain(series)
    except Malformed as failure:
        hint = f"run `dspark-patches edit {release.tag}`"
        yield of_failure(release.tag, failure, hint)
        return
    for patch in series.patches:
        state = blobs_after(series, patch.number)
        for control in patch.controls:
            file = f"{folder}/controls/{control.name}.diff"
            for section in control.sections:
                blob = state.get(section.path, section.old)
                if section.old != blob:
                    what = f"{section.path} begins with blob {section.old}, but patch "
                    what += f"{patch.number:04} leaves {blob}"
                    hint = "write it again, on the tree that the patch leaves"
                    more = {"file": file, "patch": patch.name}
                    yield _finding(release, what, hint, **more)
    last = {s.path: patch for patch in series.patches for s in patch.file.sections}
    for path in sorted(added_paths(series)):
        what = f"{path} is not what the clone has"
        hint = f"run `dspark-patches export {release.tag}`"
        if path not in derived:
            what = f"{path} is not in the clone"
            hint = f"restore {path}, or take it out of the patch"
        elif blob_id(derived[path]) == links[path].new:
            continue
        line = lint.line_of(last[path], f"\ndiff --git a/{path} ")
        yield lint.finding(series, last[path], what, hint, line=line)
    renew = f"run `dspark-patches lock {release.tag}`"
    try:
        if what := _wrong_lock(release, series, texts):
            yield _finding(release, what, renew, file=f"{folder}/{lock.NAME}")
    except Malformed as failure:
        yield of_failure(release.tag, failure, renew)


def _wrong_lock(release: Release, series: Series, texts: derive.Texts) -> str:
    """What is wrong with a release's lock, or an empty string."""
    try:
        locked = lock.load(release, series.folder)
    except Precondition as failure:
        return failure.message
    edited = {path for path, link in chain(series).items() if link.old != ZEROS}
    for unknown in sorted(edited - locked.edited.keys()):
        return f"the lock does not know {unknown}"
    carried = locked.released_blobs(in_wheel=True)
    known = {name: locked.features.get(name, False) for name in derive.features(texts)}
    built = lock.build(release, series, locked.wheel.sha256, carried, known)
    same = lock.render(built) == read(lock.path_of(release, series.folder), lock.NAME)
    return "" if same else "the lock is out of date"


def _check_texts(
    texts: derive.Texts, all_added: set[str], derived: Sequence[derive.Texts]
) -> Iterator[Finding]:
    """Files that no series adds, and parts of the kit that no release has."""
    for path in sorted(texts.keys() - all_added - {derive.FEATURES}):
        hint = "add it in a patch, or remove it"
        yield Finding(file=path, what="no series adds this file", hint=hint)
    for path in filter(lambda path: path.startswith(derive.KIT), sorted(all_added)):
        found = [added.definitions(one[path]) for one in derived if path in one]
        for name, line in added.definitions(texts.get(path, b"")).items():
            if found and not any(name in one for one in found):
                what = f"no release uses {name}"
                yield Finding(file=path, line=line, what=what, hint="remove it")


def _check_folders(folder: Path, tags: set[str]) -> Iterator[Finding]:
    for path in sorted(folder.iterdir()):
        # Folders without a file do not exist for git.
        filled = path.is_dir() and any(file.is_file() for file in path.rglob("*"))
        if filled and path.name not in tags:
            what = "this folder holds no series of a known release"
            hint = "name the release in patches/releases.toml, or remove the folder"
            yield Finding(file=f"patches/{path.name}", what=what, hint=hint)
