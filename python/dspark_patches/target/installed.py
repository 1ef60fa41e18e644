"""Find the sglang that a Python would import, without importing it."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from ..errors import Precondition
from ..lines import MAX_BYTES

PACKAGE = "sglang"

_MARK = "dspark-patches:"
# What a start-up file of that installation prints stands before the mark.
_ASK = f"import json, sys; print('\\n{_MARK}' + json.dumps(sys.path))"
_TIMEOUT = 60
_HEAD = 16_384
_METADATA = re.compile(rf"{PACKAGE}(-.*)?\.(dist|egg)-info")
_VERSION = re.compile(rb"^Version: *(\S+)\s*$", re.MULTILINE)
_WRITTEN_VERSION = re.compile(
    rb"^__version__(?: = version)? = ['\"]([^'\"\s]+)['\"]", re.MULTILINE
)


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """An installed sglang.

    Attributes:
        package: the folder that is imported as ``sglang``.
        metadata: its ``.dist-info`` or ``.egg-info`` folder, if there is one.
    """

    package: Path
    metadata: Path | None = None


def find(python: str | None = None) -> Installed:
    """The sglang that an interpreter imports.

    Args:
        python: the interpreter; the one that runs this unless told.

    Raises:
        Precondition: the interpreter does not start, or has no sglang.
    """
    # It is started in another folder, but named in this one.
    if python and os.sep in python:
        python = os.path.abspath(python)
    path = _search_path(python) if python else [p for p in sys.path if p]
    folders = [Path(entry) for entry in path]
    metadata = next(_metadata(folders), None)
    package = next(_packages(folders, metadata), None)
    if package:
        return Installed(package=package, metadata=metadata)
    named = python or sys.executable
    raise Precondition(
        f"{named} has no sglang",
        cause=(
            f"its metadata are there ({metadata}), its package is not"
            if metadata
            else ""
        ),
        next_step="name its interpreter with --python, or a checkout as TARGET",
    )


def beside(package: Path) -> Path | None:
    """The metadata that stand beside a package."""
    return next(_metadata([package.parent]), None)


def version(package: Path, metadata: Path | None) -> str:
    """What an installation or a built tree says that it is; may be empty."""
    for folder, names in (
        (metadata, ("METADATA", "PKG-INFO")),
        (package, ("_version.py",)),
    ):
        for name in names:
            text = _head(folder / name) if folder else b""
            found = _VERSION.search(text) or _WRITTEN_VERSION.search(text)
            if found:
                return found[1].decode("ascii", "replace")
    return ""


def _search_path(python: str) -> list[str]:
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
        path = msgspec.convert(json.loads(said) if mark else None, list[str])
    except (ValueError, msgspec.ValidationError) as error:
        raise Precondition(
            f"{python} does not say where its packages are",
            cause=done.stderr.decode("utf-8", "replace")[-500:] or str(error),
            next_step="name the interpreter that SGLang runs with",
        ) from error
    return [entry for entry in path if entry]


def _packages(folders: Sequence[Path], metadata: Path | None) -> Iterator[Path]:
    """Where the package may be, in the order in which Python would look."""
    for folder in folders:
        yield from _existing(folder / PACKAGE)
    for folder in folders:
        for finder in sorted(folder.glob(f"__editable___{PACKAGE}_*_finder.py")):
            yield from _mapped(finder)
    if metadata:
        yield from _editable(metadata)


def _existing(package: Path) -> Iterator[Path]:
    # Without this file a folder is only a part of a namespace, such as the
    # one that holds the files that our own series add.
    if (package / "__init__.py").is_file():
        yield package


def _mapped(finder: Path) -> Iterator[Path]:
    """Where setuptools' finder of an editable install leads."""
    try:
        tree = ast.parse(_head(finder, MAX_BYTES))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for statement in tree.body:
        if isinstance(statement, ast.AnnAssign):
            names = [statement.target]
        else:
            names = getattr(statement, "targets", [])
        if not any(isinstance(n, ast.Name) and n.id == "MAPPING" for n in names):
            continue
        try:
            mapping = msgspec.convert(ast.literal_eval(statement.value), dict[str, str])
        except (ValueError, TypeError, msgspec.ValidationError):
            continue
        if PACKAGE in mapping:
            yield from _existing(Path(mapping[PACKAGE]))


def _editable(metadata: Path) -> Iterator[Path]:
    """The source folder that an editable install was made from."""
    try:
        facts = json.loads(_head(metadata / "direct_url.json"))
        url = urlsplit(facts["url"])
        editable = facts["dir_info"]["editable"]
    except (ValueError, KeyError, TypeError):
        return
    if editable is True and url.scheme == "file":
        yield from _existing(Path(unquote(url.path)) / PACKAGE)


def _metadata(folders: Sequence[Path]) -> Iterator[Path]:
    for folder in folders:
        for found in sorted(folder.glob(f"{PACKAGE}*-info")):
            if _METADATA.fullmatch(found.name) and found.is_dir():
                yield found


def _head(path: Path, size: int = _HEAD) -> bytes:
    """The beginning of a file; empty where there is no file."""
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as stream:
            return stream.read(size)
    except OSError:
        return b""
