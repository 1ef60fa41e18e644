"""The pictures. The one module that imports matplotlib."""

from __future__ import annotations

import io
from collections.abc import Iterator

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.ticker import FuncFormatter, MaxNLocator  # noqa: E402

from ..errors import Precondition  # noqa: E402
from ..proof import PATCHED, PRISTINE  # noqa: E402
from . import records  # noqa: E402
from .figures import LOADS  # noqa: E402
from .results import TREES, Results  # noqa: E402

_COLOURS = {PRISTINE: "#c44e52", PATCHED: "#2a7f62"}
_STYLE = {
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "figure.dpi": 100,
    "font.size": 9,
    "legend.frameon": False,
    # The same bytes each time.
    "svg.hashsalt": "dspark-patches",
}
_CACHE = "chunk"
_THOUSANDS = FuncFormatter(lambda value, _: f"{value:,.0f}")


def draw(results: Results) -> dict[str, bytes]:
    """Every picture that the results have rows for, by file name."""
    pictures = {}
    with matplotlib.rc_context(_STYLE):
        for name, make in (
            ("swa-growth", growth),
            ("requests", limit),
            ("retractions", retraction),
        ):
            figure = make(results)
            if figure is not None:
                for suffix in ("svg", "png"):
                    pictures[f"{name}.{suffix}"] = _bytes(figure, suffix)
                pyplot.close(figure)
    return pictures


def growth(results: Results) -> Figure | None:
    """SWA tokens in use against generated tokens, with the pool's limit."""
    rows = [
        (row, found)
        for row, found in results.of("growth", records.Growth)
        if row.name == _CACHE
    ]
    if not rows:
        return None
    base = rows[0][0].base
    figure, axes = pyplot.subplots(figsize=(7, 3.4), layout="constrained")
    limit = rows[0][0].task["node"]["swa_size"]
    axes.axhline(limit, color="#555555", linestyle=":", linewidth=1)
    axes.text(0, limit * 1.02, f"SWA pool: {limit:,} tokens", color="#555555")
    for row, found in rows:
        if row.base != base:
            continue
        tokens, swa = zip(*found.swa_samples)
        label = f"{base} {row.tree}: {found.outcome} at {found.output_tokens:,} tokens"
        if found.outcome == "finished":
            label += f", SWA peak {found.swa_peak:,}"
        colour = _COLOURS[row.tree]
        if found.outcome != "finished":
            tokens, swa = (*tokens, found.output_tokens), (*swa, found.swa_peak)
            axes.plot(tokens[-1], swa[-1], "x", color=colour)
        axes.plot(tokens, swa, color=colour, label=label)
    axes.set_title("Sliding-window KV of one generation")
    axes.set_xlabel("generated tokens")
    axes.set_ylabel("#swa token")
    axes.set_ylim(0, limit * 1.12)
    _format(axes)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 0.08))
    return figure


def limit(results: Results) -> Figure | None:
    """The most requests without a retraction, per base."""
    most = {
        (row.base, row.tree): row.task["requests"]
        for row, found in results.of("limit", records.Together)
        if found.fit and row.name.split()[0] == _CACHE
    }
    if not most:
        return None
    bases = list(dict.fromkeys(base for base, _ in most))
    figure, axes = pyplot.subplots(figsize=(7, 3), layout="constrained")
    for place, tree in enumerate(TREES):
        xs = [i + (place - 0.5) * 0.38 for i in range(len(bases))]
        heights = [most.get((base, tree), 0) for base in bases]
        bars = axes.bar(xs, heights, 0.36, color=_COLOURS[tree], label=tree)
        axes.bar_label(bars, padding=2)
    axes.set_xticks(range(len(bases)), bases)
    axes.set_title("Requests (1,024 in, 32,768 out) that run without a retraction")
    axes.set_ylabel("requests")
    axes.legend(loc="upper left", ncols=2, bbox_to_anchor=(0, -0.12))
    return figure


def retraction(results: Results) -> Figure | None:
    """Retractions so far against decode steps, per load: the oldest base and the
    newest that have rows."""
    rows = list(results.of("retraction", records.Load))
    if not rows:
        return None
    bases = list(dict.fromkeys(row.base for row, _ in rows))
    shown = list(dict.fromkeys((bases[0], bases[-1])))
    figure, grid = pyplot.subplots(
        len(shown),
        len(LOADS),
        figsize=(11, 2.6 * len(shown)),
        squeeze=False,
        sharex=True,
        layout="constrained",
    )
    for line, base in zip(grid, shown):
        for axes, load in zip(line, LOADS):
            for row, found in rows:
                if (row.base, row.name) == (base, load):
                    steps = [sample.decode_steps for sample in found.samples]
                    retracted = [sample.retracted for sample in found.samples]
                    colour = _COLOURS[row.tree]
                    axes.plot(steps, retracted, color=colour, label=row.tree)
            axes.set_title("\n".join(_wrapped(load)) if base == shown[0] else "")
            axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
            axes.set_ylim(bottom=0)
            _format(axes)
        line[0].set_ylabel(f"{base}\nretractions so far")
    for axes in grid[-1]:
        axes.set_xlabel("decode steps")
    grid[0][0].legend(loc="upper left")
    return figure


def _wrapped(load: str) -> Iterator[str]:
    head, _, rest = load.partition(", ")
    yield head
    yield rest


def _format(axes: Axes) -> None:
    axes.xaxis.set_major_formatter(_THOUSANDS)
    axes.yaxis.set_major_formatter(_THOUSANDS)


def _bytes(figure: Figure, suffix: str) -> bytes:
    stream = io.BytesIO()
    # Dates and versions would change the files without a change of the figures.
    none = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}
    try:
        figure.savefig(stream, format=suffix, metadata=none[suffix])
    except OSError as error:
        raise Precondition("a picture cannot be drawn", cause=str(error)) from error
    return stream.getvalue()
