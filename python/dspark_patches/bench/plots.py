"""The pictures. The one module that imports matplotlib."""

from __future__ import annotations

import io
from collections.abc import Sequence

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot, ticker  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

from ..errors import Precondition  # noqa: E402
from ..proof import PATCHED  # noqa: E402
from . import look, records  # noqa: E402
from .figures import COST_REFERENCE, LOAD_STEPS, LOADS  # noqa: E402
from .pictures import PICTURES, on_shown_cache  # noqa: E402
from .results import TREES, Results  # noqa: E402

_THOUSANDS = ticker.FuncFormatter(lambda value, _: f"{value:,.0f}")


def draw(results: Results) -> dict[str, bytes]:
    """Every picture that the results have rows for, by file name.

    Raises:
        Precondition: a picture cannot be drawn.
    """
    made = {}
    with matplotlib.rc_context():
        # No setting of the user's reaches the pictures.
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(look.STYLE)
        for picture in PICTURES:
            if picture.allowed(results):
                figure = _MAKERS[picture.name](results)
                for suffix in ("svg", "png"):
                    made[f"{picture.name}.{suffix}"] = _bytes(figure, suffix)
                pyplot.close(figure)
    return made


def growth(results: Results) -> Figure:
    """SWA tokens in use against generated tokens, with the pool's limit."""
    rows = [
        (row, found)
        for row, found in results.of("growth", records.Growth)
        if on_shown_cache(row.name)
    ]
    rows = [(row, found) for row, found in rows if row.base == rows[0][0].base]
    base, limit = rows[0][0].base, rows[0][0].task["node"]["swa_size"]
    figure, axes = pyplot.subplots(figsize=(look.WIDTH, 4), layout="constrained")
    axes.axhline(limit, color=look.QUIET, linestyle="--", linewidth=1)
    above = dict(color=look.QUIET, transform=axes.get_yaxis_transform())
    axes.text(0.01, limit * 1.02, f"the SWA pool: {limit:,} tokens", **above)
    for row, found in rows:
        label = f"{look.LABELS[row.tree]}: {found.outcome} at {found.output_tokens:,}"
        _generation(axes, found, row.tree, label)
    axes.set_title(f"{base}: sliding-window KV of one generation", fontsize=12)
    axes.set_xlabel("generated tokens")
    axes.set_ylabel("SWA tokens in use")
    axes.set_ylim(0, limit * 1.12)
    axes.set_xlim(left=0)
    axes.grid(False)
    _thousands(axes)
    axes.legend(loc="upper left", bbox_to_anchor=(0, 0.87))
    for row, found in rows:
        if row.tree == PATCHED:
            _closer(axes, found)
    return figure


def limit(results: Results) -> Figure:
    """The most requests without a retraction, per base."""
    most = {
        (row.base, row.tree): row.task["requests"]
        for row, found in results.of("limit", records.Together)
        if found.fit and on_shown_cache(row.name)
    }
    bases = list(dict.fromkeys(base for base, _ in most))
    figure, axes = pyplot.subplots(figsize=(look.WIDTH, 3.4), layout="constrained")
    for place, tree in enumerate(TREES):
        bars = [(i, base) for i, base in enumerate(bases) if (base, tree) in most]
        drawn = axes.bar(
            [i + (place - 0.5) * 0.38 for i, _ in bars],
            [most[base, tree] for _, base in bars],
            0.36,
            color=look.COLOURS[tree],
            label=look.LABELS[tree],
        )
        axes.bar_label(drawn, padding=2)
    axes.set_xticks(range(len(bases)), bases)
    axes.set_xlim(-0.6, max(len(bases), 4) - 0.4)
    axes.set_title(
        "The most requests (1,024 in, 32,768 out) that run without a retraction",
        fontsize=12,
        pad=26,
    )
    axes.set_ylabel("requests")
    axes.margins(y=0.12)
    axes.legend(loc="lower left", ncols=2, bbox_to_anchor=(-0.01, 0.99))
    return figure


