"""The commits of an edited work tree, turned back into a series."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from ..errors import Conflict, Precondition
from ..git import Git, GitError
from ..model import diff
from ..model import patch_file as patch_files
from ..model.diff import ZEROS, Section
from ..model.patch_file import PatchFile
from ..model.series import Patch, Series, added_paths, chain
from ..trees import workshop
from .edit import RELEASE_REF, START_REF
from .restack import content, from_message, subject_of

_LONGEST_SLUG = 48
# What git keeps in its folder while a rebase or the like is under way.
_UNDER_WAY = ("rebase-merge", "rebase-apply", "MERGE_HEAD", "CHERRY_PICK_HEAD")


def changes(
    series: Series, tree: Path, sources: Path, shared: Collection[str]
) -> dict[Path, bytes | None]:
    """What the clone must be like so that its series is the commits of ``tree``.

    Args:
        series: the series as it stands in the clone.
        tree: the edited work tree.
        sources: the clone; the files that the series adds have their source here.
        shared: added files that other releases need too.

    Returns:
        The content of each file; None for one that goes.

    Raises:
        Conflict: the clone changed since the work tree was made.
        Precondition: the work tree is not ready, or would lose something.
        Malformed: a commit is no canonical patch.
    """
    git = Git(tree)
    _must_be_ready(git)
    if _patches(series, git, START_REF) != {p.name: p.file for p in series.patches}:
        raise Conflict(
            f"the series of {series.release} changed since {tree} was made",
            next_step=f"make a new work tree with `dspark-patches edit {series.release}` "
            "and cherry-pick your commits onto it",
        )
    after = _patches(series, git, "HEAD")
    wanted = _series_files(series, after)
    return wanted | _added_files(series, after, git, sources, shared)


def slug(subject: str) -> str:
    """The part of a patch's file name that says what the patch does."""
    words = re.sub(r"[^a-z0-9]+", "-", subject.lower()).strip("-")
    if len(words) > _LONGEST_SLUG:
        whole, _, _ = words[: _LONGEST_SLUG + 1].rpartition("-")
        words = whole or words[:_LONGEST_SLUG]
    return words or "patch"


def _must_be_ready(git: Git) -> None:
    tree, span = git.directory, f"{RELEASE_REF}..HEAD"
    if not git.succeeds("rev-parse", "-q", "--verify", RELEASE_REF):
        raise Precondition(
            f"{tree} is no work tree of ours",
            next_step="make one with `dspark-patches edit RELEASE`",
        )
    for name in _UNDER_WAY:
        path = git.text("rev-parse", "--path-format=absolute", "--git-path", name)
        if Path(path).exists():
            raise Precondition(
                f"{tree} has a rebase, merge or cherry-pick under way",
                next_step="finish or abort it, and run again",
            )
    if changed := git.text("status", "--porcelain"):
        raise Precondition(
            f"{tree} has changes that no commit holds",
            cause=changed,
            next_step="commit or drop them, and run again",
        )
    if not git.succeeds("merge-base", "--is-ancestor", RELEASE_REF, "HEAD"):
        raise Precondition(f"{tree} does not stand on the release any more")
    if git.text("rev-list", "--min-parents=2", span):
        raise Precondition(
            f"{tree} has a merge among its commits",
            next_step="make the commits a line with `git rebase`",
        )


def _patches(series: Series, git: Git, until: str) -> dict[str, PatchFile]:
    """A patch for each commit on top of the release, by its file stem."""
    # What the release lacks is not in the commits either.
    edited = {path for path, link in chain(series).items() if link.old != ZEROS}
    outside = {path for path in edited if _file(git, RELEASE_REF, path) is None}
    known = {patch.file.subject: patch for patch in series.patches}
    options = ("-z", "--reverse", "--no-show-signature", "--format=%H%n%aD%n%B")
    listed = git.text("log", *options, f"{RELEASE_REF}..{until}").rstrip("\0")
    objects = git.text("rev-parse", "--path-format=absolute", "--git-path", "objects")
    found: dict[str, PatchFile] = {}
    seen: set[str] = set()
    number = 0
    with workshop.bare(Path(objects)) as shop:
        for commit in listed.split("\0") if listed else ():
            id, date, message = commit.split("\n", 2)
            subject = subject_of(message)
            if subject in seen:
                raise Precondition(
                    f"two commits are called {subject!r}",
                    next_step="squash them, or give each its own subject",
                )
            seen.add(subject)
            patch, name = known.pop(subject, None), f"commit {id[:12]}"
            stem = patch.name[5:] if patch else slug(subject)
            # A number says what a patch is about, on every release; there are gaps.
            number = max(number + 1, patch.number if patch else 0)
            made = diff.parse(shop.compare(f"{id}^", id), name)
            sections = (*made, *_among(patch, outside))
            found[f"{number:04}-{stem}"] = from_message(message, date, sections, name)
    for patch in known.values():
        for section in _among(patch, outside):
            raise Precondition(
                f"no commit is called {patch.file.subject!r} any more",
                cause=f"the patch edits {section.path}, which is not in this work tree",
                next_step="keep its subject, or work with `edit --checkout`",
            )
    return found


def _among(patch: Patch | None, paths: Collection[str]) -> list[Section]:
    return [s for s in patch.file.sections if s.path in paths] if patch else []


def _series_files(
    series: Series, made: Mapping[str, PatchFile]
) -> dict[Path, bytes | None]:
    """The series' folder: patches under their names, controls under their numbers."""
    gone: dict[Path, bytes | None] = {}
    moved: dict[Path, bytes | None] = {}
    numbers = {value.subject: name[:4] for name, value in made.items()}
    for patch in series.patches:
        subject = patch.file.subject
        gone[series.path(patch)] = None
        for control in patch.controls:
            if subject not in numbers:
                raise Precondition(
                    f"{control.name}.diff proves {subject!r}, and no commit is called "
                    "so any more",
                    next_step="keep the subject, or remove the control",
                )
            path = series.folder / "controls" / f"{control.name}.diff"
            gone[path] = None
            moved[path.with_name(numbers[subject] + path.name[4:])] = path.read_bytes()
    files = {f"{name}.patch": patch_files.joined(value) for name, value in made.items()}
    return gone | moved | {series.folder / name: data for name, data in files.items()}


def _added_files(
    series: Series,
    made: Mapping[str, PatchFile],
    git: Git,
    sources: Path,
    shared: Collection[str],
) -> dict[Path, bytes | None]:
    """The sources of what the series adds, where the work tree changed it."""
    patches = (Patch(number=0, name=name, file=value) for name, value in made.items())
    renewed = msgspec.structs.replace(series, patches=tuple(patches))
    found: dict[Path, bytes | None] = {}
    for path in sorted(added_paths(series) | added_paths(renewed)):
        old, new = (_file(git, commit, path) for commit in (START_REF, "HEAD"))
        here = content(sources / path)
        if new in (old, here) or (new is None and path in shared):
            continue
        if here != old:
            raise Conflict(
                f"{path} in the clone is not what {series.release} had of it",
                cause=f"all releases share it, or it changed since {git.directory} "
                "was made",
                next_step=f"edit {sources / path}, take the change out of the work "
                f"tree, and run `dspark-patches export {series.release}`",
            )
        found[sources / path] = new
    return found


def _file(git: Git, commit: str, path: str) -> bytes | None:
    """A commit's file; None where it has none."""
    try:
        return git.run("cat-file", "blob", f"{commit}:{path}")
    except GitError:
        return None
