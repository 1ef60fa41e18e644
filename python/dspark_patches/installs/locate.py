"""What a TARGET is: an installed package, a checkout or a plain tree.

Of a target nothing is imported or run; an interpreter is started only when the
user named it, and asked where it would import sglang from.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

import msgspec

from ..errors import Precondition, Usage
from . import record

Kind = Literal["package", "checkout", "tree"]

PACKAGE = "sglang"
_SOURCES = "python"

_MARK = "dspark-patches:"
# What a start-up file of that installation prints stands before the mark.
_ASK = f"""\
import json
from importlib import metadata, util
spec = util.find_spec({PACKAGE!r})
found = [one.version for one in metadata.distributions(name={PACKAGE!r})]
print("\\n{_MARK}" + json.dumps([spec and spec.origin or "", (found or [""])[0]]))
"""
_METADATA = re.compile(rf"{PACKAGE}(-.*)?\.(dist|egg)-info")
_VERSION = re.compile(
    rb"^(?:Version: *(\S+)\s*$|__version__(?: = version)? = ['\"]([^'\"\s]+)['\"])",
    re.MULTILINE,
)


class Target(msgspec.Struct, frozen=True):
    """An SGLang that can be read and changed.

    A ``package`` is what an installer wrote, a ``checkout`` has a git directory, a
    ``tree`` is all else in the repository's layout.
    """

    kind: Kind
    root: Path  # what its places are relative to; holds no links
    version: str = ""  # what it says that it is
    record: str = ""  # the place of the installer's list of files, if there is one
    python: str = ""  # the interpreter that imports it, where that is known

    @property
    def package(self) -> Path:
        """The folder that is imported as ``sglang``."""
        above = self.root if self.kind == "package" else self.root / _SOURCES
        return above / PACKAGE

    def place(self, path: str) -> str:
        """Where the repository's file ``path`` stands below the root, if carried."""
        if self.kind == "package":
            inside = path.startswith(f"{_SOURCES}/{PACKAGE}/")
            return path[len(_SOURCES) + 1 :] if inside else ""
        if self.kind == "checkout" or path.startswith(f"{_SOURCES}/"):
            return path
        return path if (self.root / path.partition("/")[0]).is_dir() else ""


def locate(target: Path | None, python: str | None = None) -> Target:
    """Find out what a target is.

    It may be a checkout, a tree, a package, the folder that holds one, or a virtual
    environment; None is what ``python``, or else our own interpreter, imports.

    Raises:
        Usage: the target is none of these.
        Precondition: the interpreter does not start, or has no sglang.
    """
    if target is None:
        origin, version = _asked(python) if python else _own()
        package = Path(origin).parent if Path(origin).name == "__init__.py" else None
        return _of(package, python or "", version, python or sys.executable)
    target = target.absolute()
    for package in (target / _SOURCES / PACKAGE, target / PACKAGE, target):
        if package.name == PACKAGE and (package / "__init__.py").is_file():
            return _of(package, python or "")
    if (target / "pyvenv.cfg").is_file():
        package, version = _in_environment(target)
        program = python or str(target / "bin" / "python")
        return _of(package, program, version, str(target))
    why = f"expected {_SOURCES}/{PACKAGE} or {PACKAGE} in it"
    why = why if target.is_dir() else "there is no such folder"
    hint = "name a checkout, a tree or a site-packages folder; or --python, no TARGET"
    raise Usage(f"{target} holds no SGLang", cause=why, next_step=hint)


def _of(package: Path | None, python: str, said: str = "", asked: str = "") -> Target:
    """The target that a package belongs to.

    The package may be a link to where it is developed: then that place counts. What
    metadata elsewhere ``said`` is its version is believed last.
    """
    if not package:
        why = f"its metadata say {said}, its package is not there" if said else ""
        hint = "name its interpreter with --python, or a checkout as TARGET"
        raise Precondition(f"{asked} has no sglang", cause=why, next_step=hint)
    linked, package = package.parent, package.resolve()
    above = package.parent
    info = next(iter(_metadata(above) or _metadata(linked)), None)
    version = (_version(info) if info else said) or _version(package)
    wheel = info and info.suffix == ".dist-info"
    if above.name == _SOURCES and not (wheel and info.parent == above):
        kind: Kind = "checkout" if (above.parent / ".git").exists() else "tree"
        return Target(kind, above.parent, version, python=python)
    listed = f"{info.name}/RECORD" if wheel else ""
    listed = listed if (above / listed).is_file() else ""
    return Target("package", above, version, listed, python)


