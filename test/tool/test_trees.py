"""Trees are strict about what they are made of, and share nothing with the cache."""

from __future__ import annotations

import factories
import msgspec
import pytest
from world import (
    CLOCK,
    FIXED_CLOCK,
    RELEASED,
    TEST,
    TEST_SOURCE,
    fix_patch_file,
    mend_clock,
    stop_clock,
)

from dspark_patches.errors import Conflict, Precondition
from dspark_patches.model import diff, lock, series
from dspark_patches.trees import make as trees
from dspark_patches.trees.make import PATCHED, PRISTINE

GUARD = "test/registered/unit/test_guard.py"
HELPER = "python/sglang/srt/clock_helper.py"
INIT = "python/sglang/srt/__init__.py"

pytestmark = pytest.mark.usefixtures("no_pip")


def contents(root):
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file()
    }


def test_each_tree_has_what_it_should(world, tmp_path):
    release = world.release()
    stronger = TEST_SOURCE + b"# more\n"
    first = (
        factories.make_delete(INIT, b""),
        mend_clock(),
        diff.render_add(HELPER, b"help\n"),
        diff.render_add(TEST, TEST_SOURCE),
        factories.make_edit(GUARD, b"a\n", b"b\n"),
    )
    second = factories.make_edit(CLOCK, FIXED_CLOCK, FIXED_CLOCK + b"# fast\n")
    world.series(
        release,
        fix_patch_file(*first),
        fix_patch_file(second, factories.make_edit(TEST, TEST_SOURCE, stronger)),
    )
    world.control(release, "0001-stop", stop_clock())
    for name in (PRISTINE, PATCHED, "control 0001-stop"):
        trees.make(release, name, tmp_path / name)
    assert contents(tmp_path / PRISTINE) == RELEASED | {TEST: stronger}
    added = {HELPER: b"help\n", TEST: TEST_SOURCE}
    kept = {path: content for path, content in RELEASED.items() if path != INIT}
    assert contents(tmp_path / "control 0001-stop") == kept | added
    fast = {CLOCK: FIXED_CLOCK + b"# fast\n", TEST: stronger}
    assert contents(tmp_path / PATCHED) == kept | added | fast


def test_a_tree_shares_nothing_with_the_cache(world, tmp_path):
    released = trees.released(world.release())
    trees.build(tmp_path / "tree", released.package, {})
    assert contents(tmp_path / "tree") == RELEASED
    with (tmp_path / "tree" / CLOCK).open("r+b") as stream:
        stream.write(b"scribble")
    assert (released.root / CLOCK).read_bytes() == RELEASED[CLOCK]


def test_a_tree_that_cannot_be_written(world, tmp_path):
    (tmp_path / "tree").write_text("a file in the way")
    with pytest.raises(Precondition, match="cannot be copied") as caught:
        trees.build(tmp_path / "tree", trees.released(world.release()).package, {})
    assert "TMPDIR" in caught.value.next_step


@pytest.mark.parametrize(
    "section",
    [
        factories.make_edit(CLOCK, RELEASED[CLOCK] + b"\n", FIXED_CLOCK),
        factories.make_edit("python/sglang/srt/gone.py", b"a\n", b"b\n"),
        diff.render_add(CLOCK, b"mine\n"),
        factories.make_delete(CLOCK, b"other\n"),
        msgspec.structs.replace(mend_clock(), new="1" * 40),
    ],
    ids=["other content", "no file", "there already", "deletes other", "lies"],
)
def test_a_file_that_is_not_the_expected_one(world, section):
    root = world.tree("tree", {})
    with pytest.raises(Conflict) as caught:
        trees.after({}, root, (section,), "v0.5.16/0001-x")
    assert f"v0.5.16/0001-x does not fit {section.path}" in caught.value.message
    assert "expected" in caught.value.cause


def test_nothing_applies_twice(world):
    root = world.tree("tree", {})
    once = trees.after({}, root, (mend_clock(),), "0001-x")
    assert once == {CLOCK: FIXED_CLOCK}
    with pytest.raises(Conflict, match="clock.py"):
        trees.after(once, root, (mend_clock(),), "0001-x")


def test_a_lock_holds_the_released_files_to_their_ids(world):
    release = world.release()
    folder = world.series(release, fix_patch_file())
    unlocked = trees.released(release)
    found = series.load(release)
    carried = lock.carried_blobs(found, unlocked.root)
    locked = lock.build(release, found, unlocked.sha256, carried)
    (folder / lock.NAME).write_bytes(lock.render(locked))
    assert trees.released(release) == unlocked
    (unlocked.root / CLOCK).write_bytes(b"tampered\n")
    with pytest.raises(Precondition, match="is not the file that was released"):
        trees.released(release)