def retraction(results: Results) -> Figure:
    """Retractions so far against decode steps, per load and with the cache that every
    release has and that shares prefixes: the oldest base and the newest that have
    rows."""
    rows = list(results.of("retraction", records.Load))
    shown = _ends([row.base for row, _ in rows])
    figure, grid = pyplot.subplots(
        len(shown),
        len(LOADS),
        figsize=(look.WIDTH, 0.9 + 2.2 * len(shown)),
        squeeze=False,
        sharex=True,
        layout="constrained",
    )
    for line, base in zip(grid, shown):
        for axes, load in zip(line, LOADS):
            for row, found in rows:
                if (row.base, row.name) == (base, f"{load}, unified"):
                    _retractions(axes, found, row.tree)
            if base == shown[0]:
                axes.set_title(load.replace(", ", "\n"), fontsize=9)
            axes.yaxis.set_major_locator(ticker.MaxNLocator(4, integer=True))
            axes.set_xticks((0, LOAD_STEPS // 2, LOAD_STEPS))
            axes.set_ylim(bottom=0)
            _thousands(axes)
        line[0].set_ylabel(base)
    figure.suptitle("Retractions so far, under a sustained load", x=0.01, ha="left")
    figure.supxlabel("decode steps", fontsize=10)
    _legend(figure, grid[0][0])
    return figure


def cost(results: Results) -> Figure:
    """The median preparation against requests, on the oldest base and the newest."""
    rows = list(results.of("cost", records.Cost))
    shown = _ends([row.base for row, _ in rows])
    figure, (line,) = pyplot.subplots(
        1,
        len(shown),
        figsize=(look.WIDTH, 3.4),
        squeeze=False,
        sharey=True,
        layout="constrained",
    )
    for axes, base in zip(line, shown):
        for tree in (COST_REFERENCE, *TREES):
            points = sorted(
                (int(row.name), found.nanoseconds.median / 1e3)
                for row, found in rows
                if (row.base, row.tree) == (base, tree)
            )
            if points:
                label = look.LABELS.get(tree, f"{tree} as released")
                axes.plot(*zip(*points), "o-", color=look.COLOURS[tree], label=label)
        axes.set_title(base)
        axes.set_xscale("log", base=2)
        axes.set_xticks(sorted({int(row.name) for row, _ in rows}))
        axes.xaxis.set_minor_locator(ticker.NullLocator())
        axes.set_xlabel("requests")
        axes.set_ylim(bottom=0)
        _thousands(axes)
    line[0].set_ylabel("microseconds, median")
    figure.suptitle("CPU time of one decode preparation", x=0.01, ha="left")
    _legend(figure, line[0])
    return figure


_MAKERS = {
    "swa-growth": growth,
    "requests": limit,
    "retractions": retraction,
    "cost": cost,
}


def _generation(axes: Axes, found: records.Growth, tree: str, label: str) -> None:
    tokens, swa = zip(*found.swa_samples)
    colour = look.COLOURS[tree]
    if found.outcome != "finished":
        tokens, swa = (*tokens, found.output_tokens), (*swa, found.swa_peak)
        axes.plot(tokens[-1], swa[-1], "X", color=colour, markersize=9, clip_on=False)
    axes.plot(tokens, swa, color=colour, label=label)


def _closer(axes: Axes, found: records.Growth) -> None:
    """The patched line once more, where its steps can be seen."""
    inset = axes.inset_axes((0.66, 0.17, 0.33, 0.26))
    inset.set_facecolor("white")
    # The last sample was taken when all was given back.
    tokens, swa = zip(*found.swa_samples[:-1] or found.swa_samples)
    inset.plot(tokens, swa, color=look.COLOURS[PATCHED], linewidth=1, drawstyle="steps")
    inset.set_title(
        f"patched, closer: at most {found.swa_peak:,}", color=look.COLOURS[PATCHED]
    )
    inset.set_ylim(0, found.swa_peak * 1.15)
    inset.yaxis.set_major_locator(ticker.MultipleLocator(max(1, found.swa_peak // 4)))
    inset.set_xticks((0, found.output_tokens // 2, found.output_tokens))
    inset.tick_params(labelsize=8)
    _thousands(inset)


def _retractions(axes: Axes, found: records.Load, tree: str) -> None:
    steps = [sample.decode_steps for sample in found.samples]
    retracted = [sample.retracted for sample in found.samples]
    axes.plot(steps, retracted, color=look.COLOURS[tree], label=look.LABELS[tree])


def _ends(bases: Sequence[str]) -> list[str]:
    """The first and the last, once where they are the same."""
    return list(dict.fromkeys((bases[0], bases[-1])))


def _legend(figure: Figure, axes: Axes) -> None:
    """The legend of one of several plots, above all of them."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="upper right", ncols=len(labels), borderaxespad=0.2
    )


def _thousands(axes: Axes) -> None:
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
