"""``dspark-patches edit``: a work tree with one commit per patch.

Two refs, private to the work tree, say where its commits begin and what they
were when it was made, so that reading back can tell what changed since.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from .. import report
from ..errors import Precondition, Usage
from ..files import replace_all
from ..git import Git, GitError
from ..model import patch_file as patch_files
from ..model import releases, series
from ..model.releases import Release
from ..model.series import Series
from ..trees import make
from .clone import released
from .restack import file_modes

RELEASE_REF = "refs/worktree/dspark-patches/release"
START_REF = "refs/worktree/dspark-patches/start"

_PERMISSIONS = {"100644": 0o644, "100755": 0o755}


@click.command(name="edit")
@click.argument("release")
@click.option(
    "--checkout",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    metavar="DIR",
    help="A full checkout of SGLang that has the release's tag; a work tree is added.",
)
@click.option(
    "--to",
    "target",
    type=click.Path(path_type=Path, resolve_path=True),
    metavar="DIR",
    help="Where to make the work tree; sglang-RELEASE in the current folder unless told.",
)
def command(release: str, checkout: Path | None, target: Path | None) -> None:
    """Make a work tree of RELEASE with one commit per patch, to be edited.

    Edit as with any branch: amend, rebase, add commits. `export --from` turns
    the commits back into patches. Without --checkout the work tree is a new
    repository of the files that wheels carry; the parts of patches that edit
    other files are kept aside.

    \b
    Examples:
      dspark-patches edit v0.5.16
      dspark-patches edit v0.5.16 --checkout ~/sglang --to ~/sglang-v0.5.16
      dspark-patches export --from sglang-v0.5.16 v0.5.16
    """
    one = releases.find(release)
    loaded, target = series.load(one), target or Path.cwd() / f"sglang-{one.tag}"
    if checkout:
        left_out = from_checkout(loaded, one, checkout, target)
    else:
        left_out = from_wheel(loaded, released(one).root, target)
    report.line(f"made {target}: {len(loaded.patches)} commits on {one.tag}")
    for path in left_out:
        report.line(f"kept aside, not in wheels: {path}")
    export = f"dspark-patches export --from {target} {one.tag}"
    report.line(f"next: edit and commit there, then `{export}`")


def from_wheel(series: Series, root: Path, target: Path) -> tuple[str, ...]:
    """Make a new repository at ``target`` from the Python files below ``root``.

    Returns:
        The edited files that wheels do not carry; their sections are left out.

    Raises:
        Usage: ``target`` exists and is not empty.
        Conflict: a patch was not written for the released files.
    """
    with _free(target):
        make.build(target, root / make.PACKAGE, {})
        git = Git(target)
        git.run("init", "-q", "-b", "series", "--template=", "--object-format=sha1")
        # What a maintainer commits here must come out as it went in.
        git.run("config", "core.autocrlf", "false")
        for path, mode in file_modes(series).items():
            # Wheels do not tell it.
            if (target / path).is_file():
                (target / path).chmod(_PERMISSIONS[mode])
        git.run("add", "--all", "--force")
        git.run("commit", "-q", "-m", f"SGLang {series.release}")
        return _commit(git, series)


def from_checkout(
    series: Series, release: Release, checkout: Path, target: Path
) -> tuple[str, ...]:
    """Add a work tree at ``target`` to a full checkout of SGLang, at a release's tag.

    The checkout's own files, index and branches stay as they are.

    Returns:
        The edited files that the tag lacks.

    Raises:
        Usage: ``target`` exists and is not empty.
        Precondition: the checkout is none, or lacks the tag or has another.
        Conflict: a patch was not written for the tag's files.
    """
    git = Git(checkout)
    try:
        commit = git.text("rev-parse", "--verify", "-q", f"{release.tag}^{{commit}}")
    except (GitError, NotADirectoryError) as error:
        raise Precondition(
            f"{checkout} is no checkout that has the tag {release.tag}",
            next_step=f"run `git fetch origin tag {release.tag} --no-tags` there",
        ) from error
    if commit != (release.commit or commit):
        raise Precondition(
            f"the tag {release.tag} in {checkout} is not SGLang's",
            cause=f"it is {commit}; SGLang's is {release.commit}",
        )
    with _free(target):
        place = str(target.absolute())
        git.run("worktree", "add", "-q", "--detach", place, commit)
        try:
            return _commit(Git(target), series)
        except BaseException:
            git.succeeds("worktree", "remove", "--force", place)
            raise


@contextmanager
def _free(target: Path) -> Iterator[None]:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        hint = "name a folder that does not exist yet"
        raise Usage(f"{target} exists and is not empty", next_step=hint)
    try:
        yield
    except BaseException:
        # It was free before: nothing in it is anybody's but ours.
        shutil.rmtree(target, ignore_errors=True)
        raise


def _commit(git: Git, series: Series) -> tuple[str, ...]:
    """Make one commit per patch, and the refs; tell which files are left out."""
    tree = git.directory
    git.run("update-ref", RELEASE_REF, "HEAD")
    files: make.Files = {}
    for patch in series.patches:
        name = f"{series.release}/{patch.name}.patch"
        files = make.after(files, tree, patch.file.sections, name)
        sections = [s for s in patch.file.sections if s.path in files]
        replace_all({tree / s.path: files[s.path] for s in sections})
        for section in sections:
            if files[section.path] is not None:
                (tree / section.path).chmod(_PERMISSIONS[section.mode])
            git.run("add", "--all", "--force", "--", section.path)
        author = (f"--author={patch.file.author}", f"--date={patch.file.date}")
        options = ("-q", "--allow-empty", "--cleanup=verbatim", "-F", "-", *author)
        message = patch_files.commit_message(patch.file).encode()
        git.run("commit", *options, stdin=message)
    git.run("update-ref", START_REF, "HEAD")
    return tuple(sorted(file_modes(series).keys() - files.keys()))
