"""The verb ``bench`` with results that are there: read, refused, shown and drawn."""

from __future__ import annotations

import os
import subprocess
import sys

import matplotlib
import msgspec
import pytest
from bench_rows import (
    HOST,
    RELEASE,
    every_figure,
    found,
    growth,
    load,
    overload,
    row,
)

from dspark_patches import cli
from dspark_patches.bench import results
from dspark_patches.errors import Exit


@pytest.fixture
def saved(tmp_path):
    """Save results, or any bytes; the file's path."""

    def saved(content) -> str:
        path = tmp_path / "some.json"
        raw = content if isinstance(content, bytes) else results.save(content)
        path.write_bytes(raw)
        return str(path)

    return saved


def changed(good, **other):
    """``good``, its record otherwise."""
    record = {k: v for k, v in (good.record | other).items() if v is not None}
    return row(good.figure, good.base, good.tree, good.name, record, good.task)


def on(good, **node):
    """``good``, its pools otherwise."""
    task = good.task | {"node": good.task["node"] | node}
    return row(good.figure, good.base, good.tree, good.name, good.record, task)


def told_of(**other):
    return msgspec.structs.replace(found(growth()), **other)


NESTED = b'"task":{"deep":' + b"[" * 10_000 + b"]" * 10_000 + b","
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
    "base": (
        told_of(releases={"v0.5.9": RELEASE}),
        "'v0.5.16' is none of the file's releases",
    ),
    "field": (
        found(growth(), changed(growth(tree="patched"), swa_peak=None)),
        "row 2, growth, v0.5.16, patched, chunk: its record: Object missing required",
    ),
    "no samples": (found(changed(growth(), swa_samples=[])), "of length >= 1"),
    "task": (
        found(row("growth", "v0.5.16", "patched", "chunk", growth().record, {})),
        "its task: Object missing required field `node`",
    ),
    "nested": (
        results.save(found(growth())).replace(b'"task":{', NESTED),
        "cannot be read as results",
    ),
    "no rows": (found(), "there are no rows"),
    "other release": (told_of(releases={"newest": RELEASE}), "'newest' is no release"),
    "long release": (
        told_of(releases={"v0." + "9" * 5_000: RELEASE}),
        f"'v0.{'9' * 57}...' is no release",
    ),
    "tool": (told_of(tool="1 <!-- end -->"), "is no version"),
    "host": (
        told_of(host=msgspec.structs.replace(HOST, platform="Linux\n# |")),
        "'Linux\\n# |' is no version",
    ),
    "another tree": (found(growth(tree="v0.5.18")), "'v0.5.18' is no tree"),
    "long name": (
        found(row("cost", "v0.5.16", "patched", "9" * 5_000, {}, {})),
        f"cost has no row '{'9' * 60}...'",
    ),
    "huge": (found(growth(peak=10**400)), "its record: Expected `int` <= "),
    "negative": (found(changed(growth(), steps=-1)), "its record: Expected `int` >= 0"),
    "outcome": (found(changed(growth(), outcome="a|<!-- end -->")), "its record: "),
    "died": (found(overload("pristine", "| x\n\x1b[2J")), "its record: "),
    "huge pool": (found(on(growth(), swa_size=10**400)), "its task: Expected `int` <="),
    "window": (found(on(growth(), sliding_window="|\n")), "its task: Expected `int`"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_file_that_is_no_result_ends_with_3(refused, saved, case):
    content, expected = BAD[case]
    told = refused("--from", saved(content))
    assert told.startswith("3\n")
    assert expected in told
    assert "next: name another file; `dspark-patches bench --format json`" in told


def test_a_file_that_is_not_there_ends_with_2(refused):
    assert "does not exist" in refused("--from", "/no/such/file")


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["v0.5.16"], "BASE"),
        (["--figure", "growth"], "--figure"),
        (["--seed", "0"], "--seed"),
        (["--jobs", "1", "v0.5.16"], "BASE and --jobs"),
    ],
)
def test_from_runs_nothing(refused, saved, more, named):
    told = refused("--from", saved(found(growth())), *more)
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


def test_no_setting_of_the_user_s_reaches_the_pictures(saved, tmp_path):
    source = saved(found(growth()))
    mine = {"axes.facecolor": "red", "svg.fonttype": "none", "font.size": 30}
    for name, settings in (("one", {}), ("two", mine)):
        arguments = ["bench", "--from", source, "--plot", str(tmp_path / name)]
        with matplotlib.rc_context(settings):
            assert cli.main(arguments) == Exit.OK
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_a_matplotlib_that_does_not_start_is_no_bug_of_ours(saved, tmp_path):
    command = [sys.executable, "-m", "dspark_patches", "bench"]
    more = ["--from", saved(found(growth())), "--plot", str(tmp_path)]
    done = subprocess.run(
        command + more,
        env=os.environ | {"MPLBACKEND": "nonsense"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == Exit.PRECONDITION
    assert "next: unset MPLBACKEND" in done.stderr


def test_without_matplotlib_it_says_what_to_install(
    refused, saved, no_matplotlib, tmp_path
):
    source = saved(found(growth()))
    told = refused("--from", source, "--plot", str(tmp_path / "plots"))
    assert told.startswith("3\n")
    assert "next: install it: pip install 'dspark-patches[bench]'" in told
    assert cli.main(["bench", "--from", source]) == Exit.OK


@pytest.mark.parametrize("where", ["file", "file/plots"])
def test_a_folder_that_cannot_be_written_is_named(refused, saved, tmp_path, where):
    (tmp_path / "file").touch()
    plots = tmp_path / where
    told = refused("--from", saved(found(growth())), "--plot", str(plots))
    assert told[0] == ("2" if where == "file" else "3")
    assert str(plots) in told
