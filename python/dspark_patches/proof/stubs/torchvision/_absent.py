"""Names that resolve on import and raise by name when they are used."""

from __future__ import annotations

from typing import Any, Callable


class Absent:
    """A class or function of the real package, which is not installed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"{self._name} is not available: this torchvision is the import-level "
            "stand-in of dspark-patches, since no CPU build matches the torch in use"
        )


def resolver(module: str) -> Callable[[str], Absent]:
    """A module-level ``__getattr__`` for ``module``.

    Private and dunder names stay missing, so that the import system and
    feature probes see an ordinary module.
    """

    def __getattr__(name: str) -> Absent:
        if name.startswith("_"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return Absent(f"{module}.{name}")

    return __getattr__
