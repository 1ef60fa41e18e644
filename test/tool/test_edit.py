"""An edited work tree becomes a series again, and loses nothing on the way."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from clone import (
    CLOCK,
    GUARD,
    KIT,
    PRISTINE,
    TEST,
    Clone,
    full_checkout,
    two_patch_files,
)
from factories import (
    make_edit,
    make_patch_file,
    make_release,
    make_repository,
    write_files,
    write_series,
)

from dspark_patches.errors import BadInput, Conflict, Precondition, Usage
from dspark_patches.files import replace_all
from dspark_patches.git import Git
from dspark_patches.maintain import collect, edit
from dspark_patches.model import diff, patch_file
from dspark_patches.model.series import Patch, Series

FREE = "test/registered/unit/test_free.py"


def test_an_unedited_work_tree_changes_nothing(clone: Clone) -> None:
    git = clone.edit()
    assert git.text("status", "--porcelain") == ""
    assert git.text("log", "--format=%s").split("\n")[:2] == [
        "Evict before the tick",
        two_patch_files()[0].subject,
    ]
    assert (clone.tree / CLOCK).read_bytes() == b"evict\nthen tick\n"
    assert not (clone.tree / GUARD).exists()
    assert clone.collect() == {}


def test_a_mode_that_wheels_do_not_tell_is_the_patches(clone: Clone) -> None:
    first = make_edit(CLOCK, b"tick\n", b"tick once\n", mode="100755")
    write_series(clone.folder, make_patch_file(first), two_patch_files()[1])
    second = clone.folder / "0002-patch.patch"
    data = second.read_bytes()
    second.write_bytes(
        data.replace(
            b" 100644\n--- a/" + CLOCK.encode(), b" 100755\n--- a/" + CLOCK.encode()
        )
    )
    git = clone.edit()
    assert git.text("ls-tree", "HEAD", CLOCK).startswith("100755 ")
    assert git.text("status", "--porcelain") == ""
    assert clone.collect() == {}


def commit_all(git: Git, *options: str) -> None:
    git.run("add", "--all")
    git.run("commit", "-q", *options)


def test_an_amended_commit_becomes_its_patch_again(clone: Clone) -> None:
    git = clone.edit()
    write_files(clone.tree, {CLOCK: b"evict\nthen tick just once\n", TEST: b"test 2\n"})
    commit_all(git, "--amend", "--no-edit")
    changes = clone.collect()
    assert set(changes) == {"patches/v0.5.16/0002-patch.patch", TEST}
    assert changes[TEST] == b"test 2\n"
    changed = patch_file.parse(changes["patches/v0.5.16/0002-patch.patch"])
    assert (changed.author, changed.date) == (
        patch_file.AUTHOR,
        two_patch_files()[1].date,
    )
    replace_all({clone.sources / path: data for path, data in changes.items()})
    assert clone.regenerate() == clone.patch_files()


def test_sections_of_checkout_files_survive_a_work_tree(clone: Clone) -> None:
    git = clone.edit()
    git.run("reset", "-q", "--hard", "HEAD~1")
    write_files(clone.tree, {CLOCK: b"tick just once\n"})
    commit_all(git, "--amend", "--no-edit")
    changes = clone.collect(clone.series)
    assert changes["patches/v0.5.16/0002-patch.patch"] is None
    assert TEST not in changes
    first = patch_file.parse(changes["patches/v0.5.16/0001-patch.patch"])
    assert [section.path for section in first.sections] == [CLOCK, KIT, GUARD]
    assert first.sections[2] == two_patch_files()[0].sections[2]


def test_a_subject_that_holds_checkout_files_must_stay(clone: Clone) -> None:
    git = clone.edit()
    git.run("reset", "-q", "--hard", "HEAD~1")
    git.run("commit", "-q", "--amend", "-m", "Renamed\n\nWhy.\n\nFixes: x")
    with pytest.raises(Precondition, match="no commit is called"):
        clone.collect()


def test_a_new_commit_becomes_a_new_patch(clone: Clone) -> None:
    git = clone.edit()
    write_files(clone.tree, {"python/sglang/srt/pool.py": b"pool\nfree\n"})
    commit_all(git, "-m", "Free the pool (again)\n\nIt leaked.\n\nFixes: x")
    changes = clone.collect()
    assert list(changes) == ["patches/v0.5.16/0003-free-the-pool-again.patch"]


def test_a_patch_taken_over_from_another_release_keeps_its_name(clone: Clone) -> None:
    """Its test stays the clone's, however the other release has it."""
    other = b"free = 1\n"
    write_files(clone.sources, {FREE: b"if HAS_POOL:\n    free = 1\n"})
    theirs = make_patch_file(
        make_edit("python/sglang/srt/pool.py", b"pool\n", b"pool\nfree\n"),
        diff.render_add(FREE, other),
        subject="Free the pool",
    )
    named = Patch(number=7, name="0007-free-it", file=theirs)
    release = Series(release="v0.5.17", folder=clone.folder, patches=(named,))
    git = clone.edit()
    write_files(clone.tree, {"python/sglang/srt/pool.py": b"pool\nfree\n", FREE: other})
    commit_all(git, "-m", "Free the pool\n\nIt leaked.\n\nFixes: x")
    assert list(clone.collect(release)) == ["patches/v0.5.16/0007-free-it.patch"]
    write_files(clone.tree, {FREE: other + b"more = 1\n"})
    commit_all(git, "--amend", "--no-edit")
    with pytest.raises(Conflict, match=f"{FREE} in the clone is not what"):
        clone.collect(release)


