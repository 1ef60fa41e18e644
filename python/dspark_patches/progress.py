"""Progress on standard error, where a terminal is there to show it.

Apart from :mod:`.report`, since it takes long to import and few verbs need it.
"""

from __future__ import annotations

from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from . import report


def progress(*more: ProgressColumn) -> Progress:
    """A context that shows bars, with ``more`` columns before the time."""
    stderr = report.console(stderr=True)
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        *more,
        TimeElapsedColumn(),
        console=stderr,
        transient=True,
        redirect_stdout=False,
        disable=not stderr.is_terminal,
    )


def note(shown: Progress, message: str) -> None:
    """Print a line above the bars."""
    text = report.printable(message)
    shown.console.print(text, soft_wrap=True, style="dim")
