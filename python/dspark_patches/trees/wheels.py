"""The released files of a release, out of its wheel and into a cache.

pip downloads a wheel, holds it to the locked hash and unpacks it. What is kept is the
tree in the repository's layout, ``python/sglang/...``, in a folder named after the
wheel's hash. It appears by one rename, so that a cache entry is whole or absent, also
when two processes prepare the same release at once.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import platformdirs
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from ..errors import BadInput, Precondition, is_disk_full
from ..model.diff import blob_id
from ..model.releases import Release

PACKAGE = "sglang"

_PREFIX = 16


class Released(msgspec.Struct, frozen=True):
    """A release's tree as released, with its wheel's hash; never to be written to."""

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
        Precondition: the wheel cannot be had, is broken or not the one locked, or
            does not fit on the disk.
    """
    folder = cache_dir() / "releases" / release.tag
    if sha256 and (folder / sha256[:_PREFIX]).is_dir():
        return Released(folder / sha256[:_PREFIX], sha256)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".tmp-", dir=folder) as scratch:
            notify(f"{release.tag}: downloading {release.wheel}")
            tree = Path(scratch, "tree")
            found = _install(release, sha256, tree / "python")
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


def pip_arguments(release: Release, sha256: str = "") -> tuple[list[str], str]:
    """pip's arguments, and its requirement, for exactly the pinned wheel.

    Raises:
        BadInput: the pin is no wheel's name.
    """
    try:
        name, version, _, tags = parse_wheel_filename(release.wheel)
    except InvalidWheelFilename as error:
        raise BadInput(f"releases.toml: {release.tag}: {error}") from error
    tag = min(tags, key=str)
    python = ".".join(filter(None, (tag.interpreter[2:3], tag.interpreter[3:])))
    arguments = [
        *("install", "--no-deps", "--no-compile", "--only-binary=:all:", "--quiet"),
        *("--no-input", "--no-user", "--disable-pip-version-check"),
        f"--python-version={python}",
        f"--implementation={tag.interpreter[:2]}",
        f"--abi={tag.abi}",
        f"--platform={tag.platform}",
    ]
    hashed = f" --hash=sha256:{sha256}" if sha256 else ""
    return arguments, f"{name}=={version}{hashed}"


def _install(release: Release, sha256: str, to: Path) -> str:
    """Let pip put the package of the pinned wheel into a folder; the wheel's hash."""
    arguments, requirement = pip_arguments(release, sha256)
    wanted, told = (to.parent.with_name(name) for name in ("wanted", "report"))
    wanted.write_text(requirement)
    places = [f"--target={to}", f"--requirement={wanted}"]
    # Older ones of pip cannot report.
    places += [] if sha256 else [f"--report={told}"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *arguments, *places],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if os.strerror(errno.ENOSPC) in done.stderr:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if done.returncode == 0 and (to / PACKAGE / "__init__.py").is_file():
        # They fit one Python and one machine, and are half of the package.
        for extension in to.rglob("*.so"):
            extension.unlink()
        if sha256:
            return sha256
        (found,) = msgspec.json.decode(told.read_bytes())["install"]
        return found["download_info"]["archive_info"]["hashes"]["sha256"]
    said = [line for line in done.stderr.splitlines() if line.strip()]
    raise Precondition(
        f"{release.wheel} could not be downloaded",
        cause="\n".join(said[-6:]) or f"it holds no package {PACKAGE!r}",
        next_step="check the network and run again, or put the wheel into a folder "
        "and name it in PIP_FIND_LINKS",
    )