@pytest.mark.parametrize(
    ("subject", "slug"),
    [
        ("Free the pool (again)", "free-the-pool-again"),
        ("?!", "patch"),
        (f"{'x' * 24} {'y' * 23} z", f"{'x' * 24}-{'y' * 23}"),
        (f"{'x' * 24} {'y' * 24}", "x" * 24),
        ("x" * 60, "x" * 48),
    ],
)
def test_a_file_name_ends_with_a_whole_word(subject: str, slug: str) -> None:
    assert collect.slug(subject) == slug


def test_a_dropped_patch_takes_its_file_along(clone: Clone) -> None:
    git = clone.edit()
    git.run("reset", "-q", "--hard", "HEAD~1")
    assert clone.collect() == {"patches/v0.5.16/0002-patch.patch": None, TEST: None}


def test_controls_follow_their_patch(clone: Clone) -> None:
    control = b"Ticks twice.\n\n" + make_edit(CLOCK, b"tick\n", b"tick tick\n").text
    write_files(clone.folder, {"controls/0002-twice.diff": control})
    git = clone.edit()
    git.run("reset", "-q", "--hard", "HEAD~1")
    write_files(clone.tree, {"python/sglang/srt/pool.py": b"pool\nfree\n"})
    commit_all(git, "-m", "Free the pool\n\nIt leaked.\n\nFixes: x")
    git.run("cherry-pick", "ORIG_HEAD")
    changes = clone.collect()
    assert changes["patches/v0.5.16/controls/0003-twice.diff"] == control
    assert changes["patches/v0.5.16/controls/0002-twice.diff"] is None
    git.run("reset", "-q", "--hard", "HEAD~1")
    with pytest.raises(Precondition, match="no commit is called") as caught:
        clone.collect()
    assert caught.value.cause.startswith("controls/0002-twice.diff belongs to it")


def test_a_source_that_changed_meanwhile_is_not_overwritten(clone: Clone) -> None:
    git = clone.edit()
    write_files(clone.tree, {TEST: b"test 2\n"})
    commit_all(git, "--amend", "--no-edit")
    write_files(clone.sources, {TEST: b"test 3\n"})
    with pytest.raises(Conflict, match=f"{TEST} in the clone is not what"):
        clone.collect()


def test_a_series_that_changed_meanwhile_is_not_overwritten(clone: Clone) -> None:
    clone.edit()
    first, second = two_patch_files()
    write_series(clone.folder, first, make_patch_file(*second.sections, body="Other."))
    with pytest.raises(Conflict, match="the series of v0.5.16 changed"):
        clone.collect()


def test_a_work_tree_that_is_not_at_rest_is_refused(clone: Clone) -> None:
    git = clone.edit()
    write_files(clone.tree, {CLOCK: b"half done\n"})
    with pytest.raises(Precondition, match="changes that no commit holds"):
        clone.collect()
    git.run("checkout", "-q", "--", CLOCK)
    git_dir = clone.tree / ".git"
    (git_dir / "rebase-merge").mkdir()
    with pytest.raises(Precondition, match="under way"):
        clone.collect()
    (git_dir / "rebase-merge").rmdir()
    git.run("checkout", "-q", "--orphan", "other")
    commit_all(git, "-m", "Other")
    with pytest.raises(Precondition, match="does not stand on the release"):
        clone.collect()


