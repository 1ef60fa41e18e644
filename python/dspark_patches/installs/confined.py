"""Files below one folder that may be hostile, reached without leaving it.

Every component of a path is opened relative to the one before and without
following a link, so that neither a link that lies there nor one that is put
there meanwhile leads a write out of the folder.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from ..errors import BadInput, Precondition
from ..files import MAX_BYTES
from ..model.diff import ZEROS, blob_id, check_path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A pipe must not block us, nor a terminal become ours.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class FileState(msgspec.Struct, frozen=True):
    """What stands at a path."""

    blob: str  # the file's blob id; zeros where there is none, empty if it is not told
    why: str = ""  # what keeps it from being told, or from being replaced


class Confined:
    """One folder, and what lies below it; a path that leads out is an OSError.

    A link to the folder itself is followed, once, when this is made; Precondition
    says that it cannot be opened.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        try:
            self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise Precondition(f"{root} cannot be opened", cause=str(error)) from error

    def __enter__(self) -> Confined:
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self._root)

    def state(self, path: str) -> FileState:
        """What stands at ``path``; a file behind a link is told from its content."""
        try:
            return FileState(blob_id(self.read(path)))
        except FileNotFoundError:
            return FileState(ZEROS)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                return self._behind_link(path)
            return FileState("", error.strerror or str(error))
        except BadInput as refusal:
            return FileState("", refusal.message)

    def read(self, path: str) -> bytes:
        """The content of a file; BadInput if it is none, or larger than any of ours."""
        with self._parent(path) as (folder, name):
            descriptor = os.open(name, _FILE, dir_fd=folder)
        return _content(descriptor, path)

    def traits(self, path: str) -> os.stat_result:
        """Mode and owner of what stands at ``path`` itself."""
        with self._parent(path) as (folder, name):
            return os.stat(name, dir_fd=folder, follow_symlinks=False)

    def names(self, path: str) -> list[str]:
        """The names in a folder; none where there is no folder."""
        with suppress(FileNotFoundError, NotADirectoryError):
            with self._folder(path) as folder:
                return sorted(os.listdir(folder))
        return []

    def write(
        self, path: str, content: bytes, traits: os.stat_result, also: int = 0
    ) -> None:
        """Write a new file with these traits, and also bits, on disk on return."""
        with self._parent(path) as (folder, name):
            descriptor = os.open(name, _NEW, 0o600, dir_fd=folder)
        with os.fdopen(descriptor, "wb", buffering=0) as stream:
            left = memoryview(content)
            while left:
                left = left[stream.write(left) :]
            _give(descriptor, traits, also)
            os.fsync(descriptor)

    def move(self, source: str, target: str) -> None:
        """Let ``target`` be the file that ``source`` was, in one step."""
        with self._parent(source) as (out_of, old), self._parent(target) as (to, new):
            os.replace(old, new, src_dir_fd=out_of, dst_dir_fd=to)
            os.fsync(to)

    def remove(self, path: str) -> None:
        """Remove a file; that there is none is no failure."""
        with suppress(FileNotFoundError), self._parent(path) as (folder, name):
            os.unlink(name, dir_fd=folder)
            os.fsync(folder)

    def make_folder(self, path: str, traits: os.stat_result) -> None:
        """Make a folder and those above it, where there is none."""
        for above in _prefixes(path):
            with self._parent(above) as (folder, name):
                try:
                    os.mkdir(name, 0o700, dir_fd=folder)
                except FileExistsError:
                    continue
                os.fsync(folder)
            with self._folder(above) as made:
                _give(made, traits)

    def drop_folder(self, path: str) -> bool:
        """Remove a folder if it is empty; whether it is gone."""
        try:
            with suppress(FileNotFoundError), self._parent(path) as (folder, name):
                os.rmdir(name, dir_fd=folder)
                os.fsync(folder)
        except OSError:
            return False
        return True

    def _behind_link(self, path: str) -> FileState:
        links = (at for at in _prefixes(path) if (self.root / at).is_symlink())
        link = next(links, "")
        if not link:
            # A file stands where a folder should be: so there is no such file.
            return FileState(ZEROS)
        why = f"{link} is a symbolic link"
        try:
            descriptor = os.open(self.root / path, _FILE & ~os.O_NOFOLLOW)
            return FileState(blob_id(_content(descriptor, path)), why)
        except FileNotFoundError:
            if link == path:
                return FileState("", f"{why} that leads nowhere")
            return FileState(ZEROS, why)
        except (OSError, BadInput) as error:
            return FileState("", f"{why}: {error}")

    @contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        above, _, name = path.rpartition("/")
        if why := check_path(path):
            raise BadInput(f"{self.root}: {why}")
        with self._folder(above) as folder:
            yield folder, name

    @contextmanager
    def _folder(self, path: str) -> Iterator[int]:
        folder = os.open(".", _FOLDER, dir_fd=self._root)
        try:
            for part in filter(None, path.split("/")):
                below = os.open(part, _FOLDER, dir_fd=folder)
                os.close(folder)
                folder = below
            yield folder
        finally:
            os.close(folder)


def _prefixes(path: str) -> list[str]:
    """A path's folders from the top, and itself."""
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _give(descriptor: int, traits: os.stat_result, also: int = 0) -> None:
    found = os.fstat(descriptor)
    if (found.st_uid, found.st_gid) != (traits.st_uid, traits.st_gid):
        os.fchown(descriptor, traits.st_uid, traits.st_gid)
    # After the owner: a change of owner takes some permissions away.
    os.fchmod(descriptor, stat.S_IMODE(traits.st_mode) | also)


def _content(descriptor: int, path: str) -> bytes:
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise BadInput(f"{path} is not a regular file")
        content = stream.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise BadInput(f"{path} is larger than {MAX_BYTES} bytes")
    return content
