"""The verb ``bench`` from the outside, with a stand-in for the simulator."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
from bench_rows import every_figure, found, growth, load, row

from dspark_patches import bases, cli
from dspark_patches.bench import form, results
from dspark_patches.errors import Exit

STAND_IN = Path(__file__).with_name("stand_in.py")


@pytest.fixture
def saved(tmp_path):
    """Save results, or any bytes; the file's path."""

    def saved(content) -> str:
        path = tmp_path / "some.json"
        raw = content if isinstance(content, bytes) else results.save(content)
        path.write_bytes(raw)
        return str(path)

    return saved


@pytest.fixture
def simulator(machine):
    """The stand-in's folder, in a world of two fake releases and their series."""
    folder = machine.world.data / "test" / "model" / "decode_simulator"
    folder.mkdir(parents=True)
    shutil.copy(STAND_IN, folder / "__main__.py")
    (machine.world.data / "docs").mkdir()
    return folder


def fails(capsys, *arguments) -> str:
    """What a run that cannot be done says; its status comes first."""
    status = cli.main(["bench", *arguments])
    told = capsys.readouterr()
    assert told.out == ""
    assert "Traceback" not in told.err
    return f"{int(status)}\n{told.err}"


def changed(good, **other):
    """``good``, its record otherwise."""
    record = {k: v for k, v in (good.record | other).items() if v is not None}
    return row(good.figure, good.base, good.tree, good.name, record, good.task)


BAD = {
    "not JSON": (b"{", "cannot be read as results"),
    "cut off": (results.save(found(growth()))[:300], "cannot be read as results"),
    "no text": (b"\xff\xfe", "cannot be read as results"),
    "other": (b'{"form": 1}', "missing required field"),
    "figure": (
        found(row("speed", "v0.5.16", "pristine", "x", {}, {})),
        "row 1, speed, v0.5.16, pristine, x: there is no figure 'speed'",
    ),
    "name": (found(load("patched", [], name="a load")), "has no row 'a load'"),
    "tree": (found(growth(tree="mine")), "'mine' is no tree"),
    "base": (found(growth(base="newest")), "'newest' is none of the file's releases"),
    "field": (
        found(growth(), changed(growth(tree="patched"), swa_peak=None)),
        "row 2, growth, v0.5.16, patched, chunk: its record: Object missing required",
    ),
    "no samples": (found(changed(growth(), swa_samples=[])), "of length >= 1"),
    "task": (
        found(row("growth", "v0.5.16", "patched", "chunk", growth().record, {})),
        "its task: Object missing required field `node`",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_file_that_is_no_result_ends_with_3(capsys, saved, case):
    content, expected = BAD[case]
    told = fails(capsys, "--from", saved(content))
    assert told.startswith("3\n")
    assert expected in told
    assert "next: make them again with `dspark-patches bench --readme`" in told


def test_a_file_that_is_not_there_ends_with_2(capsys):
    assert "does not exist" in fails(capsys, "--from", "/no/such/file")


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["v0.5.16"], "BASE"),
        (["--figure", "growth"], "--figure"),
        (["--seed", "0"], "--seed"),
        (["--jobs", "1", "v0.5.16"], "BASE and --jobs"),
    ],
)
def test_from_runs_nothing(capsys, saved, more, named):
    told = fails(capsys, "--from", saved(found(growth())), *more)
    assert told.startswith("2\n")
    assert f"--from runs nothing, and {named} would say what to run" in told


def test_some_figures_are_shown_and_drawn(capsys, saved, tmp_path):
    plots = tmp_path / "new" / "plots"
    arguments = ["bench", "--from", saved(found(growth())), "--plot", str(plots)]
    assert cli.main(arguments) == Exit.OK
    assert "aborted at 77,811 -> ?" in capsys.readouterr().out
    assert {path.name for path in plots.iterdir()} == {
        "swa-growth.svg",
        "swa-growth.png",
    }


def test_what_cannot_be_drawn_is_said(capsys, saved, tmp_path):
    source = saved(found(growth(cache="radix")))
    assert cli.main(["bench", "--from", source, "--plot", str(tmp_path)]) == Exit.OK
    assert "there is nothing to draw" in capsys.readouterr().err