def test_a_merge_and_two_commits_of_one_name_are_refused(clone: Clone) -> None:
    git = clone.edit()
    git.run("commit", "-q", "--allow-empty", "-C", "HEAD")
    with pytest.raises(Precondition, match="two commits are called"):
        clone.collect()
    side = git.text("commit-tree", "-p", "HEAD~1", "-m", "Side", "HEAD~1^{tree}")
    git.run("merge", "-q", "--no-ff", "-m", "Merge", side)
    with pytest.raises(Precondition, match="has a merge"):
        clone.collect()


@pytest.mark.parametrize(
    ("message", "content", "told"),
    [
        ("Only a subject", b"free\n", ""),
        ("[Tag] Subject\n\nBody.", b"free\n", ""),
        ("X\n\nCaf\u00e9.", b"free\n", ""),
        (
            "Free\n\nWhy.\n\nFixes: x",
            b"pool\0",
            ".* git writes the head of a text file otherwise",
        ),
    ],
)
def test_a_commit_that_is_no_patch_is_refused(
    clone: Clone, message: str, content: bytes, told: str
) -> None:
    git = clone.edit()
    write_files(clone.tree, {"python/sglang/srt/pool.py": content})
    commit_all(git, "-m", message)
    with pytest.raises(BadInput, match=f"^commit [0-9a-f]{{12}}:{told}"):
        clone.collect()


def test_a_work_tree_needs_a_free_place(clone: Clone) -> None:
    write_files(clone.tree, {"mine": b""})
    with pytest.raises(Usage, match="is not empty"):
        clone.edit()


def test_a_work_tree_that_cannot_be_made_leaves_nothing(clone: Clone) -> None:
    write_files(clone.released, {CLOCK: b"tock\n"})
    with pytest.raises(Conflict, match=f"does not fit {CLOCK}"):
        clone.edit()
    assert not clone.tree.exists()


def test_a_full_checkout_keeps_everything(
    clone: Clone, tmp_path: Path, hostile: str
) -> None:
    git = full_checkout(tmp_path / "sglang", hostile)
    before = git.text("rev-parse", "HEAD", "--all")
    edit.from_checkout(clone.series, make_release(), git.directory, clone.tree)
    assert git.text("status", "--porcelain") == ""
    assert git.text("rev-parse", "HEAD", "--branches", "--tags") == before
    assert (clone.tree / GUARD).read_bytes() == b"guard clock\n"
    assert clone.collect() == {}
    write_files(clone.tree, {GUARD: b"guard the clock\n"})
    commit_all(Git(clone.tree), "--amend", "--no-edit")
    assert set(clone.collect()) == {"patches/v0.5.16/0002-patch.patch"}


def test_a_checkout_of_other_files_stays_as_it_is(clone: Clone, tmp_path: Path) -> None:
    git = full_checkout(tmp_path / "sglang")
    write_files(git.directory, {CLOCK: b"tock\n"})
    commit_all(git, "-m", "other")
    git.run("tag", "-f", "v0.5.16")
    with pytest.raises(Conflict, match=f"does not fit {CLOCK}"):
        edit.from_checkout(clone.series, make_release(), git.directory, clone.tree)
    assert not clone.tree.exists()
    assert len(git.text("worktree", "list").splitlines()) == 1


def test_a_checkout_without_the_tag_is_refused(clone: Clone, tmp_path: Path) -> None:
    git = make_repository(tmp_path / "sglang", PRISTINE)
    with pytest.raises(Precondition, match="has the tag v0.5.16"):
        edit.from_checkout(clone.series, make_release(), git.directory, clone.tree)
    with pytest.raises(Precondition, match="no work tree of ours"):
        collect.changes(clone.series, git.directory, clone.sources, ())


def test_a_tag_that_is_not_upstreams_is_refused(clone: Clone, tmp_path: Path) -> None:
    git = full_checkout(tmp_path / "sglang")
    release = msgspec.structs.replace(make_release(), commit="1" * 40)
    with pytest.raises(Precondition, match="is not SGLang's"):
        edit.from_checkout(clone.series, release, git.directory, clone.tree)
    assert not clone.tree.exists()
