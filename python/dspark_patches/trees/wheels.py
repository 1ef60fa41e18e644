"""The released files of a release, out of its wheel and into a cache.

A wheel is downloaded by pip, checked, unpacked without trust and dropped: what is
kept is the tree in the repository's layout, ``python/sglang/...``, in a folder
named after the wheel's hash. It appears by one rename, so that a cache entry is
whole or absent, also when two processes prepare the same release at once.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import platformdirs
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from ..errors import BadInput, Precondition, is_disk_full
from ..model.diff import blob_id
from ..model.releases import Release

PACKAGE = "sglang"

# The largest wheel so far unpacks to 123 MB.
MAX_BYTES = 1 << 30

# Folders come with their files. Compiled extensions fit one Python and one machine, and no module that the
# regression tests import needs them; they would be half of the cache.
_LEFT_OUT = (".so", "/")

_PREFIX = 16
_ABANDONED_AFTER = 24 * 3600


class Released(msgspec.Struct, frozen=True):
    """A release's tree as released; never to be written to.

    Attributes:
        root: the folder that holds ``python/sglang``.
        sha256: the hash of the wheel that it came from.
    """

    root: Path
    sha256: str

    @property
    def package(self) -> Path:
        """The folder that is imported as ``sglang``."""
        return self.root / "python" / PACKAGE


def cache_dir() -> Path:
    """Where prepared releases are kept: ``DSPARK_CACHE``, else the user's cache."""
    override = os.environ.get("DSPARK_CACHE")
    if override:
        return Path(override).expanduser().absolute()
    return Path(platformdirs.user_cache_dir("dspark-patches", appauthor=False))


def obtain(
    release: Release,
    sha256: str = "",
    notify: Callable[[str], None] = lambda message: None,
) -> Released:
    """The released tree, from the cache or, once, from its wheel.

    ``sha256`` is the wheel's hash as locked; while the release has no lock it is
    empty, and the wheel is downloaded to learn it. ``notify`` is told before
    something slow begins.

    Raises:
        Precondition: the wheel cannot be had, is not the one locked, or does
            not fit on the disk.
        BadInput: the wheel is broken or hostile.
    """
    folder = cache_dir() / "releases" / release.tag
    if sha256 and (folder / sha256[:_PREFIX]).is_dir():
        return Released(folder / sha256[:_PREFIX], sha256)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _drop_abandoned(folder)
        with tempfile.TemporaryDirectory(prefix=".tmp-", dir=folder) as scratch:
            notify(f"{release.tag}: downloading {release.wheel}")
            wheel = _download(release, Path(scratch))
            found = hashlib.sha256(wheel.read_bytes()).hexdigest()
            if sha256 not in ("", found):
                raise Precondition(
                    f"{wheel.name} is not the wheel that is locked",
                    cause=f"expected sha256 {sha256}, got {found}",
                    next_step="run again; if it stays so, the download was tampered with",
                )
            notify(f"{release.tag}: unpacking")
            tree = Path(scratch, "tree")
            unpack(wheel, tree / "python")
            # Another process may be first; its tree comes from the same bytes.
            root = folder / found[:_PREFIX]
            try:
                tree.rename(root)
            except OSError:
                if not root.is_dir():
                    raise
            return Released(root, found)
    except OSError as error:
        full = is_disk_full(error)
        raise Precondition(
            "the disk is full" if full else f"{folder} cannot be written",
            cause=str(error),
            next_step="free some space, or set DSPARK_CACHE to another folder",
        ) from error


def verify_files(released: Released, blobs: Mapping[str, str]) -> None:
    """Check files of a released tree against their git blob ids.

    Raises:
        Precondition: a file is missing or was changed since it was unpacked.
    """
    for path, blob in blobs.items():
        file = released.root / path
        found = blob_id(file.read_bytes()) if file.is_file() else ""
        if found != blob:
            raise Precondition(
                f"{file} is not the file that was released",
                cause=f"its blob id is not {blob}" if found else "missing",
                next_step=f"remove {released.root} and run again",
            )


def unpack(wheel: Path, to: Path) -> None:
    """Unpack ``sglang/**`` of a wheel below ``to``, without its extensions.

    Whatever the archive says, only plain files are written, and only below ``to``.

    Raises:
        BadInput: the archive is truncated or corrupt, too large, or no sglang's.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            entries = [
                entry
                for entry in archive.infolist()
                if entry.filename.startswith(f"{PACKAGE}/")
                and not entry.filename.endswith(_LEFT_OUT)
            ]
            if sum(entry.file_size for entry in entries) > MAX_BYTES:
                raise BadInput(f"{wheel.name} unpacks to over {MAX_BYTES} bytes")
            archive.extractall(to, entries)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise BadInput(
            f"{wheel.name} is truncated or corrupt",
            cause=str(error),
            next_step="run again to download it anew",
        ) from error
    if not (to / PACKAGE / "__init__.py").is_file():
        raise BadInput(f"{wheel.name} holds no package {PACKAGE!r}")


def download_arguments(release: Release) -> list[str]:
    """pip's arguments for exactly the pinned wheel, whatever Python runs this.

    Raises:
        BadInput: the pin is no wheel's name.
    """
    try:
        name, version, _, tags = parse_wheel_filename(release.wheel)
    except InvalidWheelFilename as error:
        raise BadInput(f"releases.toml: {release.tag}: {error}") from error
    tag = min(tags, key=str)
    python = ".".join(filter(None, (tag.interpreter[2:3], tag.interpreter[3:])))
    return [
        *("download", "--no-deps", "--only-binary=:all:", "--quiet", "--no-input"),
        "--disable-pip-version-check",
        f"--python-version={python}",
        f"--implementation={tag.interpreter[:2]}",
        f"--abi={tag.abi}",
        f"--platform={tag.platform}",
        f"{name}=={version}",
    ]


def _download(release: Release, to: Path) -> Path:
    done = subprocess.run(
        [sys.executable, "-m", "pip", *download_arguments(release), "--dest", str(to)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    wheel = to / release.wheel
    if done.returncode == 0 and wheel.is_file():
        return wheel
    if os.strerror(errno.ENOSPC) in done.stderr:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    said = [line for line in done.stderr.splitlines() if line.strip()]
    raise Precondition(
        f"{release.wheel} could not be downloaded",
        cause="\n".join(said[-3:]) or f"pip did not bring {release.wheel}",
        next_step="check the network and run again, or put the wheel into a folder "
        "and name it in PIP_FIND_LINKS",
    )


def _drop_abandoned(folder: Path) -> None:
    """Remove what a killed process left; a running one is younger than this."""
    for scratch in folder.glob(".tmp-*"):
        if time.time() - scratch.stat().st_mtime > _ABANDONED_AFTER:
            shutil.rmtree(scratch, ignore_errors=True)
