"""The log of a bug of ours, to paste into a report."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path

import platformdirs

from . import __version__


def write(arguments: Sequence[str], told: str) -> Path | None:
    """Write a log file and return its path; None where none can be written."""
    text = "\n".join(
        [
            f"dspark-patches {__version__}",
            f"{platform.python_implementation()} {platform.python_version()}",
            platform.platform(),
            f"arguments: {list(arguments)}",
            "",
            told,
        ]
    )
    try:
        folder = Path(platformdirs.user_log_dir("dspark-patches", appauthor=False))
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(".log", "crash-", folder)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as stream:
            stream.write(text)
    except OSError:
        return None
    return Path(name)
