"""Files of the clone: read with a limit, replaced together."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from .errors import Malformed, Precondition

MAX_BYTES = 8 * 1024 * 1024

_MODE = 0o644


def read(path: Path, name: str) -> bytes:
    """The bytes of a file of the series, called ``name`` in errors.

    Raises:
        Malformed: not a regular file, unreadable, or larger than the limit.
    """
    if path.is_symlink() or not path.is_file():
        raise Malformed(name, 0, "not a regular file")
    try:
        with path.open("rb") as stream:
            if len(data := stream.read(MAX_BYTES + 1)) > MAX_BYTES:
                raise OSError(f"larger than {MAX_BYTES} bytes")
            return data
    except OSError as error:
        raise Malformed(name, 0, "cannot be read", cause=str(error)) from error


def replace_all(changes: Mapping[Path, bytes | None]) -> None:
    """Write or, for None, remove files; nothing changes before all is staged.

    Raises:
        Precondition: a file cannot be written. While files are staged none has
            changed; the renames that follow need no space.
    """
    with ExitStack() as stack:
        try:
            staged = {
                path: _stage(path, content, stack)
                for path, content in changes.items()
                if content is not None
            }
            for path, temporary in staged.items():
                temporary.replace(path)
            for path, content in changes.items():
                if content is None:
                    path.unlink(missing_ok=True)
        except OSError as error:
            raise Precondition(
                "the files cannot be written",
                cause=str(error),
                next_step="make room or mend the permissions, and run again",
            ) from error


def _stage(path: Path, content: bytes, stack: ExitStack) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=".staged-", dir=path.parent)
    stack.callback(Path(name).unlink, missing_ok=True)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
    Path(name).chmod(path.stat().st_mode if path.exists() else _MODE)
    return Path(name)
