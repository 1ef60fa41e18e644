"""Lines of a file that may be broken or hostile, and errors that name them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

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


class Reader:
    """A cursor over lines without their newlines.

    Args:
        lines: the lines.
        name: the file that they come from, for errors.
        first: the number of the first line in that file.
    """

    def __init__(self, lines: Sequence[bytes], name: str, first: int = 1) -> None:
        self._lines = lines
        self._name = name
        self._first = first
        self.at = 0

    @property
    def number(self) -> int:
        """The number of the next line in its file."""
        return self._first + self.at

    def more(self) -> bool:
        """Whether there is a next line."""
        return self.at < len(self._lines)

    def peek(self) -> bytes:
        """The next line; empty at the end."""
        return self._lines[self.at] if self.more() else b""

    def take(self) -> bytes:
        """The next line, and go on; empty at the end."""
        line = self.peek()
        self.at += 1
        return line

    def header(self) -> str:
        """Like :meth:`take`, as text.

        Raises:
            Malformed: the line is not ASCII.
        """
        line = self.take()
        if not line.isascii():
            self.fail("a diff header must be ASCII", self.number - 1)
        return line.decode("ascii")

    def since(self, start: int) -> tuple[bytes, ...]:
        """The lines taken since the cursor stood ``at`` start."""
        return tuple(self._lines[start : self.at])

    def fail(self, what: str, number: int | None = None) -> NoReturn:
        """Raise :class:`Malformed` for a line, by default the next."""
        raise Malformed(self._name, number or self.number, what)


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


def split(data: bytes, name: str) -> list[bytes]:
    """The lines of a text file, without their newlines.

    Raises:
        Malformed: larger than the limit, or the last line does not end.
    """
    if len(data) > MAX_BYTES:
        raise Malformed(name, 0, f"larger than {MAX_BYTES} bytes")
    lines = data.split(b"\n")
    if lines.pop():
        raise Malformed(name, len(lines) + 1, "the file does not end with a newline")
    return lines
