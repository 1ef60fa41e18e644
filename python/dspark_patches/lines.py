"""Files that may be broken or hostile, and errors that name their lines."""

from __future__ import annotations

from pathlib import Path

from .errors import BadInput

MAX_BYTES = 8 * 1024 * 1024


class Malformed(BadInput):
    """A file that is not in its canonical form; ``line`` 0 is the whole file."""

    def __init__(self, file: str, line: int, what: str, *, cause: str = "") -> None:
        place = f"{file}:{line}" if line else file
        super().__init__(f"{place}: {what}", cause=cause)
        self.file = file
        self.line = line
        self.what = what


def read(path: Path, name: str) -> bytes:
    """The bytes of a file of the series.

    Raises:
        Malformed: not a regular file, unreadable, or larger than the limit.
    """
    if path.is_symlink() or not path.is_file():
        raise Malformed(name, 0, "not a regular file")
    try:
        with path.open("rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise Malformed(name, 0, "cannot be read", cause=str(error)) from error


def whole(data: bytes, name: str) -> bytes:
    """The bytes of a text file that is not too large and whose last line ends.

    Raises:
        Malformed: it is another.
    """
    if len(data) > MAX_BYTES:
        raise Malformed(name, 0, f"larger than {MAX_BYTES} bytes")
    if data and not data.endswith(b"\n"):
        number = data.count(b"\n") + 1
        raise Malformed(name, number, "the file does not end with a newline")
    return data
