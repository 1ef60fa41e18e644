"""Work copies are strict about what they were written for."""

from __future__ import annotations

import subprocess

import factories
import msgspec
import pytest
from world import CLOCK, FIXED_CLOCK, RELEASED, TEST, TEST_SOURCE, fix_mail, mend_clock

from dspark_patches import diff, lock, series, trees, wheels
from dspark_patches.errors import Conflict, Precondition

GUARD = "test/registered/unit/test_guard.py"

pytestmark = pytest.mark.usefixtures("no_pip")


@pytest.fixture
def root(world, tmp_path):
    """A work copy of the fake release."""
    root = tmp_path / "tree"
    trees.copy(wheels.obtain(world.release()), root)
    return root


def contents(root):
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file()
    }


def test_a_copy_shares_nothing_with_the_cache(world, root):
    released = wheels.obtain(factories.make_base())
    assert contents(root) == RELEASED
    with (root / CLOCK).open("r+b") as stream:
        stream.write(b"scribble")
    assert (released.root / CLOCK).read_bytes() == RELEASED[CLOCK]


def test_a_copy_that_cannot_be_written(world, tmp_path):
    (tmp_path / "tree").write_text("a file in the way")
    with pytest.raises(Precondition, match="cannot be copied") as caught:
        trees.copy(wheels.obtain(world.release()), tmp_path / "tree")
    assert "TMPDIR" in caught.value.next_step


def test_edits_additions_and_deletions_apply(root):
    gone = "python/sglang/srt/__init__.py"
    sections = (
        mend_clock(),
        diff.render_add(TEST, TEST_SOURCE),
        factories.make_delete(gone, b""),
    )
    assert trees.apply(root, sections, "0001-x") == ()
    expected = {**RELEASED, CLOCK: FIXED_CLOCK, TEST: TEST_SOURCE}
    del expected[gone]
    assert contents(root) == expected


def test_an_edit_to_a_file_that_wheels_lack_is_left_out(root):
    edit = factories.make_edit(GUARD, b"a\n", b"b\n")
    assert trees.apply(root, (mend_clock(), edit), "0001-x") == (GUARD,)
    assert contents(root) == {**RELEASED, CLOCK: FIXED_CLOCK}


@pytest.mark.parametrize(
    "section",
    [
        factories.make_edit(CLOCK, RELEASED[CLOCK] + b"\n", FIXED_CLOCK),
        factories.make_edit("python/sglang/srt/gone.py", b"a\n", b"b\n"),
        diff.render_add(CLOCK, b"mine\n"),
        factories.make_delete(CLOCK, b"other\n"),
    ],
    ids=["other content", "no file", "already there", "deletes other content"],
)
def test_a_file_that_is_not_the_expected_one_is_a_conflict(root, section):
    added = diff.render_add(TEST, TEST_SOURCE)
    with pytest.raises(Conflict) as caught:
        trees.apply(root, (section, added), "v0.5.16/0001-x")
    assert "v0.5.16/0001-x" in caught.value.message
    assert section.path in caught.value.message
    assert contents(root) == RELEASED


def test_nothing_applies_twice(root):
    trees.apply(root, (mend_clock(),), "0001-x")
    with pytest.raises(Conflict, match="clock.py"):
        trees.apply(root, (mend_clock(),), "0001-x")
    assert contents(root) == {**RELEASED, CLOCK: FIXED_CLOCK}


def test_a_result_other_than_promised_is_a_conflict(root):
    lying = msgspec.structs.replace(mend_clock(), new="1" * 40)
    with pytest.raises(Conflict, match="other than it promises"):
        trees.apply(root, (lying,), "0001-x")


def test_a_repository_around_the_tree_changes_nothing(root):
    """Inside a repository, plain git apply skips such a diff and exits 0."""
    subprocess.run(["git", "init", "-q", str(root.parent)], check=True)
    (root.parent / ".git" / "info" / "attributes").write_text("* text eol=crlf\n")
    trees.apply(root, (mend_clock(),), "0001-x")
    assert (root / CLOCK).read_bytes() == FIXED_CLOCK


def test_a_lock_holds_the_released_files_to_their_ids(world):
    base = world.release()
    folder = world.series(base, fix_mail())
    unlocked = trees.released(base)
    found = series.load(base)
    carried = lock.carried_blobs(found, unlocked.root)
    locked = lock.build(base, found, unlocked.origin.sha256, carried)
    (folder / lock.NAME).write_bytes(lock.render(locked))
    assert trees.released(base) == unlocked
    (unlocked.root / CLOCK).write_bytes(b"tampered\n")
    with pytest.raises(Precondition, match="is not the file that was released"):
        trees.released(base)
