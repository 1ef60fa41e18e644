"""What is kept when a run ends badly: a log to report, results to go on with."""

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
    return keep("crash-", ".log", text.encode(errors="replace"))


def keep(prefix: str, suffix: str, data: bytes) -> Path | None:
    """Write ``data`` to a file of its own beside the logs and return its path; None
    where none can be written."""
    try:
        folder = Path(platformdirs.user_log_dir("dspark-patches", appauthor=False))
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(suffix, prefix, folder)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
    except OSError:
        return None
    return Path(name)
