"""What a TARGET is: an installed package, a checkout or a plain tree."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from ..errors import Usage
from . import installed
from .installed import PACKAGE, Installed

STATE_FOLDER = ".dspark-patches"

_SOURCES = "python"


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """An SGLang that can be looked at and changed.

    Attributes:
        kind: ``package`` is what an installer wrote; ``checkout`` has a git
            directory; ``tree`` is all else in the repository's layout.
        root: the folder that its places are relative to; holds no links.
        version: what it says that it is; empty where it says nothing.
        record: the place of the installer's list of files, if there is one.
        python: the interpreter that imports it, where that is known.
    """

    kind: Literal["package", "checkout", "tree"]
    root: Path
    version: str = ""
    record: str = ""
    python: str = ""

    @property
    def package(self) -> Path:
        """The folder that is imported as ``sglang``."""
        above = self.root if self.kind == "package" else self.root / _SOURCES
        return above / PACKAGE

    @property
    def runtime(self) -> Path:
        """The folder that holds the serving runtime."""
        return self.package / "srt"

    @property
    def state(self) -> str:
        """The place of our own folder while a change is under way."""
        inside = f"{PACKAGE}/" if self.kind == "package" else ""
        return inside + STATE_FOLDER

    def owns(self, place: str) -> bool:
        """Whether a change may write to ``place``."""
        if place.startswith(f"{self.state}/"):
            return False
        if self.kind == "package":
            return place.startswith(f"{PACKAGE}/") or place == self.record != ""
        return True

    def place(self, path: str) -> str:
        """Where the repository's file ``path`` stands below the root.

        Empty where this target does not carry that part of the repository.
        """
        if self.kind == "package":
            inside = path.startswith(f"{_SOURCES}/{PACKAGE}/")
            return path[len(_SOURCES) + 1 :] if inside else ""
        if self.kind == "checkout" or path.startswith(f"{_SOURCES}/"):
            return path
        return path if (self.root / path.partition("/")[0]).is_dir() else ""


def locate(target: Path | None, python: str | None = None) -> Target:
    """Find out what a target is.

    Args:
        target: a checkout, a tree, a package, the folder that holds one, or a
            virtual environment; None for what ``python`` imports.
        python: an interpreter; the one that runs this unless told.

    Raises:
        Usage: the target is nothing of that.
        Precondition: the interpreter does not start, or has no sglang.
    """
    if target is None:
        return _of(installed.find(python), python or "")
    if python is None and (target / "pyvenv.cfg").is_file():
        python = str(target / "bin" / "python")
        return _of(installed.find(python), python)
    target = target.absolute()
    for package in (target / _SOURCES / PACKAGE, target / PACKAGE, target):
        if package.name == PACKAGE and (package / "__init__.py").is_file():
            found = Installed(package=package, metadata=installed.beside(package))
            return _of(found, python or "")
    raise Usage(
        f"{target} holds no SGLang",
        cause=(
            f"expected {_SOURCES}/{PACKAGE} or {PACKAGE} in it"
            if target.is_dir()
            else "there is no such folder"
        ),
        next_step="name a checkout, a tree or a site-packages folder, "
        "or leave TARGET out and name an interpreter with --python",
    )


def _of(found: Installed, python: str) -> Target:
    # A package may be a link to where it is developed; that place counts.
    package = found.package.resolve()
    version = installed.version(package, found.metadata)
    metadata = found.metadata.resolve() if found.metadata else None
    wheel = metadata is not None and metadata.suffix == ".dist-info"
    if wheel and metadata.parent == package.parent:
        record = metadata / "RECORD"
        return Target(
            kind="package",
            root=package.parent,
            version=version,
            record=f"{metadata.name}/RECORD" if record.is_file() else "",
            python=python,
        )
    if package.parent.name == _SOURCES:
        root = package.parent.parent
        kind = "checkout" if (root / ".git").exists() else "tree"
        return Target(kind=kind, root=root, version=version, python=python)
    return Target(kind="package", root=package.parent, version=version, python=python)
