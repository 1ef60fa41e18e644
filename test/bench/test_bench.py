"""The bench at work, with a stand-in for the simulator and for SGLang."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench import __main__ as bench
from bench import docs, figures, place, run, worker
from bench.results import TREES, encode, load
from dspark_patches.errors import Exit

# The bench in a process of its own, in the same world.
IN_WORLD = """
import sys
from pathlib import Path
from bench import __main__, docs, place, worker
root = Path(sys.argv.pop(1))
docs.FOLDER = root / "figures"
worker.SIMULATOR = root
place.Place.tree = lambda self, tag, kind: root
__main__.main()
"""


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A folder that is every release's tree, with the stand-in and the figures."""
    for folder in ("figures", "decode_simulator", "python/sglang", "scratch"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "python/sglang/__init__.py").touch()
    stand_in = Path(__file__).with_name("stand_in.py")
    shutil.copy(stand_in, tmp_path / "decode_simulator" / "__main__.py")
    monkeypatch.setattr(docs, "FOLDER", tmp_path / "figures")
    monkeypatch.setattr(worker, "SIMULATOR", tmp_path)
    monkeypatch.setattr(place.Place, "tree", lambda self, tag, kind: tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    return tmp_path


@pytest.fixture
def scripts_bench(world):
    def scripts_bench(*arguments, status=Exit.OK) -> str:
        done = CliRunner().invoke(bench.command, arguments)
        assert done.exit_code == status, done.output
        assert not list((world / "scratch").iterdir())
        return done.output

    return scripts_bench


def known():
    return load(docs.FOLDER / docs.RESULTS)


@pytest.mark.parametrize("name", figures.FIGURES)
def test_every_figure_is_run_tabled_drawn_and_made_alike(scripts_bench, name):
    figure = figures.FIGURES[name]
    scripts_bench("v0.5.16", "--figure", name, "--jobs", "2", "--readme")
    assert {row.tree for row in known().rows} == {*TREES, *figure.beside}
    assert name not in known().releases["v0.5.16"]["missing"]
    names = [f"{name}.svg"] * bool(figure.alt) + [f"{name}.md"] * bool(figure.shown)
    made = {path.name: path.read_bytes() for path in docs.FOLDER.iterdir()}
    assert {"results.json", "figures.md", *names} <= made.keys()
    assert b"v0.5.16" in made.get(f"{name}.md", b"v0.5.16")
    assert b" | v0.5.16 | " in made["figures.md"]
    scripts_bench("--redraw")
    assert made == {path.name: path.read_bytes() for path in docs.FOLDER.iterdir()}


def test_trees_that_are_timed_take_turns(scripts_bench):
    scripts_bench("v0.5.16", "v0.5.23", "--figure", "cost", "--readme")
    counts = {row.record["nanoseconds"]["count"] for row in known().rows}
    assert counts == {2 * figures.FIGURES["cost"].rounds}
    trees = {(row.release, row.tree) for row in known().rows}
    assert ("v0.5.16", "v0.5.23") in trees
    assert ("v0.5.23", "v0.5.23") not in trees


def test_few_figures_are_made_of_every_release(scripts_bench):
    scripts_bench("v0.5.17", "--readme")
    assert {row.figure for row in known().rows} == {"growth", "retraction", "pd"}
    assert known().releases["v0.5.17"]["missing"] == []


def test_a_part_is_made_again_and_the_rest_kept(scripts_bench, world, monkeypatch):
    for release in ("v0.5.16", "v0.5.17"):
        scripts_bench(release, "--figure", "growth", "--figure", "pd", "--readme")
    before = known().rows
    stand_in = world / "decode_simulator" / "__main__.py"
    stand_in.write_text(stand_in.read_text().replace("steps=9", "steps=8"))
    scripts_bench("v0.5.16", "--figure", "growth", "--readme")
    again = [row for row in known().rows if row.record.get("steps") == 8]
    assert [row.tree for row in again] == [*TREES, *TREES]
    others = [row for row in before if row.key[:2] != ("growth", "v0.5.16")]
    assert [row for row in known().rows if row not in again] == others


def test_rows_of_other_patches_are_dropped(scripts_bench, monkeypatch):
    for release in ("v0.5.16", "v0.5.17"):
        scripts_bench(release, "--figure", "growth", "--readme")
    served = {"wheel_sha256": "1", "series_blob": "2"}
    monkeypatch.setattr(run, "served", lambda release: served)
    scripts_bench("v0.5.16", "--figure", "pd", "--readme")
    figure = {row.release: row.figure for row in known().rows}
    assert figure == {"v0.5.16": "pd", "v0.5.17": "growth"}
    release = known().releases["v0.5.16"]
    missing = release.pop("missing")
    assert release == served and "growth" in missing and "pd" not in missing


def test_what_is_made_no_more_is_taken_away(scripts_bench, world):
    for name in ("old.md", "old.svg", "notes.txt"):
        (world / "figures" / name).touch()
    scripts_bench("v0.5.16", "--figure", "growth", "--readme")
    names = {path.name for path in docs.FOLDER.iterdir()}
    made = {f"{name}.md" for name, each in figures.FIGURES.items() if each.shown}
    assert names == made | {"figures.md", "growth.svg", "results.json", "notes.txt"}


def test_without_readme_nothing_is_written(scripts_bench, world):
    told = scripts_bench("v0.5.16", "--figure", "growth")
    assert "| chunk | v0.5.16 | aborted at 500 | 512 |" in told
    assert not list((world / "figures").iterdir())


def test_an_unknown_release_ends_with_2(scripts_bench):
    assert "v0.5.16" in scripts_bench("v0.5.1", status=Exit.USAGE)


def test_two_do_not_write_at_once(scripts_bench):
    with docs.alone():
        told = scripts_bench("--readme", status=Exit.PRECONDITION)
    assert "another bench writes" in told


def test_a_process_that_dies_is_told_with_its_last_words(scripts_bench, world):
    (world / "decode_simulator" / "die").touch()
    two = ("--figure", "growth", "--figure", "pd")
    told = scripts_bench("v0.5.16", *two, "--readme", status=Exit.PRECONDITION)
    assert "error: the simulator ended with status 1" in told
    assert "cause: out of luck" in told
    assert {row.figure for row in known().rows} == {"growth"}


def test_a_task_that_raises_loses_nothing(scripts_bench, world):
    (world / "decode_simulator" / "fail").touch()
    two = ("--figure", "growth", "--figure", "pd")
    # Not 0, with a traceback: a bug.
    told = scripts_bench("v0.5.16", *two, "--readme", status=1)
    assert "| chunk | v0.5.16 |" in told
    assert {row.figure for row in known().rows} == {"growth"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_ends_every_process_and_keeps_what_is_there(world, number):
    (world / "decode_simulator" / "hang").touch()
    three = ["--figure", "growth", "--figure", "pd", "--jobs", "2", "--readme"]
    process = subprocess.Popen(
        [sys.executable, "-c", IN_WORLD, str(world), "v0.5.16", *three],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background job, as which these tests may run, ignores SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    hung = world / "decode_simulator" / "hung"
    while not hung.exists() or len(hung.read_text().split()) < 2:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(number)
    _, errors = process.communicate()
    assert process.returncode == Exit.INTERRUPTED
    assert "Traceback" not in errors
    for pid in map(int, hung.read_text().split()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert len(known().rows) == 4
    assert "| v0.5.16 | aborted" in (docs.FOLDER / "growth.md").read_text()


COMMITTED = Path(__file__).resolve().parents[2] / "docs" / "figures"


def test_the_docs_are_made_from_the_committed_results():
    results = load(COMMITTED / docs.RESULTS)
    assert encode(results) == (COMMITTED / docs.RESULTS).read_bytes()
    for tag, release in results.releases.items():
        assert release["missing"] == docs.missing(results, tag)
    texts = docs.texts(results)
    assert {path.name for path in COMMITTED.glob("*.md")} == set(texts)
    for name, text in texts.items():
        assert (COMMITTED / name).read_text(encoding="utf-8") == text, name
    drawn = {name for name, figure in figures.FIGURES.items() if figure.alt}
    assert {path.stem for path in COMMITTED.glob("*.svg")} == drawn
