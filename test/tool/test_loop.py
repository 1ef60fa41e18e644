"""The maintainers' loop from the command line: edit, export, lock, check."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from clone import CLOCK, GUARD, TEST, Clone, full_checkout
from factories import make_release, write_files

from dspark_patches import cli
from dspark_patches.git import Git
from dspark_patches.model import diff, lock, patch_file, releases
from dspark_patches.trees import make
from dspark_patches.trees.wheels import Released

RELEASE = make_release()
SHA256 = "ab" * 32

Run = Callable[..., int]


@pytest.fixture
def run(clone: Clone, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command line, in a clone that has one release."""
    released = Released(root=clone.released, sha256=SHA256)
    monkeypatch.setattr(releases, "data_root", lambda: clone.sources)
    monkeypatch.setattr(releases, "load", lambda path=None: {RELEASE.tag: RELEASE})
    monkeypatch.setattr(make, "released", lambda release, notify: released)
    return lambda *arguments: cli.main([str(argument) for argument in arguments])


def test_the_whole_loop(
    clone: Clone, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("edit", "v0.5.16", "--to", clone.tree) == 0
    told = capsys.readouterr().out
    assert f"kept aside, not in wheels: {GUARD}\n" in told
    assert f"`dspark-patches export --from {clone.tree} v0.5.16`" in told
    write_files(clone.tree, {CLOCK: b"evict, then tick\n", TEST: b"test 2\n"})
    Git(clone.tree).run("commit", "-q", "--all", "--amend", "--no-edit")
    assert run("export", "--from", clone.tree, "v0.5.16") == 0
    told = capsys.readouterr().out
    assert f"wrote {clone.folder / '0002-patch.patch'}\n" in told
    step = "dspark-patches export v0.5.16 && dspark-patches lock v0.5.16"
    assert told.endswith(f"next: `{step}`\n")
    assert (clone.sources / TEST).read_bytes() == b"test 2\n"
    assert run("export", "--check") == 0
    assert run("lock") == 0
    locked = lock.load(RELEASE, clone.folder)
    assert locked.wheel.sha256 == SHA256
    assert locked.edited[CLOCK].result == diff.blob_id(b"evict, then tick\n")
    assert GUARD in locked.edited


def test_export_writes_what_changed_and_no_more(
    clone: Clone, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    untouched = (clone.folder / "0001-patch.patch").stat()
    write_files(clone.sources, {TEST: b"test 2\n"})
    assert run("export", "--check", "--format", "github") == 1
    told = capsys.readouterr().out
    assert "::error title=dspark-patches v0.5.16 0002-patch," in told
    assert "file=patches/v0.5.16/0002-patch.patch,line=" in told
    assert run("export") == 0
    changed = patch_file.parse((clone.folder / "0002-patch.patch").read_bytes())
    assert diff.forward(None, changed.sections[1]) == b"test 2\n"
    assert (clone.folder / "0001-patch.patch").stat() == untouched
    assert run("export", "v0.5.16") == 0
    assert capsys.readouterr().out.endswith("nothing changed\n")


def test_pull_request_texts_are_written(clone: Clone, run: Run, tmp_path: Path) -> None:
    assert run("export", "--pr", tmp_path / "texts") == 0
    texts = sorted((tmp_path / "texts" / "v0.5.16").iterdir())
    assert [path.name for path in texts] == ["0001-patch.md", "0002-patch.md"]
    assert texts[1].read_text().startswith("# Evict before the tick\n")


def test_edit_takes_a_full_checkout(clone: Clone, run: Run, tmp_path: Path) -> None:
    git = full_checkout(tmp_path / "sglang")
    options = ("--checkout", git.directory, "--to", clone.tree)
    assert run("edit", "v0.5.16", *options) == 0
    assert (clone.tree / GUARD).read_bytes() == b"guard clock\n"
    assert run("edit", "v0.5.16", *options) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["export", "--check", "--pr", "x"], "exclude one another"),
        (["export", "--from", "x"], "--from needs one RELEASE"),
        (["export", "v0.5.61"], "did you mean v0.5.16?"),
        (["edit"], "Missing argument 'RELEASE'"),
        (["lock", "0.5.16"], "no release is called '0.5.16'"),
    ],
)
def test_a_request_that_makes_no_sense_is_usage(
    run: Run, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert run(*arguments) == 2
    assert said in capsys.readouterr().err


def test_without_any_series_there_is_nothing_to_do(clone: Clone, run: Run) -> None:
    for path in clone.folder.iterdir():
        path.unlink()
    assert run("export") == 2
    assert run("lock") == 2


def test_a_broken_patch_stops_the_export(
    clone: Clone, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    (clone.folder / "0001-patch.patch").write_bytes(b"noise\n")
    assert run("export") == 3
    assert "v0.5.16/0001-patch.patch:1: there is no diff" in capsys.readouterr().err
