"""A fork's files: as they are committed, wherever their folders moved to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path

from ..errors import Failure, Precondition
from ..installs.confined import Confined
from ..installs.locate import Target
from ..installs.repository import Repository
from ..model.diff import ZEROS, blob_of
from ..model.hunks import lines_of
from ..model.states import Content
from ..trees.make import PACKAGE

# A file of the same name is the same file when it has this part of its lines.
_ALIKE = 0.5


class Fork:
    """A target that is no known release; it is only read.

    Attributes:
        uncommitted: files with changes that no commit holds. They are read as
            they are committed.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.uncommitted: set[str] = set()
        self._repository: Repository | None = None
        if target.kind == "checkout":
            try:
                self._repository = Repository(target.root)
            except Failure:
                pass
        self.read = cache(self._read)

    def carries(self, path: str) -> bool:
        """Whether it carries that part of the repository; a package has no tests."""
        return bool(self.target.place(path))

    def past(self, blob: str) -> bytes | None:
        """A content that the fork's history has; None where it is not at hand."""
        return self._repository.find(blob) if self._repository else None

    def where(self, path: str, like: bytes) -> str:
        """Where a file stands, also when only its folder moved.

        Args:
            path: the release's path.
            like: the release's content.
        """
        if self.read(path) is not None or not path.startswith("python/"):
            return path
        package = self.target.package
        found = {}
        for file in package.rglob(path.rpartition("/")[2]):
            place = f"python/sglang/{file.relative_to(package).as_posix()}"
            found[place] = _overlap(like, self.read(place) or b"")
        best = max(found, key=found.__getitem__, default=path)
        return best if found.get(best, 0) >= _ALIKE else path

    def texts(self) -> Iterator[bytes]:
        """The files of the serving runtime."""
        yield from filter(None, self.committed.values())
        for file in (self.target.package / "srt").rglob("*.py"):
            place = f"{PACKAGE}/{file.relative_to(self.target.package).as_posix()}"
            if place not in self.committed:
                yield _plain(file) or b""

    @cached_property
    def committed(self) -> dict[str, Content]:
        """The package's files of the commit that differ in the work tree.

        What no commit has is not among them: a build may have made it.
        """
        if not self._repository:
            return {}
        found = {
            path: self._repository.content(state.blob)
            for path, state in self._repository.below(PACKAGE).items()
            if state.blob and blob_of(_plain(self.target.root / path)) != state.blob
        }
        self.uncommitted |= found.keys()
        return found

    def _read(self, path: str) -> bytes | None:
        """A file's content; None where there is none.

        Raises:
            Precondition: it is a link, or cannot be read.
        """
        place = self.target.place(path)
        if not place:
            return None
        with Confined(self.target.root) as files:
            found = files.state(place)
            if found.why and found.blob != ZEROS:
                raise Precondition(f"{self.target.root / place}: {found.why}")
            content = None if found.blob == ZEROS else files.read(place)
        if self._repository:
            blob = self._repository.states([path])[path].blob
            if blob != found.blob:
                self.uncommitted.add(path)
                return None if blob == ZEROS else self._repository.content(blob)
        return content


def _plain(file: Path) -> bytes | None:
    return file.read_bytes() if file.is_file() and not file.is_symlink() else None


def _overlap(one: bytes, other: bytes) -> float:
    """The part of one text's lines that another has."""
    lines = Counter(lines_of(one))
    return (lines & Counter(lines_of(other))).total() / max(1, lines.total())
