"""The verb ``bench`` at work, with a stand-in for the simulator."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from pathlib import Path

import pytest
from rich.progress import Progress

from dspark_patches import bases, cli, lock
from dspark_patches.bench import figures, form, job, place, worker
from dspark_patches.commands import bench as bench_verb
from dspark_patches.errors import Exit
from dspark_patches.report_bench import BenchReporter

STAND_IN = Path(__file__).with_name("stand_in.py")


@pytest.fixture
def simulator(machine):
    """The stand-in's folder, in a world of two fake releases and their series."""
    folder = machine.world.data / "test" / "model" / "decode_simulator"
    folder.mkdir(parents=True)
    shutil.copy(STAND_IN, folder / "__main__.py")
    (machine.world.data / "docs").mkdir()
    return folder


@pytest.fixture
def bench(simulator, capsys, tmp_path):
    """Run it, and read the results back as ``--from`` does."""

    def bench(*arguments):
        assert cli.main(["bench", *arguments, "--format", "json"]) == Exit.OK
        path = tmp_path / "results.json"
        path.write_text(capsys.readouterr().out)
        return form.load(path)

    return bench


def committed() -> Path:
    return bases.data_root() / "docs" / "figures"


@pytest.mark.parametrize("name", figures.SINGLE)
def test_every_figure_can_be_read_back(bench, name):
    found = bench("v0.5.16", "--jobs", "2", "--figure", name)
    assert {row.tree for row in found.rows} == {"pristine", "patched"}
    assert {row.figure for row in found.rows} == {name}


def test_the_most_that_fit_is_where_one_more_does_not(bench):
    rows = bench("v0.5.16", "--figure", "limit").rows
    assert [(row.tree, row.name, row.task["requests"]) for row in rows] == [
        ("pristine", "chunk fails", 14),
        ("pristine", "chunk fits", 13),
        ("patched", "chunk fails", 14),
        ("patched", "chunk fits", 13),
    ]


def test_the_cost_of_a_base_stands_beside_a_reference(bench, monkeypatch):
    monkeypatch.setattr(figures, "COST_REFERENCE", "v0.5.17")
    rows = [row for row in bench("v0.5.16", "--figure", "cost").rows]
    for figure, count in (("cost", 16), ("check cost", 2)):
        of = [row for row in rows if row.figure == figure]
        assert {row.tree for row in of} == {"pristine", "patched", "v0.5.17"}
        assert {next(iter(row.record.values()))["count"] for row in of} == {count}


def test_every_task_has_the_seed(bench):
    rows = bench("v0.5.16", "--figure", "growth", "--seed", "7").rows
    assert {row.task["seed"] for row in rows} == {7}


def test_a_seed_that_results_cannot_hold_ends_with_2(simulator, refused):
    told = refused("v0.5.16", "--seed", str(2**70))
    assert told.startswith("2\n")
    assert "Invalid value for '--seed'" in told


def test_readme_keeps_what_it_had(simulator):
    for figure in ("growth", "limit"):
        assert cli.main(["bench", "--figure", figure, "--readme"]) == Exit.OK
    kept = {row.figure for row in form.load(committed() / "results.json").rows}
    assert kept == {"growth", "limit"}
    assert (committed() / "growth-short.md").read_text().count("v0.5.1") == 2
    assert (committed() / "requests.svg").exists()


def test_two_at_once_keep_the_rows_of_both(start, simulator):
    names = ("growth", "limit")
    both = [start("bench", "--figure", name, "--readme") for name in names]
    assert [process.wait(timeout=120) for process in both] == [Exit.OK, Exit.OK]
    kept = {row.figure for row in form.load(committed() / "results.json").rows}
    assert kept == set(names)


def test_readme_takes_away_what_is_made_no_more(simulator):
    committed().mkdir()
    for name in ("limit.md", "old.svg", "notes.txt"):
        (committed() / name).touch()
    assert cli.main(["bench", "--figure", "growth", "--readme"]) == Exit.OK
    assert {path.name for path in committed().iterdir()} == {
        *("results.json", "figures.md", "growth-short.md", "notes.txt"),
        *("swa-growth.svg", "swa-growth.png"),
    }


