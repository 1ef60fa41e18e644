"""Each release's patches hold the shared text with the release's answers in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from clone import KIT, TEST, Clone
from factories import make_edit, make_patch_file, write_files, write_series

from dspark_patches.errors import Conflict, Malformed, Precondition
from dspark_patches.files import replace_all
from dspark_patches.maintain import added, derive
from dspark_patches.model import diff

POOLS = "python/sglang/test/kits/pools.py"
UNUSED = "python/sglang/test/kits/unused.py"
OLD, NEW = {"HAS_TREE": False}, {"HAS_TREE": True}

FEATURES_SOURCE = b'''\
"""What releases differ in."""

HAS_TREE = "srt/tree.py::def evict("
'''
KIT_SOURCE = b'''\
"""A kit."""

from __future__ import annotations

from typing import Optional

import torch

from sglang.srt.pool import free_all
from sglang.srt.tree import evict
from sglang.test.kits.features import HAS_TREE
from sglang.test.kits.pools import (
    make_full_pool,
    make_pool,
)

# Tokens.
PAGE = 16
_UNUSED = PAGE


class Rig:
    """A rig."""

    def __init__(self, req) -> None:
        self.pool = make_pool(PAGE)
        (req.kv if HAS_TREE else req).length += 1

    def clear(self) -> None:
        """Free everything."""
        if HAS_TREE:
            # The tree frees.
            evict(self.pool)
        else:
            free_all(self.pool)

    if not HAS_TREE:

        def lost(self) -> Optional[int]:
            return None

    def used(self) -> int:
        return 1


# Nothing calls it.
def unused() -> torch.Tensor:
    return make_full_pool(_UNUSED)
'''
POOLS_SOURCE = b'''\
"""Pools."""


def make_pool(page):
    return _pool(page)


def make_full_pool(page):
    return _pool(page)


def _pool(page):
    return page
'''
TEST_SOURCE = b'''\
"""The clock."""

from sglang.test.kits.clock_kit import Rig
from sglang.test.kits.features import HAS_TREE

if HAS_TREE:

    class TestTree:
        rig = Rig


class TestClock:
    rig = Rig
'''
OLD_TEST = b'''\
"""The clock."""

from sglang.test.kits.clock_kit import Rig


class TestClock:
    rig = Rig
'''
SOURCES = {
    derive.FEATURES: FEATURES_SOURCE,
    KIT: KIT_SOURCE,
    POOLS: POOLS_SOURCE,
    TEST: TEST_SOURCE,
}
OLD_KIT = b'''\
"""A kit."""

from __future__ import annotations

from typing import Optional

from sglang.srt.pool import free_all
from sglang.test.kits.pools import make_pool

# Tokens.
PAGE = 16


class Rig:
    """A rig."""

    def __init__(self, req) -> None:
        self.pool = make_pool(PAGE)
        req.length += 1

    def clear(self) -> None:
        """Free everything."""
        free_all(self.pool)

    def lost(self) -> Optional[int]:
        return None

    def used(self) -> int:
        return 1
'''
NEW_KIT = b'''\
"""A kit."""

from __future__ import annotations

from sglang.srt.tree import evict
from sglang.test.kits.pools import make_pool

# Tokens.
PAGE = 16


class Rig:
    """A rig."""

    def __init__(self, req) -> None:
        self.pool = make_pool(PAGE)
        req.kv.length += 1

    def clear(self) -> None:
        """Free everything."""
        # The tree frees.
        evict(self.pool)

    def used(self) -> int:
        return 1
'''


def derived(features: dict[str, bool], **changes: bytes) -> dict[str, bytes]:
    texts = {path: SOURCES[path] for path in (KIT, POOLS, TEST)}
    return derive.derive(texts | changes, features)


@pytest.mark.parametrize(("features", "kit"), [(OLD, OLD_KIT), (NEW, NEW_KIT)])
def test_a_kit_is_what_one_release_needs(features: dict, kit: bytes) -> None:
    texts = derived(features)
    assert texts[KIT].decode() == kit.decode()
    assert b"def make_pool" in texts[POOLS] and b"def _pool" in texts[POOLS]
    assert b"make_full_pool" not in texts[POOLS]


def test_a_test_that_a_release_cannot_run_is_left_out() -> None:
    new = derived(NEW)[TEST]
    assert derived(OLD)[TEST] == OLD_TEST
    assert b"features" not in new
    assert b"\n\nclass TestTree:\n    rig = Rig\n\n\nclass TestClock:\n" in new


def test_without_features_nothing_is_derived() -> None:
    assert derived({}) == {path: SOURCES[path] for path in (KIT, POOLS, TEST)}


def test_what_is_no_test_stays_as_it_is() -> None:
    srt = {"python/sglang/srt/handoff.py": b"import os\n", "test/notes.txt": b"if x"}
    assert derive.derive(srt, NEW) == srt


@pytest.mark.parametrize(
    ("source", "old", "new"),
    [
        (b"x = (1 if HAS_TREE else 2)\n", b"x = 2\n", b"x = 1\n"),
        (b"x = f(1 if HAS_TREE else 2)\n", b"x = f(2)\n", b"x = f(1)\n"),
        (b"x = (1 if HAS_TREE else 2 + a) * 3\n", b"x = (2 + a) * 3\n", b"x = 1 * 3\n"),
        (
            b"x = [\n    'a',\n    (\n        'b'\n        if HAS_TREE\n        else 'c'\n    ),\n]\n",
            b"x = [\n    'a',\n    'c',\n]\n",
            b"x = [\n    'a',\n    'b',\n]\n",
        ),
        (b"if not HAS_TREE:\n    a()\nb()\n", b"a()\nb()\n", b"b()\n"),
        (
            b"if HAS_TREE:\n    a()\nelif b:\n    c()\nelse:\n    d()\n",
            b"if b:\n    c()\nelse:\n    d()\n",
            b"a()\n",
        ),
        (
            b"if HAS_TREE:\n    a()\n    # said of b\nelse:\n    b()\n",
            b"b()\n",
            b"a()\n",
        ),
        (
            b'x = "\xc3\xa9", (1 if HAS_TREE else 2)\n',
            b'x = "\xc3\xa9", 2\n',
            b'x = "\xc3\xa9", 1\n',
        ),
    ],
)
def test_an_answer_takes_the_place_of_its_question(
    source: bytes, old: bytes, new: bytes
) -> None:
    path = "test/registered/unit/test_x.py"
    assert derive.derive({path: source}, OLD) == {path: old}
    assert derive.derive({path: source}, NEW) == {path: new}


@pytest.mark.parametrize(
    "question",
    [
        b"while HAS_TREE:\n    a()\n",
        b"x = HAS_TREE\n",
        b"if HAS_TREE and b:\n    a()\n",
    ],
)
def test_a_question_that_cannot_be_answered_is_refused(question: bytes) -> None:
    path = "test/registered/unit/test_x.py"
    with pytest.raises(Malformed, match=f"{path}:2: HAS_TREE cannot be answered"):
        derive.derive({path: b"a = 1\n" + question}, NEW)


def test_a_text_that_is_no_python_is_refused() -> None:
    with pytest.raises(Malformed, match=f"{TEST}:1: cannot be parsed"):
        derive.derive({TEST: b"if HAS_TREE\n"}, NEW)


def test_features_are_those_of_the_released_files(tmp_path: Path) -> None:
    write_files(tmp_path, {derive.FEATURES: FEATURES_SOURCE + b'HAS_FILE = "srt/x"\n'})
    root = tmp_path / "released"
    assert derive.answers(added.read(tmp_path), root) == {
        "HAS_TREE": False,
        "HAS_FILE": False,
    }
    write_files(root, {"python/sglang/srt/tree.py": b"def evict_all(): pass\n"})
    assert derive.answers(added.read(tmp_path), root) == {
        "HAS_TREE": False,
        "HAS_FILE": False,
    }
    write_files(root, {"python/sglang/srt/tree.py": b"def evict(): pass\n"})
    write_files(root, {"python/sglang/srt/x": b""})
    assert derive.answers(added.read(tmp_path), root) == {
        "HAS_TREE": True,
        "HAS_FILE": True,
    }
    assert derive.answers({}, root) == {}


@pytest.mark.parametrize("line", [b"A = 1", b"A = B", b"A = B = 'x'", b"import os"])
def test_a_list_of_features_holds_nothing_else(tmp_path: Path, line: bytes) -> None:
    write_files(tmp_path, {derive.FEATURES: b'"""Why."""\n' + line})
    with pytest.raises(Malformed, match="features.py:2: expected NAME"):
        derive.answers(added.read(tmp_path), tmp_path)


@pytest.fixture
def sharing(clone: Clone) -> Clone:
    """A clone whose sources ask, of a release that has no tree."""
    write_files(clone.sources, SOURCES | {UNUSED: b"x = 1\n"})
    write(clone)
    return clone


def write(clone: Clone) -> None:
    written = clone.regenerate().items()
    replace_all({clone.folder / f"{name}.patch": data for name, data in written})


def contents(clone: Clone) -> list[dict[str, bytes]]:
    return [
        {s.path: diff.forward(None, s) for s in p.file.sections if s.kind == "add"}
        for p in clone.series.patches
    ]


def test_a_kit_comes_with_the_first_test_that_uses_it(sharing: Clone) -> None:
    first, second = contents(sharing)
    assert set(first) == set()
    assert set(second) == {KIT, POOLS, TEST}
    assert second[KIT] == OLD_KIT
    assert sharing.regenerate() == sharing.patch_files()


def test_a_kit_that_a_test_uses_must_have_a_source(sharing: Clone) -> None:
    (sharing.sources / POOLS).unlink()
    with pytest.raises(Precondition, match=f"adds {POOLS}, which the clone does not"):
        sharing.regenerate()


def test_a_kit_that_is_renamed_with_its_tests_goes(sharing: Clone) -> None:
    other = POOLS.replace("pools", "all_pools")
    (sharing.sources / POOLS).rename(sharing.sources / other)
    renamed = KIT_SOURCE.replace(b"kits.pools", b"kits.all_pools")
    write_files(sharing.sources, {KIT: renamed})
    write(sharing)
    assert set(contents(sharing)[1]) == {KIT, other, TEST}


def test_a_kit_that_a_later_patch_edits_is_the_patches_own(sharing: Clone) -> None:
    first, second = (patch.file for patch in sharing.series.patches)
    third = make_patch_file(
        make_edit(POOLS, POOLS_SOURCE, b"x = 2\n"), subject="Edit it"
    )
    own = [s for s in second.sections if s.path != POOLS]
    sections = sorted(
        [*own, diff.render_add(POOLS, POOLS_SOURCE)], key=lambda section: section.path
    )
    second = make_patch_file(*sections, subject=second.subject)
    write_series(sharing.folder, first, second, third)
    assert sharing.regenerate().keys() == sharing.patch_files().keys()
    assert sharing.regenerate()["0003-patch"] == sharing.patch_files()["0003-patch"]


def test_an_unedited_work_tree_of_derived_files_changes_nothing(sharing: Clone) -> None:
    sharing.edit()
    assert (sharing.tree / KIT).read_bytes() == OLD_KIT
    assert sharing.collect() == {}


def test_an_edit_of_a_derived_file_is_refused(sharing: Clone) -> None:
    git = sharing.edit()
    write_files(sharing.tree, {KIT: OLD_KIT + b"# more\n"})
    git.run("commit", "-q", "--all", "--amend", "--no-edit")
    with pytest.raises(Conflict, match=f"{KIT} in the clone is not what") as found:
        sharing.collect()
    assert f"edit {sharing.sources / KIT}" in found.value.next_step
    assert (sharing.sources / KIT).read_bytes() == KIT_SOURCE


def test_an_edit_of_a_file_that_asks_nothing_is_taken(sharing: Clone) -> None:
    write_files(sharing.sources, {TEST: OLD_TEST})
    write(sharing)
    git = sharing.edit()
    edited = (sharing.tree / TEST).read_bytes() + b"\nrig = Rig\n"
    write_files(sharing.tree, {TEST: edited})
    git.run("commit", "-q", "--all", "--amend", "--no-edit")
    assert sharing.collect()[TEST] == edited
