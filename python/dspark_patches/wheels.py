"""The released files of a base, out of its wheel and into a cache.

A wheel is downloaded by pip, checked, unpacked and dropped: what is kept is
the tree in the repository's layout, ``python/sglang/...``, in a folder named
after the wheel's hash. It appears by one rename, so that a cache entry is
whole or absent, also when two processes prepare the same base at once.
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
import platformdirs
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from . import unpack
from .bases import Base
from .diff import blob_id
from .errors import BadInput, Failure, Precondition, is_disk_full

_ORIGIN = "origin.json"
_PREFIX = 16
_ABANDONED_AFTER = 24 * 3600


class Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which wheel a cache entry was unpacked from."""

    wheel: str
    sha256: str


class Released(msgspec.Struct, frozen=True):
    """A base's tree as released; never to be written to.

    Attributes:
        root: the folder that holds ``python/sglang``.
        origin: the wheel that the tree came from.
    """

    root: Path
    origin: Origin


def cache_dir() -> Path:
    """Where prepared bases are kept: ``DSPARK_CACHE``, else the user's cache."""
    override = os.environ.get("DSPARK_CACHE")
    if override:
        return Path(override).expanduser().absolute()
    return Path(platformdirs.user_cache_dir("dspark-patches", appauthor=False))


def obtain(
    base: Base,
    sha256: str | None = None,
    notify: Callable[[str], None] = lambda message: None,
) -> Released:
    """The base's released tree, from the cache or, once, from its wheel.

    Args:
        base: the base.
        sha256: the wheel's hash as locked; None while the base has no lock.
        notify: told before something slow begins.

    Raises:
        Precondition: the wheel cannot be had, is not the one locked, or does
            not fit on the disk.
        BadInput: the wheel is broken or hostile.
    """
    folder = cache_dir() / "bases" / base.tag
    found = _cached(folder, base, sha256)
    if found:
        return found
    with _disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        _drop_abandoned(folder)
        with tempfile.TemporaryDirectory(prefix=".tmp-", dir=folder) as scratch:
            notify(f"{base.tag}: downloading {base.wheel}")
            wheel = _download(base, Path(scratch))
            origin = Origin(wheel=base.wheel, sha256=_checked_hash(wheel, sha256))
            notify(f"{base.tag}: unpacking")
            return _unpacked(wheel, origin, Path(scratch) / "tree", folder)


def verify_files(released: Released, blobs: Mapping[str, str]) -> None:
    """Check files of a released tree against their git blob ids.

    Raises:
        Precondition: a file is missing or was changed since it was unpacked.
    """
    for path, blob in blobs.items():
        try:
            data = (released.root / path).read_bytes()
        except OSError:
            data = None
        if data is None or blob_id(data) != blob:
            raise Precondition(
                f"{released.root / path} is not the file that was released",
                cause="missing" if data is None else f"its blob id is not {blob}",
                next_step=f"remove {released.root} and run again",
            )


def _cached(folder: Path, base: Base, sha256: str | None) -> Released | None:
    """A finished entry; with no lock, the first one for the pinned wheel."""
    pattern = sha256[:_PREFIX] if sha256 else "[0-9a-f]" * _PREFIX
    for root in sorted(folder.glob(pattern)):
        try:
            origin = msgspec.json.decode((root / _ORIGIN).read_bytes(), type=Origin)
        except (OSError, msgspec.MsgspecError):
            continue
        if origin.wheel == base.wheel and sha256 in (None, origin.sha256):
            return Released(root=root, origin=origin)
    return None


def _unpacked(wheel: Path, origin: Origin, tree: Path, folder: Path) -> Released:
    unpack.package(wheel, tree / "python")
    (tree / _ORIGIN).write_bytes(msgspec.json.encode(origin))
    root = folder / origin.sha256[:_PREFIX]
    try:
        tree.rename(root)
    except OSError as error:
        # Another process was first; its tree came from the same bytes.
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    return Released(root=root, origin=origin)


def _download(base: Base, to: Path) -> Path:
    done = subprocess.run(
        [sys.executable, "-m", "pip", *download_arguments(base), "--dest", str(to)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    wheel = to / base.wheel
    if done.returncode == 0 and wheel.is_file():
        return wheel
    if os.strerror(errno.ENOSPC) in done.stderr:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    said = [line for line in done.stderr.splitlines() if line.strip()]
    raise Precondition(
        f"{base.wheel} could not be downloaded",
        cause="\n".join(said[-3:]) or f"pip did not bring {base.wheel}",
        next_step=(
            "check the network and run again, or put the wheel into a folder and "
            "name it in PIP_FIND_LINKS"
        ),
    )


def download_arguments(base: Base) -> list[str]:
    """pip's arguments for exactly the pinned wheel, whatever Python runs this."""
    try:
        name, version, _, tags = parse_wheel_filename(base.wheel)
    except InvalidWheelFilename as error:
        raise BadInput(f"bases.toml: {base.tag}: {error}") from error
    tag = sorted(tags, key=str)[0]
    implementation, python = tag.interpreter[:2], tag.interpreter[2:]
    return [
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--disable-pip-version-check",
        "--no-input",
        "--quiet",
        f"--python-version={'.'.join(filter(None, [python[:1], python[1:]]))}",
        f"--implementation={implementation}",
        f"--abi={tag.abi}",
        f"--platform={tag.platform}",
        f"{name}=={version}",
    ]


def _checked_hash(wheel: Path, expected: str | None) -> str:
    digest = hashlib.sha256()
    with wheel.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    found = digest.hexdigest()
    if expected not in (None, found):
        raise Precondition(
            f"{wheel.name} is not the wheel that is locked",
            cause=f"expected sha256 {expected}, got {found}",
            next_step="run again; if it stays so, the download was tampered with",
        )
    return found


def _drop_abandoned(folder: Path) -> None:
    """Remove what a killed process left; a running one is younger than this."""
    for scratch in folder.glob(".tmp-*"):
        if time.time() - scratch.stat().st_mtime > _ABANDONED_AFTER:
            shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except Failure:
        raise
    except OSError as error:
        raise Precondition(
            (
                "the disk is full"
                if is_disk_full(error)
                else f"{folder} cannot be written"
            ),
            cause=str(error),
            next_step="free some space, or set DSPARK_CACHE to another folder",
        ) from error
