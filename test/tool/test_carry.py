"""An edit of one release's patch goes into the others, or is shown not to fit."""

from __future__ import annotations

import shutil

import pytest
from factories import make_edit, make_repository, write_files
from machine import patch_file_of
from world import World

from dspark_patches import cli
from dspark_patches.errors import Exit
from dspark_patches.maintain import beside
from dspark_patches.model import patch_file, releases, series
from dspark_patches.model.diff import hunks

pytestmark = pytest.mark.usefixtures("no_pip")

CLOCK = "python/sglang/srt/clock.py"
TEST = "test/registered/unit/test_clock.py"
OLD = b"""\
import time


def tick(now):
    return now


def wait(now):
    return now


def stop(now):
    return now


def rest(now):
    return now
"""
# What the next release is like: other lines above, others around.
NEXT = b"# Moved.\n\n" + OLD[: -len(b"now\n")] + b"0\n"
ONE = (b"def tick(now):\n", b"def tick(now):\n    now += 1\n")
WAIT = (b"def wait(now):\n", b"def wait(now):\n    now += 3\n")
TWO = (b"def stop(now):\n    return now", b"def stop(now):\n    return None")


class Clone:
    """A clone with two releases, whose series have the same two patches."""

    def __init__(self, world: World, later: bytes = NEXT) -> None:
        self.root, self.world = world.data, world
        self.old = world.release(
            "v0.5.16", {"python/sglang/__init__.py": b"", CLOCK: OLD}
        )
        self.next = world.release(
            "v0.5.17", {"python/sglang/__init__.py": b"", CLOCK: later}
        )
        write_files(self.root, {TEST: b"test = 1\n"})
        for release, released in ((self.old, OLD), (self.next, later)):
            self.write(release.tag, released, ONE, TWO)
        self.git = make_repository(self.root, {})

    def write(self, tag: str, released: bytes, *edits: tuple[bytes, bytes]) -> None:
        """Let a series be these edits, one after the other; the last adds the test."""
        state = {CLOCK: released}
        for number, (before, after) in enumerate(edits, 1):
            assert before in state[CLOCK]
            made = state | {CLOCK: state[CLOCK].replace(before, after)}
            made |= {TEST: b"test = 1\n"} if number == len(edits) else {}
            self.put(tag, number, patch_file_of(state, made, f"Patch {number}"))
            state = made

    def put(self, tag: str, number: int, value: patch_file.PatchFile) -> None:
        path = self.root / "patches" / tag / f"{number:04}-patch.patch"
        write_files(path.parent, {path.name: patch_file.render(value)})

    def files(self, tag: str) -> dict[str, bytes]:
        folder = self.root / "patches" / tag
        found = (path for path in folder.rglob("*") if path.is_file())
        return {
            path.relative_to(folder).as_posix(): path.read_bytes() for path in found
        }

    def carry(self, *options: str) -> int:
        return cli.main(["carry", "v0.5.16", *options])

    def changes(self, tag: str) -> list[list[bytes]]:
        """The lines that each patch removes and adds in the clock."""
        loaded = series.load(releases.find(tag))
        series.chain(loaded)
        return [
            [
                line
                for section in patch.file.sections
                for hunk in hunks(section)
                for line in hunk.lines
                if section.path == CLOCK and line[:1] in b"+-"
            ]
            for patch in loaded.patches
        ]


