"""The pictures, as SVG."""

from __future__ import annotations

import io
from collections.abc import Callable

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot, ticker  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

from .cells import REFERENCES  # noqa: E402
from .figures import FIGURES, LOAD_STEPS, LOADS  # noqa: E402
from .results import PATCHED, RELEASED, TREES, Results, Row  # noqa: E402

# Told apart by those who do not tell red from green, and on grey paper.
_COLOURS = {RELEASED: "#d55e00", PATCHED: "#0072b2", REFERENCES[0]: "#777777"}
_LABELS = {RELEASED: "as released", PATCHED: "patched"}
_QUIET = "#555555"
_WIDTH = 8.6
_STYLE = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "figure.titlesize": 12,
    "font.size": 10,
    "grid.color": "#e4e4e4",
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    # The same bytes each time.
    "svg.hashsalt": "dspark-patches",
}
_THOUSANDS = ticker.FuncFormatter(lambda value, _: f"{value:,.0f}")


def draw(results: Results) -> dict[str, bytes]:
    """Every picture that the results have rows for, by figure."""
    made = {}
    with matplotlib.rc_context():
        # No setting of the user's reaches the pictures.
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        for name, drawn in _PICTURES.items():
            rows = [row for row in results.rows if row.figure == name]
            if rows:
                stream, figure = io.BytesIO(), drawn(rows)
                # A date would change the file without a change of the figure.
                none = {"Date": None, "Creator": None}
                figure.savefig(stream, format="svg", metadata=none)
                pyplot.close(figure)
                made[name] = stream.getvalue()
    return made


def _growth(rows: list[Row]) -> Figure:
    """SWA tokens in use against generated tokens, with the pool's limit."""
    release, shown = rows[0].release, FIGURES["growth"].shown
    rows = [row for row in rows if (row.release, row.name) == (release, shown)]
    limit = rows[0].task["node"]["swa_size"]
    figure, axes = pyplot.subplots(figsize=(_WIDTH, 4), layout="constrained")
    axes.axhline(limit, color=_QUIET, linestyle="--", linewidth=1)
    above = dict(color=_QUIET, transform=axes.get_yaxis_transform())
    axes.text(0.01, limit * 1.02, f"the SWA pool: {limit:,} tokens", **above)
    for row in rows:
        _generation(axes, row)
    axes.set_title(f"{release}: sliding-window KV of one generation", fontsize=12)
    axes.set_xlabel("generated tokens")
    axes.set_ylabel("SWA tokens in use")
    axes.set_ylim(0, limit * 1.12)
    axes.set_xlim(left=0)
    axes.grid(False)
    _thousands(axes)
    axes.legend(loc="upper left", bbox_to_anchor=(0, 0.87))
    return figure


def _generation(axes: Axes, row: Row) -> None:
    record, colour = row.record, _COLOURS[row.tree]
    tokens, swa = zip(*record["swa_samples"])
    if record["outcome"] != "finished":
        tokens, swa = (*tokens, record["output_tokens"]), (*swa, record["swa_peak"])
        axes.plot(tokens[-1], swa[-1], "X", color=colour, markersize=9, clip_on=False)
    ended = f"{record['outcome']} at {record['output_tokens']:,}"
    label = f"{_LABELS[row.tree]}: {ended}, at most {record['swa_peak']:,}"
    axes.plot(tokens, swa, color=colour, label=label)


def _capacity(rows: list[Row]) -> Figure:
    """The most requests without a retraction, per release."""
    releases = list(dict.fromkeys(row.release for row in rows))
    figure, axes = pyplot.subplots(figsize=(_WIDTH, 3), layout="constrained")
    for place, tree in enumerate(TREES):
        bars = [row for row in rows if row.tree == tree]
        drawn = axes.barh(
            [releases.index(row.release) + (place - 0.5) * 0.38 for row in bars],
            [row.record["most"] for row in bars],
            0.36,
            color=_COLOURS[tree],
            label=_LABELS[tree],
        )
        axes.bar_label(drawn, padding=2)
    axes.set_yticks(range(len(releases)), releases)
    axes.invert_yaxis()
    title = "The most requests (1,024 in, 32,768 out) that run without a retraction"
    axes.set_title(title, fontsize=12, pad=26)
    axes.set_xlabel("requests")
    axes.grid(False)
    axes.legend(loc="lower left", ncols=2, bbox_to_anchor=(-0.01, 0.99))
    return figure


