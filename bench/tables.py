"""Results as Markdown tables: one row for releases of which it says the same."""

from __future__ import annotations

from collections.abc import Iterator

from dspark_patches.model.releases import load

from .cells import Trees
from .figures import FIGURES
from .results import Results

HOW_TO_READ = (
    "As released -> with the series; one value where both are alike; ? where it was "
    "not measured."
)


def table(results: Results, name: str, task: str = "") -> str:
    """A figure's table; the rows of one task, or of all.

    Returns:
        Markdown, numbers to the right; empty where there are no rows.
    """
    figure = FIGURES[name]
    head = [*([] if task else [figure.key]), "release"]
    lines = [[*head, *figure.columns], [":--"] * len(head)]
    lines[1] += ["--:"] * len(figure.columns)
    for key, releases in _found(results, name).items():
        if task in ("", key):
            for span, cells in _spans(releases, name):
                lines.append([*([] if task else [key]), span, *cells])
    if len(lines) == 2:
        return ""
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


def _found(results: Results, name: str) -> dict[str, dict[str, Trees]]:
    """A figure's rows by task, release and tree."""
    found: dict[str, dict[str, Trees]] = {}
    for row in results.rows:
        if row.figure == name:
            releases = found.setdefault(row.name, {})
            releases.setdefault(row.release, {})[row.tree] = row
    return found


def _spans(
    releases: dict[str, Trees], name: str
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The cells of each release, those of neighbours that are alike as one."""
    spans: list[tuple[list[str], tuple[str, ...]]] = []
    order = list(load())
    for tag, trees in releases.items():
        cells = tuple(cell(trees) for cell in FIGURES[name].columns.values())
        tags, before = spans[-1] if spans else ([""], ())
        if cells == before and order.index(tag) == order.index(tags[-1]) + 1:
            tags.append(tag)
        else:
            spans.append(([tag], cells))
    for tags, cells in spans:
        yield tags[0] if len(tags) == 1 else f"{tags[0]} to {tags[-1]}", cells
