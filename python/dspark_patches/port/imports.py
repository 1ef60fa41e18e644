"""Import statements, compared by what they import and not by how they are laid out."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator, Mapping
from functools import lru_cache

from ..model.hunks import lines_of

_WIDTH = 88

Imports = dict[tuple[int, str], tuple[ast.ImportFrom, ...]]


@lru_cache(maxsize=64)
def parse(source: bytes) -> ast.Module | None:
    """A Python file's syntax tree; None where it cannot be parsed."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def statements(source: bytes) -> Iterator[ast.AST]:
    """A Python file's statements, level by level; no definition is in an expression."""
    todo = deque([parse(source) or ast.Module([], [])])
    while todo:
        node = todo.popleft()
        yield node
        children = ast.iter_child_nodes(node)
        todo.extend(one for one in children if not isinstance(one, ast.expr))


@lru_cache(maxsize=64)
def imported(source: bytes) -> tuple[set[str], set[int]]:
    """What a file's ``from`` imports name, and the lines that they stand on."""
    names: set[str] = set()
    lines: set[int] = set()
    for node in statements(source):
        if isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            names |= {f"{module} {ast.unparse(one)}" for one in node.names}
            lines |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return names, lines


def aligned(base: bytes, ours: bytes, theirs: bytes) -> tuple[bytes, bytes] | None:
    """``base`` and ``theirs`` with our import statements, where those differ.

    One import that a fork has widened would else be a conflict with a patch that
    adds a name to it.

    Returns:
        ``base`` with our statement of each module that both sides changed, and
        ``theirs`` with ours and what they add; None when that changes nothing.
    """
    known = [_statements(text) for text in (base, ours, theirs)]
    old: dict[ast.ImportFrom, bytes] = {}
    new: dict[ast.ImportFrom, bytes] = {}
    for key in known[0].keys() & known[1].keys() & known[2].keys():
        found = [one[key] for one in known]
        if any(len(one) != 1 for one in found):
            continue
        was, mine, wanted = (one[0] for one in found)
        before, here, after = (_names(one) for one in (was, mine, wanted))
        if before in (here, after):
            continue
        lines = lines_of(ours)[mine.lineno - 1 : mine.end_lineno]
        old[was] = b"".join(lines)
        new[wanted] = _render(mine, (here | after) - (before - after))
    if not old:
        return None
    return _replaced(base, old), _replaced(theirs, new)


def _statements(source: bytes) -> Imports:
    found: Imports = {}
    for node in (parse(source) or ast.Module([], [])).body:
        if isinstance(node, ast.ImportFrom):
            key = node.level, node.module or ""
            found[key] = (*found.get(key, ()), node)
    return found


def _names(node: ast.ImportFrom) -> set[str]:
    return {ast.unparse(one) for one in node.names}


def _render(node: ast.ImportFrom, names: set[str]) -> bytes:
    """The statement as isort writes it: constants, classes, then the rest."""

    def kind(name: str) -> tuple[int, str]:
        word = name.split(" ")[0]
        return (0 if word.isupper() else 1 if word[0].isupper() else 2), name

    ordered = sorted(names, key=kind)
    head = f"from {'.' * node.level}{node.module or ''} import "
    line = head + ", ".join(ordered)
    if len(line) > _WIDTH:
        line = head + "(\n" + "".join(f"    {name},\n" for name in ordered) + ")"
    return f"{line}\n".encode()


def _replaced(source: bytes, texts: Mapping[ast.ImportFrom, bytes]) -> bytes:
    lines = lines_of(source)
    for node in sorted(texts, key=lambda one: -one.lineno):
        lines[node.lineno - 1 : node.end_lineno] = [texts[node]]
    return b"".join(lines)
