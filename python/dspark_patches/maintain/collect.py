"""The commits of an edited work tree, turned back into a series."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from ..errors import Conflict, Precondition
from ..git import Git, GitError
from ..model import diff
from ..model import patch_file as patch_files
from ..model.diff import ZEROS, blob_of
from ..model.patch_file import PatchFile
from ..model.series import Patch, Series, added_paths, chain
from ..trees import workshop
from .edit import RELEASE_REF, START_REF
from .restack import content, from_message, subject_of

_LONGEST_SLUG = 48
# What git keeps in its folder while a rebase or the like is under way.
_UNDER_WAY = ("rebase-merge", "rebase-apply", "MERGE_HEAD", "CHERRY_PICK_HEAD")


def changes(
    series: Series, tree: Path, clone: Path, others: Sequence[Series]
) -> dict[Path, bytes | None]:
    """What the clone must be like so that its series is the commits of ``tree``.

    Returns:
        The content of each file; None for one that goes. Added files that ``others``,
        the series of other releases, need too, stay; a new commit that has a subject
        of theirs is their patch.

    Raises:
        Conflict: the clone changed since the work tree was made.
        Precondition: the work tree is not ready, or would lose something.
        Malformed: a commit is no canonical patch.
    """
    git = Git(tree)
    for what, cause, hint in _hindrances(git):
        raise Precondition(f"{tree} {what}", cause=cause, next_step=hint)
    start = _patches(series, git, START_REF, series.patches)
    if start != {p.name: p.file for p in series.patches}:
        edit = f"`dspark-patches edit {series.release}`"
        raise Conflict(
            f"the series of {series.release} changed since {tree} was made",
            next_step=f"make a new work tree with {edit} and cherry-pick your commits",
        )
    named = [patch for one in (*others, series) for patch in one.patches]
    after = _patches(series, git, "HEAD", named)
    wanted = _series_files(series, after)
    return wanted | _added_files(series, after, git, clone, others)


def slug(subject: str) -> str:
    """The part of a patch's file name that says what the patch does."""
    words = re.sub(r"[^a-z0-9]+", "-", subject.lower()).strip("-")
    if len(words) > _LONGEST_SLUG:
        whole, _, _ = words[: _LONGEST_SLUG + 1].rpartition("-")
        words = whole or words[:_LONGEST_SLUG]
    return words or "patch"


def _hindrances(git: Git) -> Iterator[tuple[str, str, str]]:
    """Why a work tree cannot be read: what it is or has, the cause, what helps."""
    if not git.succeeds("rev-parse", "-q", "--verify", RELEASE_REF):
        hint = "make one with `dspark-patches edit RELEASE`"
        yield "is no work tree of ours", "", hint
    options = [word for name in _UNDER_WAY for word in ("--git-path", name)]
    paths = git.text("rev-parse", "--path-format=absolute", *options).splitlines()
    if any(Path(path).exists() for path in paths):
        hint = "finish or abort it, and run again"
        yield "has a rebase, merge or cherry-pick under way", "", hint
    if changed := git.text("status", "--porcelain"):
        hint = "commit or drop them, and run again"
        yield "has changes that no commit holds", changed, hint
    if not git.succeeds("merge-base", "--is-ancestor", RELEASE_REF, "HEAD"):
        yield "does not stand on the release any more", "", ""
    if git.text("rev-list", "--min-parents=2", f"{RELEASE_REF}..HEAD"):
        hint = "make the commits a line with `git rebase`"
        yield "has a merge among its commits", "", hint


