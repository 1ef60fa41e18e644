"""Find the sglang that a Python would import, without importing it."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as distributed_version
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from ..errors import Precondition
from . import record

PACKAGE = "sglang"

_MARK = "dspark-patches:"
# What a start-up file of that installation prints stands before the mark.
_ASK = f"""\
import json
from importlib import metadata, util
spec = util.find_spec({PACKAGE!r})
found = [one.version for one in metadata.distributions(name={PACKAGE!r})]
print("\\n{_MARK}" + json.dumps([spec and spec.origin or "", (found or [""])[0]]))
"""
_TIMEOUT = 60
_HEAD = 16_384
_METADATA = re.compile(rf"{PACKAGE}(-.*)?\.(dist|egg)-info")
_VERSION = re.compile(rb"^Version: *(\S+)\s*$", re.MULTILINE)
_WRITTEN_VERSION = re.compile(
    rb"^__version__(?: = version)? = ['\"]([^'\"\s]+)['\"]", re.MULTILINE
)
_TELLING = ("__init__.py", "version.py", "_version.py")


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """An installed sglang: its folder, and the version of its metadata if any."""

    package: Path
    version: str = ""


def imported(python: str | None = None) -> Installed:
    """The sglang that an interpreter imports.

    Args:
        python: the interpreter; the one that runs this unless told. It is
            started, so it must be one that the user named.

    Raises:
        Precondition: the interpreter does not start, or has no sglang.
    """
    # It is started in another folder, but named in this one.
    if python and os.sep in python:
        python = os.path.abspath(python)
    origin, version = _asked(python) if python else _own()
    if Path(origin).name == "__init__.py":
        return Installed(package=Path(origin).parent, version=version)
    raise _none(python or sys.executable, version)


def in_environment(home: Path) -> Installed:
    """The sglang of a virtual environment, of which nothing is run.

    Raises:
        Precondition: there is none.
    """
    sites = sorted(home.glob("lib*/python3*/site-packages"))
    infos = [info for site in sites for info in metadata(site)]
    folders = [*sites, *(f for site in sites for f in _path_files(site))]
    folders += [folder for info in infos for folder in _editable(info)]
    importlib.invalidate_caches()
    spec = PathFinder.find_spec(PACKAGE, list(map(str, folders)))
    version = version_of(infos[0]) if infos else ""
    if spec and (origin := _origin(spec)):
        return Installed(package=Path(origin).parent, version=version)
    raise _none(str(home), version)


def metadata(folder: Path) -> list[Path]:
    """The sglang metadata folders in a folder; one beside its package is its own.

    One that an older installation has left behind comes after the package's.
    """
    found = [
        info
        for info in sorted(folder.glob(f"{PACKAGE}*-info"))
        if _METADATA.fullmatch(info.name) and info.is_dir()
    ]
    if len(found) < 2:
        return found
    told = {f"{PACKAGE}/{n}": head(folder / PACKAGE / n, 1 << 20) for n in _TELLING}
    rows = {record.row(path, content) for path, content in told.items()}

    def strange(info: Path) -> int:
        return len(rows.difference(head(info / "RECORD", 1 << 24).splitlines()))

    return sorted(found, key=strange)


def version_of(folder: Path) -> str:
    """What metadata, or a package itself, say that it is; may be empty."""
    for name in ("METADATA", "PKG-INFO", "_version.py"):
        text = head(folder / name)
        if found := _VERSION.search(text) or _WRITTEN_VERSION.search(text):
            return found[1].decode("ascii", "replace")
    return ""


def head(path: Path, size: int = _HEAD) -> bytes:
    """The beginning of a file; empty where there is no file."""
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as stream:
            return stream.read(size)
    except OSError:
        return b""


def _own() -> tuple[str, str]:
    spec = find_spec(PACKAGE)
    try:
        version = distributed_version(PACKAGE)
    except PackageNotFoundError:
        version = ""
    return _origin(spec) if spec else "", version


def _origin(spec: ModuleSpec) -> str:
    # A folder without __init__.py has none: it is only a part of a namespace,
    # such as the one that holds the files that our own series add.
    return spec.origin or ""


def _asked(python: str) -> tuple[str, str]:
    try:
        done = subprocess.run(
            [python, "-c", _ASK],
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise Precondition(f"{python} does not start", cause=str(error)) from error
    _, mark, said = done.stdout.decode("utf-8", "surrogateescape").rpartition(_MARK)
    try:
        return msgspec.convert(json.loads(said) if mark else None, tuple[str, str])
    except (ValueError, msgspec.ValidationError) as error:
        raise Precondition(
            f"{python} does not say where its packages are",
            cause=done.stderr.decode("utf-8", "replace")[-500:] or str(error),
            next_step="name the interpreter that SGLang runs with",
        ) from error


def _path_files(site: Path) -> Iterator[Path]:
    """The folders that ``.pth`` files add; what such a file would run is not."""
    for file in sorted(site.glob("*.pth")):
        for line in head(file).decode("utf-8", "replace").splitlines():
            if line.strip() and not line.startswith(("#", "import ", "import\t")):
                yield site / line.rstrip()


def _editable(info: Path) -> Iterator[Path]:
    """The source folder that an editable install was made from."""
    try:
        facts = json.loads(head(info / "direct_url.json"))
        url = urlsplit(facts["url"])
        editable = facts["dir_info"]["editable"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return
    if editable is True and url.scheme == "file":
        yield Path(unquote(url.path))


def _none(named: str, version: str) -> Precondition:
    return Precondition(
        f"{named} has no sglang",
        cause=f"its metadata say {version}, its package is not there" * bool(version),
        next_step="name its interpreter with --python, or a checkout as TARGET",
    )
