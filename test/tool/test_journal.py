"""A journal is read as if a stranger had written it."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import factories
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machine import Machine, carried, contents, state

from dspark_patches import cli
from dspark_patches.change import journal as journals
from dspark_patches.change.job import change
from dspark_patches.confined import Confined
from dspark_patches.diff import ZEROS, blob_id
from dspark_patches.errors import BadInput, Exit, Failure
from dspark_patches.target.locate import Target, locate
from dspark_patches.target.status import status

STATE = "sglang/.dspark-patches"


@pytest.fixture
def halfway(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Target:
    """A package whose change was stopped after two of its files."""
    target = machine.package()
    move = Confined.move
    moved: list[str] = []

    def stopping(self, source, place):
        if "/new/" in source:
            moved.append(place)
            if len(moved) > 2:
                raise Stopped
        move(self, source, place)

    with monkeypatch.context() as patch:
        patch.setattr(Confined, "move", stopping)
        patch.setattr("dspark_patches.change.transaction._take_back", lambda *a: None)
        with pytest.raises(Stopped):
            change(target, "apply")
    assert "2 of 5 files" in status(target).interrupted
    return target


class Stopped(BaseException):
    """Stands for a kill."""


def journal_of(target: Target) -> Path:
    return target.root / STATE / journals.NAME


def test_status_names_it_and_both_ways_out(halfway: Target, capsys) -> None:
    site = str(halfway.root)
    assert cli.main(["status", site]) == Exit.FINDINGS
    told = capsys.readouterr().out
    assert "apply of v0.5.16 was stopped midway: 2 of 5 files are done" in told
    assert f"`dspark-patches apply {site}` or `dspark-patches revert {site}`" in told


@pytest.mark.parametrize(("verb", "count"), [("apply", 3), ("revert", 0)])
def test_either_verb_ends_it(halfway: Target, verb: str, count: int, capsys) -> None:
    assert cli.main([verb, str(halfway.root)]) == Exit.OK
    assert "had been stopped midway" in capsys.readouterr().out
    found = contents(halfway.root)
    assert {p: c for p, c in found.items() if p.startswith("sglang/")} == carried(
        state(count)
    )


def test_a_file_changed_since_then_is_not_written_over(halfway: Target) -> None:
    place = halfway.root / "sglang/srt/handoff.py"
    place.write_bytes(b"mine\n")
    before = contents(halfway.root)
    for verb in ("apply", "revert"):
        with pytest.raises(Failure, match="handoff.py is neither the old nor the new"):
            change(halfway, verb)
        assert place.read_bytes() == b"mine\n"
    place.unlink()
    change(halfway, "revert")
    assert before != contents(halfway.root)


def test_a_damaged_staged_file_can_still_be_taken_back(halfway: Target) -> None:
    for staged in (halfway.root / STATE / "new").iterdir():
        staged.write_bytes(b"damaged")
    with pytest.raises(BadInput, match="is damaged") as caught:
        change(halfway, "apply")
    assert "revert" in caught.value.next_step
    change(halfway, "revert")
    assert status(halfway).exit_code(require=False) == Exit.OK


def test_a_journal_that_differs_from_its_twin_is_refused(halfway: Target) -> None:
    twin = halfway.root / STATE / journals.BACK
    body = twin.read_bytes().rpartition(b"\n")[0]
    twin.write_bytes(sealed(body.replace(b"v0.5.16", b"v0.5.17")))
    with pytest.raises(BadInput, match="journals that differ"):
        change(halfway, "revert")


def sealed(body: bytes) -> bytes:
    return body + b"\n" + hashlib.sha256(body).hexdigest().encode()


def test_a_single_bit_is_noticed(halfway: Target) -> None:
    path = halfway.root / STATE / journals.NAME
    path.write_bytes(path.read_bytes().replace(b"/srt/handoff", b"/srt/Handoff"))
    for verb in ("apply", "revert"):
        with pytest.raises(BadInput, match="is no journal of ours") as caught:
            change(halfway, verb)
        assert caught.value.cause == "it is damaged"


@pytest.mark.parametrize("verb", ["apply", "revert"])
def test_without_its_journal_a_half_done_change_can_be_ended(
    halfway: Target, verb: str, machine: Machine
) -> None:
    """What a refused journal asks for: put our folder aside, and run again."""
    (halfway.root / STATE).rename(halfway.root.parent / "aside")
    assert status(halfway).exit_code(require=False) == Exit.FINDINGS
    change(halfway, verb)
    found = contents(halfway.root)
    wanted = carried(state(3 if verb == "apply" else 0))
    assert {p: c for p, c in found.items() if p.startswith("sglang/")} == wanted
    change(halfway, "revert")
    assert contents(halfway.root) == contents(machine.site())


BLOB = blob_id(b"x")
FILE = {"place": "sglang/srt/x.py", "old": ZEROS, "new": BLOB}


def journal(**changes) -> bytes:
    value = {"verb": "apply", "base": "v0.5.16", "goal": "new", "files": [FILE]}
    return msgspec.json.encode(value | changes)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[" * 100_000,
        b"\xff\xfe",
        b"x" * (9 << 20),
        journal(verb="wreck"),
        journal(goal="both"),
        journal(form=2),
        journal(more=1),
        journal(files=[FILE, FILE]),
        journal(files=[FILE | {"new": ZEROS}]),
        journal(files=[FILE | {"new": "x" * 40}]),
        journal(files=[FILE | {"place": "../outside.py"}]),
        journal(files=[FILE | {"place": "/etc/passwd"}]),
        journal(files=[FILE | {"place": "sglang/../torch/__init__.py"}]),
        journal(files=[FILE | {"place": "torch/__init__.py"}]),
        journal(files=[FILE | {"place": "sglang-0.5.16.dist-info/METADATA"}]),
        journal(files=[FILE | {"place": f"{STATE}/journal.json"}]),
        journal(files=[FILE | {"place": "sglang/.git/hooks/post-checkout"}]),
        journal(files=[FILE | {"place": "sglang/srt/x\n.py"}]),
        journal(files=[FILE | {"place": f"sglang/{n}.py"} for n in range(10_001)]),
        journal(commits={"old": ZEROS, "new": BLOB}),
    ],
)
def test_a_hostile_journal_is_refused(machine: Machine, data: bytes) -> None:
    target = machine.package()
    evil = {"new/0000": b"x", "old/0000": b"x", "journal.json": sealed(data)}
    factories.write_files(target.root / STATE, evil)
    before = contents(target.root)
    for verb in ("apply", "revert"):
        with pytest.raises(BadInput, match="is no journal of ours") as caught:
            change(target, verb)
        assert "keep" in caught.value.next_step
    assert contents(target.root) == before
    assert "is no journal of ours" in status(target).interrupted


@pytest.mark.parametrize("place", [STATE, f"{STATE}/new", "sglang/srt"])
def test_links_lead_nothing_out_of_the_target(halfway: Target, place: str) -> None:
    """Put there after the change was stopped, to catch who ends it."""
    away = halfway.root.parent / "away"
    shutil.copytree(halfway.root / place, away)
    shutil.rmtree(halfway.root / place)
    (halfway.root / place).symlink_to(away)
    before = contents(away)
    for verb in ("apply", "revert"):
        try:
            change(halfway, verb)
        except Failure:
            pass
    assert contents(away) == before


def test_a_file_in_the_place_of_our_folder(machine: Machine) -> None:
    target = machine.package()
    (target.root / STATE).write_bytes(b"in the way\n")
    with pytest.raises(Failure, match="holds something that is not ours"):
        change(target, "apply")
    assert (target.root / STATE).read_bytes() == b"in the way\n"


def test_what_is_not_ours_in_our_folder_is_kept(machine: Machine) -> None:
    target = machine.package()
    factories.write_files(target.root / STATE, {"notes.txt": b"mine\n"})
    with pytest.raises(Failure, match="holds something that is not ours"):
        change(target, "apply")
    assert (target.root / STATE / "notes.txt").read_bytes() == b"mine\n"


def test_left_over_staging_is_cleared(machine: Machine) -> None:
    target = machine.package()
    factories.write_files(target.root / STATE, {"new/0000": b"x", "draft.json": b"{"})
    assert status(target).interrupted == ""
    assert not change(target, "revert").changed
    assert not (target.root / STATE).exists()


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_random_corruption_never_loses_or_leaks(halfway: Target, data) -> None:
    """Journal, twin or a staged file: refused, or ended on one of the two sides."""
    work = halfway.root.parent / "work" / "site-packages"
    shutil.rmtree(work.parent, ignore_errors=True)
    shutil.copytree(halfway.root, work)
    outside = contents(halfway.root)
    ours = sorted(path for path in (work / STATE).rglob("*") if path.is_file())
    victim = data.draw(st.sampled_from(ours))
    content = victim.read_bytes()
    at = data.draw(st.integers(0, len(content)))
    cut = data.draw(st.integers(0, 8))
    noise = data.draw(st.binary(max_size=8) | st.sampled_from(SNIPPETS))
    victim.write_bytes(content[:at] + noise + content[at + cut :])
    target = locate(work)
    status(target)
    verb = data.draw(st.sampled_from(["apply", "revert"]))
    try:
        change(target, verb)
    except Failure:
        pass
    old, new = carried(state(0)), carried(state(3))
    found = contents(work)
    for place in old.keys() | new.keys():
        assert found.get(place) in (old.get(place), new.get(place)), place
    assert {p for p in found if STATE not in p} <= {*old, *new} | {
        p for p in outside if "dist-info" in p
    }
    assert sorted(os.listdir(work.parent)) == ["site-packages"]
    assert contents(halfway.root) == outside


SNIPPETS = (b"../", b"old", b"new", b'"', b"sglang/srt/", ZEROS.encode(), b"0000")
