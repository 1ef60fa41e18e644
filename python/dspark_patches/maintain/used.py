"""What the tests of a series use of the test kit, and a text without the rest."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

KIT = "python/sglang/test/kits/"
IMPORTS = (ast.Import, ast.ImportFrom)

_WIDTH = 88


@lru_cache(maxsize=1024)
def parse(text: bytes) -> ast.Module:
    """A file's syntax tree; several releases may have the file alike.

    Raises:
        SyntaxError: it cannot be parsed.
    """
    try:
        return ast.parse(text)
    except (RecursionError, MemoryError) as error:
        raise SyntaxError("it nests too deep") from error
    except ValueError as error:
        raise SyntaxError(str(error)) from error


def module_path(module: str) -> str:
    """The file of a module of SGLang's package."""
    return f"python/{module.replace('.', '/')}.py"


def names(trees: Mapping[str, ast.Module]) -> dict[str, set[str]]:
    """The names of each file that are used, from the tests on through the kit.

    Args:
        trees: the tests and the kit, by path.
    """
    found: dict[str, set[str]] = {path: set() for path in trees}
    waiting = [
        (path, statement)
        for path, tree in trees.items()
        for statement in tree.body
        if not isinstance(statement, IMPORTS)
        and not (path.startswith(KIT) and bound(statement))
    ]
    while waiting:
        path, statement = waiting.pop()
        for name in _loaded(statement) - found[path]:
            found[path].add(name)
            waiting.extend(_definitions(trees, found, path, name))
    return found


def only(path: str, text: bytes, tree: ast.Module, kept: set[str]) -> bytes:
    """``text`` without imports that are not used; of the kit, without definitions."""
    lines = text.splitlines(keepends=True)
    for statement in reversed(tree.body):
        ours, imports = bound(statement), isinstance(statement, IMPORTS)
        decorators = getattr(statement, "decorator_list", [])
        start = min(node.lineno for node in (statement, *decorators)) - 1
        if ours <= kept or b"F401" in lines[start]:
            continue
        if imports and ours & kept:
            lines[start : statement.end_lineno] = _import(statement, lines[start], kept)
        elif imports or (path.startswith(KIT) and not ours & kept):
            delete(lines, start, statement.end_lineno)
    return b"".join(lines)


def delete(lines: list[bytes], start: int, end: int) -> None:
    """Drop lines, the comment above them, and one of the gaps around them."""
    while start and re.match(rb"\s*#(?! isort)", lines[start - 1]):
        start -= 1
    if end == len(lines) or not lines[end].strip():
        while start and not lines[start - 1].strip():
            start -= 1
    del lines[start:end]


def _definitions(
    trees: Mapping[str, ast.Module], found: dict[str, set[str]], path: str, name: str
) -> Iterator[tuple[str, ast.stmt]]:
    """What defines a name of a file, in it or in another file of the kit."""
    for statement in trees[path].body:
        if name not in bound(statement):
            continue
        if isinstance(statement, ast.ImportFrom):
            other = module_path(statement.module or "")
            (alias,) = (a for a in statement.names if name == (a.asname or a.name))
            if other in trees and alias.name not in found[other]:
                found[other].add(alias.name)
                yield from _definitions(trees, found, other, alias.name)
        elif path.startswith(KIT):
            yield path, statement


def _import(statement: ast.ImportFrom, first: bytes, kept: set[str]) -> list[bytes]:
    """An import of what is used alone, as isort writes it."""
    aliases = [a for a in statement.names if (a.asname or a.name) in kept]
    shown = [ast.unparse(alias) for alias in aliases]
    start = f"from {statement.module} import "
    _, hash_, comment = first.decode().rstrip().partition("  #")
    line = f"{start}{', '.join(shown)}{hash_}{comment}"
    if len(line) <= _WIDTH:
        return [f"{line}\n".encode()]
    middle = (f"    {name},\n" for name in shown)
    return [s.encode() for s in (f"{start}({hash_}{comment}\n", *middle, ")\n")]


@lru_cache(maxsize=16384)
def bound(statement: ast.stmt) -> set[str]:
    """The names that a statement defines or imports, but for the future's."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {statement.name}
    if isinstance(statement, IMPORTS):
        ours = getattr(statement, "module", "") != "__future__"
        return {a.asname or a.name for a in statement.names if ours}
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    return {target.id for target in targets if isinstance(target, ast.Name)}


@lru_cache(maxsize=4096)
def _loaded(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