def _retraction(rows: list[Row]) -> Figure:
    """Retractions so far against decode steps, per load and with the cache that every
    release has and that shares prefixes."""
    shown = _ends(rows)
    size = dict(figsize=(_WIDTH, 0.9 + 2.2 * len(shown)), layout="constrained")
    figure, grid = pyplot.subplots(
        len(shown), len(LOADS), squeeze=False, sharex=True, **size
    )
    for line, release in zip(grid, shown):
        for axes, load in zip(line, LOADS):
            for row in rows:
                if (row.release, row.name) == (release, f"{load}, unified"):
                    samples = row.record["samples"]
                    points = [(s["decode_steps"], s["retracted"]) for s in samples]
                    _line(axes, row.tree, points)
            if release == shown[0]:
                axes.set_title(load.replace(", ", "\n"), fontsize=9)
            axes.yaxis.set_major_locator(ticker.MaxNLocator(4, integer=True))
            axes.set_xticks((0, LOAD_STEPS // 2, LOAD_STEPS))
            axes.set_ylim(bottom=0)
            _thousands(axes)
        line[0].set_ylabel(release)
    figure.suptitle("Retractions so far, under a sustained load", x=0.01, ha="left")
    figure.supxlabel("decode steps", fontsize=10)
    _legend(figure, grid[0][0])
    return figure


def _cost(rows: list[Row]) -> Figure:
    """The median preparation against requests."""
    shown = _ends(rows)
    size = dict(figsize=(_WIDTH, 3.4), layout="constrained")
    figure, (line,) = pyplot.subplots(1, len(shown), squeeze=False, sharey=True, **size)
    for axes, release in zip(line, shown):
        for tree in (REFERENCES[0], *TREES):
            points = [
                (int(row.name), row.record["nanoseconds"]["median"] / 1e3)
                for row in rows
                if (row.release, row.tree) == (release, tree)
            ]
            if points:
                _line(axes, tree, points, "o-")
        axes.set_title(release)
        axes.set_xscale("log", base=2)
        axes.set_xticks(sorted({int(row.name) for row in rows}))
        axes.xaxis.set_minor_locator(ticker.NullLocator())
        axes.set_xlabel("requests")
        axes.set_ylim(bottom=0)
        _thousands(axes)
    line[0].set_ylabel("microseconds, median")
    figure.suptitle("CPU time of one decode preparation", x=0.01, ha="left")
    _legend(figure, line[0])
    return figure


def _line(axes: Axes, tree: str, points: list[tuple[int, float]], style="-") -> None:
    label = _LABELS.get(tree, f"{tree} as released")
    axes.plot(*zip(*points), style, color=_COLOURS[tree], label=label)


def _ends(rows: list[Row]) -> list[str]:
    """The oldest release and the newest, once where they are the same."""
    return list(dict.fromkeys((rows[0].release, rows[-1].release)))


def _legend(figure: Figure, axes: Axes) -> None:
    """The legend of one of several plots, above all of them."""
    handles, labels = axes.get_legend_handles_labels()
    place = dict(loc="upper right", borderaxespad=0.2)
    figure.legend(handles, labels, ncols=len(labels), **place)


def _thousands(axes: Axes) -> None:
    axes.xaxis.set_major_formatter(_THOUSANDS)
    axes.yaxis.set_major_formatter(_THOUSANDS)


_PICTURES: dict[str, Callable[[list[Row]], Figure]] = {
    "growth": _growth,
    "capacity": _capacity,
    "retraction": _retraction,
    "cost": _cost,
}
