"""No room imports one above it, and every module has a place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import dspark_patches

ROOT = Path(dspark_patches.__file__).parent
GROUND = (
    "errors",
    "files",
    "findings",
    "git",
    "options",
    "report",
)
ROOMS = ("model", "trees", "installs", "proof", "port", "maintain")
TOP = ("cli", "__main__")


def floor(module: str) -> int:
    """How high a module stands, 0 being the ground."""
    room, _, inside = module.partition(".")
    assert room in (*GROUND, *ROOMS, *TOP), f"{module} has no room"
    if inside or room in ROOMS:
        return 1 + ROOMS.index(room)
    return 0 if room in GROUND else 1 + len(ROOMS) + TOP.index(room)


def modules() -> dict[str, Path]:
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for path in ROOT.rglob("*.py")
        if path.name != "__init__.py" and "stubs" not in path.parts
    }


def imported(module: str, path: Path) -> Iterator[str]:
    """The modules and rooms of ours that a module imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            above = module.split(".")[: -node.level]
            place = [*above, *filter(None, [node.module])]
            for alias in node.names:
                name = ".".join([*place, alias.name])
                if name in modules() or place:
                    yield name if name in modules() else ".".join(place)


def test_nothing_is_imported_from_a_floor_above():
    upward = [
        f"{module} imports {other}"
        for module, path in modules().items()
        for other in imported(module, path)
        if floor(other) > floor(module)
    ]
    assert upward == []