def _patches(
    series: Series, git: Git, until: str, named: Iterable[Patch]
) -> dict[str, PatchFile]:
    """A patch for each commit on top of the release, by its file stem.

    A commit that has the subject of a ``named`` patch has its name as well.
    """
    names = {patch.file.subject: patch.name for patch in named}
    # What the release lacks is not in the commits either.
    edited = [path for path, link in chain(series).items() if link.old != ZEROS]
    outside = {path for path in edited if _file(git, RELEASE_REF, path) is None}
    known = {patch.file.subject: patch for patch in series.patches}
    options = ("-z", "--reverse", "--no-show-signature", "--format=%H%n%aD%n%B")
    listed = git.text("log", *options, f"{RELEASE_REF}..{until}")
    objects = git.text("rev-parse", "--path-format=absolute", "--git-path", "objects")
    found: dict[str, PatchFile] = {}
    subjects: list[str] = []
    number = 0
    with workshop.bare(Path(objects)) as shop:
        for commit in filter(None, listed.split("\0")):
            id, date, message = commit.split("\n", 2)
            subject, name = subject_of(message), f"commit {id[:12]}"
            if subject in subjects:
                raise Precondition(
                    f"two commits are called {subject!r}",
                    next_step="squash them, or give each its own subject",
                )
            subjects.append(subject)
            patch = known.get(subject)
            before, _, stem = names.get(subject, f"0-{slug(subject)}").partition("-")
            # A number says what a patch is about, on every release; there are gaps.
            number = max(number + 1, int(before))
            made = diff.parse(shop.compare(f"{id}^", id), name)
            own = patch.file.sections if patch else ()
            sections = (*made, *(s for s in own if s.path in outside))
            found[f"{number:04}-{stem}"] = from_message(message, date, sections, name)
    for patch in series.patches:
        lost = [f"controls/{control.name}.diff" for control in patch.controls]
        lost += [s.path for s in patch.file.sections if s.path in outside]
        if lost and patch.file.subject not in subjects:
            raise Precondition(
                f"no commit is called {patch.file.subject!r} any more",
                cause=f"{lost[0]} belongs to it, and is not in this work tree",
                next_step="keep its subject, or take that out of the clone first",
            )
    return found


def _series_files(
    series: Series, made: Mapping[str, PatchFile]
) -> dict[Path, bytes | None]:
    """The series' folder: patches under their names, controls under their numbers."""
    files: dict[Path, bytes | None] = {series.path(p): None for p in series.patches}
    numbers = {value.subject: name[:4] for name, value in made.items()}
    moved = {series.folder / f"{n}.patch": patch_files.joined(made[n]) for n in made}
    for patch in series.patches:
        for control in patch.controls:
            path = series.folder / "controls" / f"{control.name}.diff"
            files[path] = None
            name = numbers[patch.file.subject] + path.name[4:]
            moved[path.with_name(name)] = path.read_bytes()
    return files | moved


def _added_files(
    series: Series,
    made: Mapping[str, PatchFile],
    git: Git,
    clone: Path,
    others: Sequence[Series],
) -> dict[Path, bytes | None]:
    """The sources of what the series adds, where the work tree changed it."""
    patches = (Patch(number=0, name=name, file=value) for name, value in made.items())
    renewed = msgspec.structs.replace(series, patches=tuple(patches))
    shared = set().union(*map(added_paths, others))
    patched = (patch for one in others for patch in one.patches)
    theirs = {(s.path, s.new) for patch in patched for s in patch.file.sections}
    found: dict[Path, bytes | None] = {}
    for path in sorted(added_paths(series) | added_paths(renewed)):
        old, new = (_file(git, commit, path) for commit in (START_REF, "HEAD"))
        here = content(clone / path)
        if new in (old, here) or (new is None and path in shared):
            continue
        # Another release's patch was taken over; `export` answers for this one.
        if old is None and (path, blob_of(new)) in theirs:
            continue
        if here != old:
            export = f"`dspark-patches export {series.release}`"
            raise Conflict(
                f"{path} in the clone is not what {git.directory} was made with",
                cause="all releases share one text of it, or it changed since",
                next_step=f"edit {clone / path}, take the change out of the work "
                f"tree, and run {export}",
            )
        found[clone / path] = new
    return found


def _file(git: Git, commit: str, path: str) -> bytes | None:
    """A commit's file; None where it has none."""
    try:
        return git.run("cat-file", "blob", f"{commit}:{path}")
    except GitError:
        return None