def both(one: tuple[bytes, bytes], two: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    """One edit that does what two do."""
    return OLD, OLD.replace(*one).replace(*two)


@pytest.fixture
def clone(world: World) -> Clone:
    return Clone(world)


def test_nothing_is_carried_without_an_edit(clone: Clone, capsys) -> None:
    before = clone.files("v0.5.17")
    assert clone.carry() == Exit.OK
    assert "v0.5.17: merged\nnothing changed" in capsys.readouterr().out
    assert clone.files("v0.5.17") == before


def test_an_edit_is_carried_and_what_follows_is_restacked(clone: Clone) -> None:
    clone.write("v0.5.16", OLD, (ONE[0], ONE[1] + b"    now += 2\n"), TWO)
    assert clone.carry() == Exit.OK
    added = [b"+    now += 1", b"+    now += 2"]
    assert clone.changes("v0.5.17")[0] == added
    assert clone.changes("v0.5.17")[1] == clone.changes("v0.5.16")[1]
    assert cli.main(["export", "--check"]) == Exit.OK
    before = clone.files("v0.5.17")
    assert clone.carry() == Exit.OK
    assert clone.files("v0.5.17") == before


def test_patches_after_one_edited_by_hand_are_restacked(clone: Clone) -> None:
    """Only the first patch is written anew; the second begins with another blob."""
    second = clone.files("v0.5.16")["0002-patch.patch"]
    clone.write("v0.5.16", OLD, (ONE[0], ONE[1] + b"    now += 2\n"), TWO)
    write_files(clone.root, {"patches/v0.5.16/0002-patch.patch": second})
    assert clone.carry("--to", "v0.5.16") == Exit.OK
    assert clone.changes("v0.5.16")[1] == [b"-    return now", b"+    return None"]
    assert clone.git.text("status", "--porcelain", "patches/v0.5.17") == ""


def test_words_are_carried_into_words(clone: Clone) -> None:
    for tag in ("v0.5.16", "v0.5.17"):
        path = clone.root / f"patches/{tag}/0001-patch.patch"
        text = path.read_bytes()
        own = text.replace(b"Each tick", b"On this release, each tick")
        path.write_bytes(own if tag == "v0.5.17" else text)
    clone.git.run("commit", "-qam", "words")
    path = clone.root / "patches/v0.5.16/0001-patch.patch"
    path.write_bytes(path.read_bytes().replace(b"Patch 1", b"Tick once"))
    assert clone.carry() == Exit.OK
    told = clone.files("v0.5.17")["0001-patch.patch"]
    assert b"Subject: [PATCH] Tick once\n" in told
    assert b"On this release, each tick" in told


def test_a_new_patch_and_its_test_are_carried(clone: Clone) -> None:
    clone.write("v0.5.16", OLD, ONE, TWO, WAIT)
    (clone.root / "patches/v0.5.16/0003-patch.patch").rename(
        clone.root / "patches/v0.5.16/0005-wait.patch"
    )
    state = OLD.replace(*ONE).replace(*TWO).replace(*WAIT)
    control = make_edit(CLOCK, state, state.replace(b"now += 3", b"now += 9"))
    name = "patches/v0.5.16/controls/0005-nine.diff"
    write_files(clone.root, {name: b"Nine.\n\n" + control.text})
    assert clone.carry() == Exit.OK
    assert set(clone.files("v0.5.17")) == {
        "0001-patch.patch",
        "0002-patch.patch",
        "0005-wait.patch",
        "controls/0005-nine.diff",
    }
    (found,) = series.load(clone.next).patches[2].controls
    lines = [line for line in found.sections[0].text.split(b"\n") if b"now +=" in line]
    assert lines == [b"-    now += 3", b"+    now += 9"]
    blobs = series.blobs_after(series.load(clone.next), 5)
    assert found.sections[0].old == blobs[CLOCK]
    assert clone.changes("v0.5.17")[2] == [b"+    now += 3"]
    assert b"+test = 1" in clone.files("v0.5.17")["0005-wait.patch"]
    assert b"test = 1" not in clone.files("v0.5.17")["0002-patch.patch"]


def test_a_patch_that_goes_is_taken_out_below_the_rest(clone: Clone) -> None:
    folder = clone.root / "patches/v0.5.16"
    (folder / "0001-patch.patch").unlink()
    assert clone.carry() == Exit.OK
    for tag in ("v0.5.16", "v0.5.17"):
        assert set(clone.files(tag)) == {"0002-patch.patch"}
        assert clone.changes(tag) == [[b"-    return now", b"+    return None"]]


def test_controls_are_restacked(clone: Clone) -> None:
    state = NEXT.replace(*ONE)
    control = make_edit(CLOCK, state, state.replace(b"now += 1", b"now += 9"))
    name = "patches/v0.5.17/controls/0001-nine.diff"
    write_files(clone.root, {name: b"Nine.\n\n" + control.text})
    # The line beside the one that the control changes.
    beside = (b"    return now\n\n\ndef wait", b"    return now + 0\n\n\ndef wait")
    clone.write("v0.5.16", OLD, both(ONE, beside), TWO)
    assert clone.carry() == Exit.OK
    (found,) = series.load(clone.next).patches[0].controls
    assert (
        found.sections[0].old == series.blobs_after(series.load(clone.next), 1)[CLOCK]
    )
    lines = [line for line in found.sections[0].text.split(b"\n") if b"now +=" in line]
    assert lines == [b"-    now += 1", b"+    now += 9"]


def test_a_release_without_a_series_gets_all_patches(clone: Clone, capsys) -> None:
    """Controls as well, also of a file that no patch touches."""
    shutil.rmtree(clone.root / "patches/v0.5.17")
    control = make_edit("python/sglang/__init__.py", b"", b"broken = True\n").text
    name = "patches/v0.5.16/controls/0002-broken.diff"
    write_files(clone.root, {name: b"Broken.\n\n" + control})
    assert clone.carry("--to", "v0.5.17") == Exit.OK
    assert clone.changes("v0.5.17") == clone.changes("v0.5.16")
    (found,) = series.load(clone.next).patches[1].controls
    assert found.sections[0].text == control
    shutil.rmtree(clone.root / "patches/v0.5.17")
    assert clone.carry("--to", "v0.5.17", "--skip", "0001") == Exit.OK
    assert set(clone.files("v0.5.17")) == {
        "0002-patch.patch",
        "controls/0002-broken.diff",
    }
    assert "nothing changed" in capsys.readouterr().out


def test_controls_that_lack_or_do_not_fit_are_carried(clone: Clone) -> None:
    """As after a patch that conflicted was written by hand."""
    state = OLD.replace(*ONE)
    control = make_edit(CLOCK, state, state.replace(b"now += 1", b"now += 9")).text
    both = {f"controls/0001-{n}.diff": b"Nine.\n\n" + control for n in ("a", "b")}
    write_files(clone.root / "patches/v0.5.16", both)
    write_files(clone.root / "patches/v0.5.17", {"controls/0001-b.diff": control})
    clone.git.run("add", "-A")
    clone.git.run("commit", "-q", "-m", "Controls")
    write_files(clone.root / "patches/v0.5.17", both)
    (clone.root / "patches/v0.5.17/controls/0001-a.diff").unlink()
    assert clone.carry("--to", "v0.5.17") == Exit.OK
    assert (
        clone.files("v0.5.17")["controls/0001-b.diff"] == both["controls/0001-b.diff"]
    )
    assert clone.carry("--to", "v0.5.17", "--controls") == Exit.OK
    loaded = series.load(clone.next)
    found = loaded.patches[0].controls
    assert [one.name for one in found] == ["0001-a", "0001-b"]
    for one in found:
        assert one.sections[0].old == series.blobs_after(loaded, 1)[CLOCK]
    before = clone.files("v0.5.17")
    assert clone.carry("--to", "v0.5.17", "--controls") == Exit.OK
    assert clone.files("v0.5.17") == before


def test_names_that_a_new_release_has_in_other_places_are_told(
    clone: Clone, capsys
) -> None:
    """Whether a patch merges or not; the words of a comment are no names."""
    use = (
        b"    return now\n\n\ndef stop",
        b"    return my_rate  # a_word\n\n\ndef stop",
    )
    clone.write("v0.5.16", OLD, ONE, use)
    shutil.rmtree(clone.root / "patches/v0.5.17")
    old, new = clone.root / "old", clone.root / "new"
    second = "python/sglang/srt/second.py"
    write_files(old, {CLOCK: b"my_rate = my_rate = a_word", second: b"a_word"})
    write_files(new, {CLOCK: b"my_rate", second: b"my_rate = her_rate"})
    loaded = series.load(clone.old)
    (found,) = beside.changed(loaded, old, new)
    assert found == f"0002 my_rate: {CLOCK} 2 -> 1, {second} 0 -> 1"
    # What many have is looked for where the patch edits it, and only where it goes.
    write_files(old, {"python/sglang/srt/third.py": b"my_rate " * 99})
    (found,) = beside.changed(loaded, old, new)
    assert found == f"0002 my_rate: {CLOCK} 2 -> 1"
    write_files(old, {CLOCK: b"", "python/sglang/test/test_x.py": b"my_rate"})
    assert not [*beside.changed(loaded, old, new)]
    assert clone.carry("--to", "v0.5.17") == Exit.OK
    assert "look at" not in capsys.readouterr().out


def test_what_conflicts_for_a_new_release_can_be_left_out(clone: Clone, capsys) -> None:
    shutil.rmtree(clone.root / "patches/v0.5.17")
    rest = (b"def rest(now):\n    return now", b"def rest(now):\n    return 7")
    control = make_edit(CLOCK, OLD.replace(*rest).replace(*ONE), OLD).text
    clone.write("v0.5.16", OLD, rest, ONE)
    write_files(
        clone.root, {"patches/v0.5.16/controls/0002-none.diff": b"No.\n\n" + control}
    )
    assert clone.carry("--to", "v0.5.17") == Exit.CONFLICT
    told = capsys.readouterr().out
    command = "carry v0.5.16 --to v0.5.17 --skip 1`"
    assert f"next: `dspark-patches {command}" in told
    assert clone.carry("--to", "v0.5.17", "--skip", "1") == Exit.OK
    # The control was written for a state that the first patch is part of.
    loaded = series.load(clone.next)
    (found,) = loaded.patches[0].controls
    assert found.sections[0].old == series.blobs_after(loaded, 2)[CLOCK]


def test_a_release_that_conflicts_is_shown_and_left(clone: Clone, capsys) -> None:
    before = clone.files("v0.5.17")
    rest = (b"def rest(now):\n    return now", b"def rest(now):\n    return 7")
    clone.write("v0.5.16", OLD, both(ONE, rest), TWO)
    assert clone.carry() == Exit.CONFLICT
    told = capsys.readouterr().out
    assert "v0.5.17: not written, there are conflicts" in told
    assert "<<<<<<< ours" in told and "return 0" in told and "return 7" in told
    assert clone.files("v0.5.17") == before


def test_an_import_may_be_wrapped_otherwise(clone: Clone) -> None:
    """A name more is one line in the one release, and a new statement in the other."""
    names = [f"a_long_name_{n}" for n in range(5)]
    line = f"from module import {', '.join(names)}\n".encode()
    later, new = (
        "\n".join(
            ["from module import (", *(f"    {n}," for n in more), ")\n"]
        ).encode()
        for more in (["a_first", *names], [*names, "a_third"])
    )
    shutil.rmtree(clone.root / "patches/v0.5.17")
    shutil.rmtree(clone.root / "patches/v0.5.16")
    (clone.root / "patches/releases.toml").write_text("")
    clone.old = clone.world.release("v0.5.16", {CLOCK: line + OLD})
    clone.next = clone.world.release("v0.5.17", {CLOCK: later + OLD})
    clone.write("v0.5.16", line + OLD, (line + OLD, new + OLD))
    clone.git.run("add", "-A")
    clone.git.run("commit", "-q", "-m", "Wrapped")
    assert clone.carry("--to", "v0.5.17") == Exit.OK
    ((added,),) = clone.changes("v0.5.17")
    assert added.split() == [b"+", b"a_third,"]


def test_a_merge_that_loses_a_line_is_refused(world: World, capsys) -> None:
    """git merges what is there already; the patch would not add it."""
    clone = Clone(world, NEXT.replace(*WAIT))
    clone.write("v0.5.16", OLD, both(ONE, WAIT), TWO)
    assert clone.carry() == Exit.CONFLICT
    assert "would not change the same lines" in capsys.readouterr().out


def test_a_patch_of_unknown_files_is_refused(clone: Clone, capsys) -> None:
    clone.put(
        "v0.5.16", 1, patch_file_of({CLOCK: b"tock\n"}, {CLOCK: b"t\n"}, "Patch 1")
    )
    assert clone.carry() == Exit.CONFLICT
    assert f"0001-patch.patch does not fit {CLOCK}" in capsys.readouterr().err


def test_a_commit_that_is_not_there_is_told(clone: Clone, capsys) -> None:
    assert clone.carry("--since", "v9") == Exit.PRECONDITION
    assert "v9 of" in capsys.readouterr().err
