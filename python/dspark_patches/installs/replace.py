"""Several files replaced as one: all written beside, then moved, then verified.

Nothing else is laid down. A kill leaves every file the old or the new one, and
at worst written copies beside them, which the next run removes. Files are
replaced under their names and never written to: a hard link elsewhere keeps
its content.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ..errors import Conflict, Failure, Precondition
from ..model.diff import blob_of, check_path
from .confined import Confined
from .locate import Target

_BESIDE = ".dspark-patches-"
_FULL = ("the disk is full", "free some space and run again")
_DENIED = ("you may not write to it", "run as its owner")
_MEANING = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.EBUSY: ("a file is mounted over", "change it where it is mounted from"),
    errno.EXDEV: (
        "a part of it lies on another file system",
        "install SGLang onto one file system",
    ),
    errno.EROFS: (
        "it is on a read-only file system",
        "change it where that is made, such as when the image is built",
    ),
}


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One file's content before and after; None stands for no file."""

    place: str
    old: bytes | None
    new: bytes | None
    known: tuple[bytes | None, ...] = ()  # all it goes through, released to patched
    executable: bool = False
    aside: str = ""  # the folder to write it in first, unless that is its own

    @property
    def above(self) -> str:
        """The folder that it stands in; may be empty."""
        return self.place.rpartition("/")[0]

    @property
    def beside(self) -> str:
        """Where the content is written before it is moved to its place."""
        above = self.aside or self.above
        return f"{above}/{_BESIDE}{self.place.rpartition('/')[2]}".lstrip("/")


def replace(
    files: Confined,
    target: Target,
    changes: list[Change],
    then: Callable[[], None] = lambda: None,
) -> tuple[str, ...]:
    """Make the changes, in their order: all of them, or none; the places that changed.

    Each file must have its old content now, which may be the new one. New files and
    folders get the owner and the permissions of the target's package. ``then`` is
    what else belongs to it, done last; if it fails all is taken back.

    Raises:
        Precondition: the target cannot be written, or all not be taken back.
        Conflict: a file changed meanwhile.
    """
    job = _Job(files, target.package.relative_to(target.root).as_posix(), changes)
    with told(files.root):
        job.stage()
        try:
            job.move()
            then()
        except BaseException as failure:
            job.take_back(failure)
            raise
    return tuple(change.place for change in job.needed)


@contextmanager
def told(root: Path) -> Iterator[None]:
    """Say what a failing system call means; all has been taken back by then."""
    try:
        yield
    except OSError as error:
        what, hint = _MEANING.get(error.errno or 0, ("it cannot be written", ""))
        what = f"{root}: {what}; nothing was changed"
        cause = error.strerror or str(error)
        raise Precondition(what, cause=cause, next_step=hint) from error


class _Job:
    def __init__(self, files: Confined, package: str, changes: list[Change]) -> None:
        self.files = files
        self.package = package
        self.changes = changes
        self.needed = [change for change in changes if change.old != change.new]

    def stage(self) -> None:
        self._clear()
        try:
            for change in self.needed:
                self._expect(change, change.old)
                self._write(change, change.new)
        except BaseException:
            self._clear()
            self._drop_empty(lambda change: change.old)
            raise

    def move(self) -> None:
        for change in self.needed:
            self._expect(change, change.old)
            self._move(change, change.new)
        self._drop_empty(lambda change: change.new)
        for change in self.changes:
            self._expect(change, change.new)

    def take_back(self, failure: BaseException) -> None:
        """Bring back every file that is as the change made it."""
        try:
            self._clear()
            for change in reversed(self.needed):
                if self._is(change, change.new):
                    self._write(change, change.old)
                    self._move(change, change.old)
                self._expect(change, change.old)
            self._drop_empty(lambda change: change.old)
        except (OSError, Failure) as second:
            what = (
                f"{self.files.root}: it was stopped midway and could not be taken back"
            )
            hint = "put that right, then run `dspark-patches revert`"
            cause = f"{failure}; then: {second}"
            raise Precondition(what, cause=cause, next_step=hint) from failure

    def _is(self, change: Change, content: bytes | None) -> bool:
        return self.files.state(change.place).blob == blob_of(content)

    def _expect(self, change: Change, content: bytes | None) -> None:
        if not self._is(change, content):
            raise Conflict(f"{self.files.root / change.place} changed meanwhile")

    def _write(self, change: Change, content: bytes | None) -> None:
        if content is None:
            return
        if change.above:
            self.files.make_folder(change.above, self.files.traits(self.package))
        try:
            traits, also = self.files.traits(change.place), 0
        except FileNotFoundError:
            traits = self.files.traits(f"{self.package}/__init__.py")
            # Whoever may read a script may run it.
            also = (traits.st_mode & 0o444) >> 2 if change.executable else 0
        self.files.write(change.beside, content, traits, also)

    def _move(self, change: Change, content: bytes | None) -> None:
        self._drop_bytecode(change)
        if content is None:
            self.files.remove(change.place)
        else:
            self.files.move(change.beside, change.place)

    def _drop_bytecode(self, change: Change) -> None:
        # Before Python trusts what it compiled from a file it compares the file's
        # size and its time in seconds, or nothing at all.
        name, _, ending = change.place.rpartition("/")[2].rpartition(".")
        if ending != "py":
            return
        compiled = re.compile(rf"{re.escape(name)}\.[\w.-]*pyc(\.[0-9]+)?", re.ASCII)
        cache = f"{change.above}/__pycache__"
        for found in filter(compiled.fullmatch, self.files.names(cache)):
            self.files.remove(f"{cache}/{found}")

    def _clear(self) -> None:
        """Remove what was written beside, also by one that was killed."""
        for top in {change.place.partition("/")[0] for change in self.changes}:
            for path in sorted((self.files.root / top).rglob(f"{_BESIDE}*")):
                place = path.relative_to(self.files.root).as_posix()
                if not check_path(place):
                    self.files.remove(place)

    def _drop_empty(self, goal: Callable[[Change], bytes | None]) -> None:
        """Remove folders that only held what is gone; no release has empty ones."""
        for change in self.changes:
            above = change.above if goal(change) is None else ""
            while above:
                self.files.drop_folder(f"{above}/__pycache__")
                if not self.files.drop_folder(above):
                    break
                above = above.rpartition("/")[0]