def test_readme_does_not_follow_a_link(simulator, refused, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    committed().symlink_to(tmp_path / "elsewhere")
    (simulator / "die").touch()
    assert f"{committed()} is a link" in refused("v0.5.16", "--readme")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_readme_leaves_folders_alone(simulator):
    (committed() / "mine.svg").mkdir(parents=True)
    assert cli.main(["bench", "--figure", "growth", "--readme"]) == Exit.OK
    assert (committed() / "mine.svg").is_dir()


def test_results_name_the_patches_that_they_were_made_with(machine, simulator):
    options = job.Options(figures=("growth",))
    base = bases.find("v0.5.16")
    before = place.release(base)
    run = job.Run([base], options, BenchReporter("text", Progress(disable=True)))
    run.run()
    path = lock.path_of(base)
    # A lock of other tests alone is none of other patches.
    path.write_bytes(path.read_bytes() + b"\n")
    assert place.release(base) == before
    results = re.sub(
        rb'result = "[0-9a-f]+"', b'result = "%040d"' % 1, path.read_bytes()
    )
    path.write_bytes(results)
    assert place.release(base) != before
    assert run.results().releases == {"v0.5.16": before}


def test_an_interruption_comes_when_the_docs_are_written(simulator, monkeypatch):
    write = bench_verb.replace_all

    def interrupted(changes):
        os.kill(os.getpid(), signal.SIGINT)
        write(changes)

    monkeypatch.setattr(bench_verb, "replace_all", interrupted)
    # A shell's background job, as which these tests may run, ignores it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        status = cli.main(["bench", "v0.5.16", "--figure", "growth", "--readme"])
    finally:
        signal.signal(signal.SIGINT, before)
    assert status == Exit.INTERRUPTED
    assert form.load(committed() / "results.json").rows


def test_readme_reads_what_it_had_before_it_runs(simulator, refused):
    committed().mkdir()
    (committed() / "results.json").write_text("{")
    (simulator / "die").touch()
    told = refused("v0.5.16", "--readme")
    assert "results.json cannot be read as results" in told
    assert "next: remove it, and make it again with" in told


def test_nothing_is_run_that_could_not_be_written(simulator, refused, tmp_path):
    (simulator / "die").touch()
    (tmp_path / "file").touch()
    told = refused("v0.5.16", "--plot", str(tmp_path / "file" / "plots"))
    assert "plots cannot be written" in told


def test_nothing_is_run_that_could_not_be_drawn(simulator, refused, no_matplotlib):
    (simulator / "die").touch()
    assert "pictures need matplotlib" in refused("v0.5.16", "--readme")


def test_a_process_that_dies_ends_with_3_and_its_last_words(simulator, refused):
    (simulator / "die").touch()
    told = refused("v0.5.16", "--figure", "growth")
    assert told.startswith("3\n")
    assert "error: the simulator ended with status 1" in told
    assert "cause: out of luck" in told


def test_a_process_that_was_killed_or_hangs_is_told(
    simulator, refused, monkeypatch, tmp_path
):
    (simulator / "hang").touch()
    with monkeypatch.context() as patched:
        patched.setattr(worker, "SILENCE", 3.0)
        told = refused("v0.5.16", "--figure", "capacity")
    assert told.startswith("3\n")
    assert "error: the simulator told nothing for 3 s in" in told
    (simulator / "hang").unlink()
    (simulator / "killed").touch()
    told = refused("v0.5.16", "--figure", "capacity")
    assert "error: the simulator ended with status -9" in told
    assert "next: run again, with fewer --jobs" in told


def test_a_process_that_died_between_two_tasks_is_told_too(simulator, refused):
    (simulator / "leave").touch()
    told = refused("v0.5.16", "--figure", "growth", "--figure", "limit")
    assert told.startswith("3\n")
    assert "error: the simulator ended with status 0" in told


def test_a_task_that_raises_is_a_bug_and_loses_nothing(
    simulator, refused, monkeypatch, tmp_path
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (simulator / "fail").touch()
    two = ("--figure", "growth", "--figure", "limit")
    told = refused("v0.5.16", *two, "--readme")
    assert told.startswith("70\n")
    assert {row.figure for row in form.load(committed() / "results.json").rows} == {
        "growth"
    }


def test_what_nobody_asked_to_write_is_kept(simulator, refused, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (simulator / "killed").touch()
    told = refused("v0.5.16", "--figure", "growth", "--figure", "limit")
    assert told.startswith("3\n")
    (kept,) = tmp_path.rglob("bench-*.json")
    assert f"they are kept, for --from: {kept}" in told
    assert {row.figure for row in form.load(kept).rows} == {"growth"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("wanted", ["json", "readme", "nothing"])
def test_an_interruption_ends_every_process_and_keeps_the_rest(
    simulator, start, number, wanted
):
    (simulator / "hang").touch()
    asked = {"json": ["--format", "json"], "readme": ["--readme"], "nothing": []}
    two = ["--figure", "growth", "--figure", "capacity", "--jobs", "2"]
    process = start("bench", "v0.5.16", *two, *asked[wanted])
    hung = simulator / "hung"
    while not hung.exists() or len(hung.read_text().split()) < 2:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == Exit.INTERRUPTED
    assert "Traceback" not in errors
    for pid in map(int, hung.read_text().split()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert not list(start.scratch.iterdir())
    path = committed() / "results.json"
    if wanted == "json":
        assert len(json.loads(output)["rows"]) == 2
    elif wanted == "readme":
        assert len(form.load(path).rows) == 2
    else:
        assert (output, path.exists()) == ("", False)
