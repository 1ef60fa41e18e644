"""A wheel's package, unpacked without trusting the archive."""

from __future__ import annotations

import stat
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from .errors import BadInput

PACKAGE = "sglang"

# The largest wheel so far unpacks to 123 MB in 6,400 files.
MAX_FILES = 50_000
MAX_BYTES = 1 << 30

# Compiled extensions fit one Python and one machine, and no module that the
# regression tests import needs them; they would be half of the cache.
_LEFT_OUT = ".so"


def package(wheel: Path, to: Path) -> None:
    """Unpack ``sglang/**`` of a wheel below ``to``, without its extensions.

    Raises:
        BadInput: the archive is truncated or corrupt, too large, or has an
            entry that is not a plain file inside the package.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            entries = [entry for entry in archive.infolist() if _wanted(entry)]
            _check(entries, wheel.name)
            for entry in entries:
                _write(archive, entry, to)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise BadInput(
            f"{wheel.name} is truncated or corrupt",
            cause=str(error),
            next_step="run again to download it anew",
        ) from error


def _wanted(entry: zipfile.ZipInfo) -> bool:
    return (
        entry.filename.startswith(f"{PACKAGE}/")
        and not entry.is_dir()
        and not entry.filename.endswith(_LEFT_OUT)
    )


def _check(entries: list[zipfile.ZipInfo], name: str) -> None:
    if not any(entry.filename == f"{PACKAGE}/__init__.py" for entry in entries):
        raise BadInput(f"{name} holds no package {PACKAGE!r}")
    if len(entries) > MAX_FILES:
        raise BadInput(f"{name} has {len(entries)} files; the limit is {MAX_FILES}")
    size = sum(entry.file_size for entry in entries)
    if size > MAX_BYTES:
        raise BadInput(f"{name} unpacks to {size} bytes; the limit is {MAX_BYTES}")
    for entry in entries:
        path = PurePosixPath(entry.filename)
        climbs = ".." in path.parts or "\\" in entry.filename
        if climbs or entry.filename != str(path):
            raise BadInput(f"{name}: {entry.filename!r} is not a path in the package")
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if kind not in (0, stat.S_IFREG):
            raise BadInput(f"{name}: {entry.filename!r} is not a plain file")


def _write(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, to: Path) -> None:
    target = to / entry.filename
    target.parent.mkdir(parents=True, exist_ok=True)
    # A member is never larger than its declared size: zipfile stops there and
    # then compares the checksum.
    target.write_bytes(archive.read(entry))