def _own() -> tuple[str, str]:
    spec = find_spec(PACKAGE)
    versions = [one.version for one in distributions(name=PACKAGE)]
    # A folder without __init__.py has no origin: it is only a part of a namespace,
    # such as the one that holds the files that our own series add.
    return spec and spec.origin or "", (versions or [""])[0]


def _asked(python: str) -> tuple[str, str]:
    # It is started in another folder, but named in this one.
    program = os.path.abspath(python) if os.sep in python else python
    pipes = {"stdin": subprocess.DEVNULL, "capture_output": True}
    try:
        done = subprocess.run([program, "-c", _ASK], cwd="/", timeout=60, **pipes)
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise Precondition(f"{python} does not start", cause=str(error)) from error
    _, mark, said = done.stdout.decode("utf-8", "surrogateescape").rpartition(_MARK)
    try:
        return msgspec.convert(json.loads(said) if mark else None, tuple[str, str])
    except (ValueError, msgspec.ValidationError) as error:
        what = f"{python} does not say where its packages are"
        why = done.stderr.decode("utf-8", "replace")[-500:] or str(error)
        hint = "name the interpreter that SGLang runs with"
        raise Precondition(what, cause=why, next_step=hint) from error


def _in_environment(home: Path) -> tuple[Path | None, str]:
    """The sglang of a virtual environment and its version; None is no package."""
    sites = sorted(home.glob("lib*/python3*/site-packages"))
    infos = [info for site in sites for info in _metadata(site)]
    folders = [*sites, *(folder for site in sites for folder in _path_files(site))]
    folders += [folder for info in infos for folder in _editable(info)]
    packages = (folder / PACKAGE for folder in folders)
    found = (package for package in packages if (package / "__init__.py").is_file())
    return next(found, None), _version(infos[0]) if infos else ""


def _metadata(folder: Path) -> list[Path]:
    """The sglang metadata folders in a folder; one beside its package is its own.

    One that an older installation has left behind comes after the package's.
    """
    infos = sorted(folder.glob(f"{PACKAGE}*-info"))
    infos = [info for info in infos if _METADATA.fullmatch(info.name) and info.is_dir()]
    if len(infos) < 2:
        return infos
    places = [f"{PACKAGE}/{n}" for n in ("__init__.py", "version.py", "_version.py")]
    rows = {record.row(place, _head(folder / place)) for place in places}
    listed = {i: _head(i / "RECORD", 1 << 24).splitlines() for i in infos}
    return sorted(infos, key=lambda info: len(rows.difference(listed[info])))


def _version(folder: Path) -> str:
    """What metadata, or a package itself, say that it is; may be empty."""
    for name in ("METADATA", "PKG-INFO", "_version.py"):
        if found := _VERSION.search(_head(folder / name)):
            return (found[1] or found[2]).decode("ascii", "replace")
    return ""


def _head(path: Path, size: int = 1 << 20) -> bytes:
    """The beginning of a file; empty where there is no file."""
    with suppress(OSError):
        if path.is_file():
            with path.open("rb") as stream:
                return stream.read(size)
    return b""


def _path_files(site: Path) -> Iterator[Path]:
    """The folders that ``.pth`` files add; what such a file would run is not."""
    for file in sorted(site.glob("*.pth")):
        for line in _head(file).decode("utf-8", "replace").splitlines():
            if line.strip() and not line.startswith(("#", "import ", "import\t")):
                yield site / line.rstrip()


def _editable(info: Path) -> Iterator[Path]:
    """The source folder that an editable install was made from."""
    with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
        facts = json.loads(_head(info / "direct_url.json"))
        url = urlsplit(facts["url"])
        if facts["dir_info"]["editable"] is True and url.scheme == "file":
            yield Path(unquote(url.path))