def test_every_picture_is_drawn_the_same_twice(saved, tmp_path):
    source = saved(every_figure())
    for name in ("one", "two"):
        arguments = ["bench", "--from", source, "--plot", str(tmp_path / name)]
        assert cli.main(arguments) == Exit.OK
    one = {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()}
    two = {path.name: path.read_bytes() for path in (tmp_path / "two").iterdir()}
    assert one == two
    stems = ("swa-growth", "requests", "retractions", "cost")
    assert set(one) == {f"{s}.{suffix}" for s in stems for suffix in ("svg", "png")}


def without_matplotlib(monkeypatch):
    monkeypatch.delitem(sys.modules, "dspark_patches.bench.plots", raising=False)
    monkeypatch.delattr("dspark_patches.bench.plots", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)


def test_without_matplotlib_it_says_what_to_install(
    capsys, saved, monkeypatch, tmp_path
):
    without_matplotlib(monkeypatch)
    source = saved(found(growth()))
    told = fails(capsys, "--from", source, "--plot", str(tmp_path / "plots"))
    assert told.startswith("3\n")
    assert "next: install it: pip install 'dspark-patches[bench]'" in told
    assert cli.main(["bench", "--from", source]) == Exit.OK


@pytest.mark.parametrize("where", ["file", "file/plots"])
def test_a_folder_that_cannot_be_written_is_named(capsys, saved, tmp_path, where):
    (tmp_path / "file").touch()
    plots = tmp_path / where
    told = fails(capsys, "--from", saved(found(growth())), "--plot", str(plots))
    assert told[0] == ("2" if where == "file" else "3")
    assert str(plots) in told


def test_nothing_is_run_that_could_not_be_written(
    capsys, simulator, monkeypatch, tmp_path
):
    (simulator / "die").touch()
    (tmp_path / "file").touch()
    told = fails(capsys, "v0.5.16", "--plot", str(tmp_path / "file" / "plots"))
    assert "plots cannot be written" in told
    without_matplotlib(monkeypatch)
    assert "pictures need matplotlib" in fails(capsys, "v0.5.16", "--readme")


def test_runs_every_figure_on_both_trees(capsys, simulator):
    assert cli.main(["bench", "v0.5.16", "--jobs", "2", *ALL_BUT_COST]) == Exit.OK
    out = capsys.readouterr().out
    assert "aborted at 500" in out
    assert "most that fit" in out
    assert "1 of 2" in out


ALL_BUT_COST = [
    argument
    for name in ("growth", "capacity", "limit", "retraction")
    for argument in ("--figure", name)
]


def test_a_process_that_dies_ends_with_3_and_its_last_words(capsys, simulator):
    (simulator / "die").touch()
    told = fails(capsys, "v0.5.16", "--figure", "growth")
    assert told.startswith("3\n")
    assert "error: the simulator ended with status 1" in told
    assert "cause: out of luck" in told


def test_json_is_what_from_reads(capsys, simulator, tmp_path):
    arguments = ["bench", "v0.5.16", "--figure", "limit", "--format", "json"]
    assert cli.main(arguments) == Exit.OK
    path = tmp_path / "results.json"
    path.write_text(capsys.readouterr().out)
    rows = form.load(path).rows
    assert [(each.tree, each.name, each.task["requests"]) for each in rows] == [
        ("pristine", "chunk fails", 14),
        ("pristine", "chunk fits", 13),
        ("patched", "chunk fails", 14),
        ("patched", "chunk fits", 13),
    ]


def test_readme_keeps_what_it_had(capsys, simulator):
    for figure in ("growth", "limit"):
        assert cli.main(["bench", "--figure", figure, "--readme"]) == Exit.OK
    figures = bases.data_root() / "docs" / "figures"
    kept = {each.figure for each in form.load(figures / "results.json").rows}
    assert kept == {"growth", "limit"}
    assert (figures / "growth-short.md").read_text().count("v0.5.1") == 2
    assert (figures / "requests.svg").exists()


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
    path = bases.data_root() / "docs" / "figures" / "results.json"
    if wanted == "json":
        assert len(json.loads(output)["rows"]) == 2
    elif wanted == "readme":
        assert len(form.load(path).rows) == 2
    else:
        assert (output, path.exists()) == ("", False)
