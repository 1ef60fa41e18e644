"""Everything that is wrong offline is found, all of it at once."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from factories import (
    make_edit,
    make_patch_file,
    make_release,
    write_files,
    write_series,
)
from sound import (
    CLOCK,
    FIRST,
    FIX,
    KIT,
    LOCK,
    RELEASE,
    TEST,
    TEST_SOURCE,
    Sound,
    with_fix,
    with_source,
)

from dspark_patches import cli
from dspark_patches.maintain import check, derive
from dspark_patches.model import diff, releases


@pytest.fixture
def clone(tmp_path: Path) -> Sound:
    return Sound(tmp_path)


def test_a_sound_series_has_no_findings(clone: Sound) -> None:
    assert clone.check() == ()


def test_a_lock_that_lags_behind_is_found(clone: Sound) -> None:
    edit = make_edit(CLOCK, b"tick\n", b"tick just once\n")
    clone.write(clone.first, make_patch_file(edit, trailers=clone.fix.trailers))
    (finding,) = clone.check()
    assert finding.file == LOCK
    assert finding.what == "the lock is out of date"
    assert finding.hint == "run `dspark-patches lock v0.5.16`"


def test_a_lock_with_a_comment_is_out_of_date(clone: Sound) -> None:
    path = clone.folder / "lock.toml"
    path.write_bytes(b"# mine\n" + path.read_bytes())
    assert clone.said() == [f"{LOCK}:0: the lock is out of date"]


def test_a_file_that_the_lock_does_not_know_is_named(clone: Sound) -> None:
    other = make_edit("python/sglang/srt/pool.py", b"a\n", b"b\n")
    clone.write(
        clone.first,
        make_patch_file(*clone.fix.sections, other, trailers=clone.fix.trailers),
    )
    assert clone.said() == [
        f"{LOCK}:0: the lock does not know python/sglang/srt/pool.py"
    ]


def test_a_hunk_for_another_release_is_found(clone: Sound) -> None:
    edit = make_edit(CLOCK, b"tock\n", b"tick\n")
    clone.write(clone.first, make_patch_file(edit, trailers=clone.fix.trailers))
    (clone.folder / "controls" / "0001-twice.diff").write_bytes(
        b"Why.\n" + make_edit(CLOCK, b"tock\n", b"tick tick\n").text
    )
    (said,) = clone.said()
    assert said.startswith(f"{FIX}:0: {CLOCK} begins with blob")
    assert "the release has" in said


@pytest.mark.parametrize(
    ("name", "before", "fits"),
    [
        ("0001-twice", b"tick\n", True),
        ("0001-twice", b"tick once\n", False),
        ("0002-twice", b"tick once\n", True),
        ("0002-twice", b"tick\n", False),
    ],
)
def test_a_control_must_fit_its_patch(
    clone: Sound, name: str, before: bytes, fits: bool
) -> None:
    edit = make_edit(CLOCK, before, b"tick tick\n")
    write_files(clone.folder, {f"controls/{name}.diff": b"Why.\n" + edit.text})
    said = [what for what in clone.said() if f"controls/{name}.diff" in what]
    assert bool(said) is not fits


def test_a_control_may_touch_what_the_series_does_not(clone: Sound) -> None:
    edit = make_edit("python/sglang/srt/pool.py", b"a\n", b"b\n")
    write_files(clone.folder, {"controls/0001-pool.diff": b"Why.\n" + edit.text})
    assert clone.check() == ()


def test_a_broken_chain_is_found(clone: Sound) -> None:
    write_series(clone.folder, clone.first, clone.fix, clone.fix)
    (said,) = clone.said()
    assert said.startswith("patches/v0.5.16/0003-patch.patch:0: ")
    assert "an earlier patch leaves" in said


def test_all_is_found_at_once(clone: Sound) -> None:
    with_fix(body="", trailers=(("Upstream-Status", "Soon"),))(clone)
    (clone.folder / "0002-patch.patch").rename(clone.folder / "0004-patch.patch")
    (clone.folder / "0001-patch.patch").write_bytes(b"noise")
    said = clone.said()
    assert f"{FIRST}:1: the file does not end with a newline" in said
    assert "patches/v0.5.16/0004-patch.patch:5: the patch does not say why" in said
    assert f"{KIT}:0: no series adds this file" in said
    assert len(said) == 7


def test_a_release_without_a_series_is_a_finding(clone: Sound) -> None:
    other = make_release("v0.5.17")
    (finding,) = check.check([RELEASE, other], clone.root, whole=True)
    assert (finding.release, finding.file) == ("v0.5.17", "patches/v0.5.17")


def test_one_release_alone_owns_not_every_file(clone: Sound) -> None:
    write_files(clone.root, {"test/registered/more.py": b""})
    assert clone.check(whole=False) == ()


def test_a_folder_of_no_release_is_found(clone: Sound) -> None:
    write_files(clone.root, {"patches/v0.5.99/0001-x.patch": b""})
    (clone.root / "patches" / "v0.5.17" / "controls").mkdir(parents=True)
    said = "this folder holds no series of a known release"
    assert clone.said() == [f"patches/v0.5.99:0: {said}"]


def share(clone: Sound, kit: bytes, features: str) -> None:
    """Let the kit ask for features, of which the lock tells some."""
    source = b'"""Why."""\n\nHAS_TREE = "srt/tree.py"\n'
    write_files(clone.root, {derive.FEATURES: source, KIT: kit})
    path = clone.folder / "lock.toml"
    text = path.read_text()
    path.write_text(text + f"\n[features]\n{features}" if features else text)


def test_a_kit_is_compared_with_what_is_derived(clone: Sound) -> None:
    kit = b"Shared = (1 if HAS_TREE else 2)\n"
    share(clone, kit, '"HAS_TREE" = true\n')
    assert clone.said() == [f"{FIRST}:11: {KIT} is not what the clone has"]
    with_source(b"Shared = 1\n", KIT)(clone)
    share(clone, kit, '"HAS_TREE" = true\n')
    assert clone.check() == ()


@pytest.mark.parametrize("features", ["", '"HAS_TREE" = true\n"MORE" = false\n'])
def test_a_lock_that_knows_other_features_is_found(clone: Sound, features: str) -> None:
    share(clone, b"kit = 1\n", features)
    assert f"{LOCK}:0: the lock is out of date" in clone.said()


def test_a_question_without_an_answer_is_found(clone: Sound) -> None:
    share(clone, b"Shared = 1\nwhile HAS_TREE:\n    pass\n", '"HAS_TREE" = true\n')
    (finding,) = clone.check()
    assert (finding.release, finding.file, finding.line) == ("v0.5.16", KIT, 2)
    assert finding.what == "HAS_TREE cannot be answered here"


def test_a_name_of_the_kit_that_no_release_uses_is_found(clone: Sound) -> None:
    kit = b"Shared = (1 if HAS_TREE else 2)\n\n\ndef unused():\n    return 1\n"
    with_source(b"Shared = 1\n", KIT)(clone)
    share(clone, kit, '"HAS_TREE" = true\n')
    assert clone.said() == [f"{KIT}:4: no release uses unused"]


def test_a_kit_that_comes_before_its_first_test_is_found(clone: Sound) -> None:
    kit, test = clone.first.sections
    clone.write(
        make_patch_file(kit, trailers=clone.first.trailers),
        make_patch_file(*clone.fix.sections, test, trailers=clone.fix.trailers),
    )
    clone.lock()
    assert clone.said() == [f"{FIRST}:11: no test of this patch uses {KIT}"]


def test_caches_are_no_sources(clone: Sound) -> None:
    write_files(clone.root, {"python/sglang/test/__pycache__/x.pyc": b""})
    assert clone.check() == ()


def test_eight_releases_take_less_than_a_second(tmp_path: Path) -> None:
    source = TEST_SOURCE.replace(b"class Ticks", b"# a line\n" * 2000 + b"class Ticks")
    tests = [TEST.replace("clock", f"clock{number}") for number in range(6)]
    write_files(tmp_path, dict.fromkeys(tests, source))
    chosen = [make_release(f"v0.5.{number}") for number in range(16, 24)]
    for release in chosen:
        patch_files = [make_patch_file(diff.render_add(test, source)) for test in tests]
        write_series(tmp_path / "patches" / release.tag, *patch_files)
    start = time.process_time()
    assert len(check.check(chosen, tmp_path, whole=True)) >= 8
    assert time.process_time() - start < 1


@pytest.fixture
def command(clone: Sound, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    monkeypatch.setattr(releases, "data_root", lambda: clone.root)
    monkeypatch.setattr(releases, "load", lambda path=None: {RELEASE.tag: RELEASE})
    return lambda *arguments: cli.main(["check", *arguments])


def test_the_command_says_that_all_is_well(
    command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command() == 0
    assert capsys.readouterr().out == "ok: 1 series\n"


def test_the_command_tells_findings_in_three_ways(
    clone: Sound, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    (clone.root / KIT).unlink()
    assert command("v0.5.16") == 1
    text = capsys.readouterr().out
    assert text.startswith(f"{FIRST}:11: error: {KIT} is not in the clone\n  next: ")
    assert text.endswith("findings: 1 error, 0 warnings in 1 series\n")
    assert command("--format", "json") == 1
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is False
    assert told["findings"][0]["line"] == 11
    assert command("--format", "github") == 1
    assert capsys.readouterr().out.startswith(
        f"::error title=dspark-patches v0.5.16 0001-patch,file={FIRST},line=11::"
    )
