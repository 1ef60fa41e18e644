"""What a TARGET is: an installed package, a checkout or a plain tree."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from ..errors import Usage
from . import find
from .find import PACKAGE

Kind = Literal["package", "checkout", "tree"]

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

    kind: Kind
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
    """Find out what a target is; nothing of it is run.

    Args:
        target: a checkout, a tree, a package, the folder that holds one, or a
            virtual environment; None for what ``python`` imports.
        python: an interpreter; the one that runs this unless told.

    Raises:
        Usage: the target is none of these.
        Precondition: the interpreter does not start, or has no sglang.
    """
    if target is None:
        found = find.imported(python)
        return _of(found.package, python or "", found.version)
    target = target.absolute()
    for package in (target / _SOURCES / PACKAGE, target / PACKAGE, target):
        if package.name == PACKAGE and (package / "__init__.py").is_file():
            return _of(package, python or "")
    if (target / "pyvenv.cfg").is_file():
        found = find.in_environment(target)
        program = python or str(target / "bin" / "python")
        return _of(found.package, program, found.version)
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


def _of(package: Path, python: str, said: str = "") -> Target:
    """The target that a package belongs to.

    Args:
        package: the package; may be a link to where it is developed, and then
            that place counts.
        python: the interpreter that imports it, where that is known.
        said: what metadata elsewhere say that it is.
    """
    beside = find.metadata(package.parent)
    package = package.resolve()
    above = package.parent
    beside = find.metadata(above) or beside
    version = find.version_of(beside[0]) if beside else said
    version = version or find.version_of(package)
    wheel = bool(beside) and beside[0].suffix == ".dist-info"
    if above.name == _SOURCES and not (wheel and beside[0].parent == above):
        kind: Kind = "checkout" if (above.parent / ".git").exists() else "tree"
        return Target(kind=kind, root=above.parent, version=version, python=python)
    record = f"{beside[0].name}/RECORD" if wheel else ""
    if not (above / record).is_file():
        record = ""
    return Target(
        kind="package", root=above, version=version, record=record, python=python
    )
