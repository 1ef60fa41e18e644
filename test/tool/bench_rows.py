"""Results of the bench, made up."""

from __future__ import annotations

from dspark_patches.bench import figures, results
from dspark_patches.bench.results import Host, Release, Results, Row
from dspark_patches.bench.tables.load import SHOWN

RELEASE = Release(version="0.5.16", wheel_sha256="a" * 64, series_blob="b" * 40)
HOST = Host(python="3.11.7", torch="2.13.0", platform="Linux x86_64")
FULL = figures.CAPACITY_FULL


def growth(base="v0.5.16", tree="pristine", cache="chunk", peak=77_824) -> Row:
    record = dict(
        steps=10,
        output_tokens=77_811,
        outcome="aborted",
        swa_peak=peak,
        full_peak=peak,
        swa_samples=[[0, 256], [3_000, 3_072], [4_000, 4_096]],
    )
    if tree == "patched":
        record |= dict(output_tokens=100_000, outcome="finished")
    task = dict(node=figures.node(figures.REPORTED_FULL), seed=0)
    return row("growth", base, tree, cache, record, task)


def together(figure, tree, name, requests, fit, swa=None, full=1_000, base="v0.5.16"):
    """A row of ``capacity`` or ``limit``; all of the SWA pool unless told."""
    node = figures.node(FULL)
    record = dict(
        steps=9,
        fit=fit,
        most_running=requests,
        swa_peak=node["swa_size"] if swa is None else swa,
        full_peak=full,
    )
    task = dict(node=node, seed=0, requests=requests)
    return row(figure, base, tree, name, record, task)


def load(tree, dead_swa, name=SHOWN, retracted=40) -> Row:
    sample = dict(
        decode_steps=2_000,
        retracted=retracted,
        aborted=0,
        finished=100,
        reprefilled_tokens=3_000,
    )
    record = dict(
        hit_rate=0.25,
        prefilled_tokens=10,
        mean_running=20.0,
        output_tokens=5,
        dead_swa=list(map(list, dead_swa)),
        samples=[sample],
    )
    task = dict(node=figures.node(figures.REPORTED_FULL), seed=0)
    return row("retraction", "v0.5.16", tree, name, record, task)


def overload(tree, died) -> Row:
    counts = ("finished", "aborted", "retracted", "decode_steps")
    record = dict.fromkeys(counts, 4) | dict(died=died)
    task = dict(node=figures.node(FULL), seed=0, requests=96)
    return row("pd", "v0.5.16", tree, "without", record, task)


def summary(median, **other):
    """Of nanoseconds, from microseconds."""
    return dict(
        count=8,
        median=median * 1e3,
        mean=median * 1e3,
        p99=median * 2e3,
        max=median * 3e3,
    ) | {name: value * 1e3 for name, value in other.items()}


def cost(tree, median, requests=256, base="v0.5.16") -> Row:
    record = dict(nanoseconds=summary(median))
    task = dict(node=figures.node(FULL), seed=0, requests=requests)
    return row("cost", base, tree, str(requests), record, task)


def check_cost(tree, short, requests=8) -> Row:
    record = dict(
        fits=summary(20),
        short=summary(short),
        short_again=summary(28),
        reclaimed=summary(0.5),
    )
    task = dict(node=figures.node(FULL), seed=0, requests=requests)
    return row("check cost", "v0.5.16", tree, str(requests), record, task)


def row(figure, base, tree, name, record, task) -> Row:
    return Row(
        figure=figure,
        base=base,
        tree=tree,
        name=name,
        task=task,
        record=record,
        cpu_seconds=1.5,
    )


def found(*rows: Row, release: Release = RELEASE) -> Results:
    return Results(
        form=results.FORM,
        tool="1",
        host=HOST,
        releases={row.base: release for row in rows},
        rows=rows,
    )


def every_figure() -> Results:
    """Rows of every figure that has a picture, before and after."""
    trees = ("pristine", "patched")
    rows = [growth(tree=tree) for tree in trees]
    for tree in trees:
        rows += [
            together("limit", tree, "chunk fits", 11, fit=True),
            together("limit", tree, "chunk fails", 12, fit=False),
            load(tree, [(0, 0)]),
            *(cost(tree, 10, requests) for requests in figures.COST_REQUESTS),
        ]
    return found(*rows)
