"""Which function or class each line of a Python file stands in."""

from __future__ import annotations

import ast
from bisect import bisect_right

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def parse(source: bytes) -> ast.Module | None:
    """A Python file's syntax tree; None where it cannot be parsed."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class Scopes:
    """The functions and classes of one file, by line.

    Args:
        tree: its syntax tree; one that is empty has one scope.
    """

    def __init__(self, tree: ast.Module) -> None:
        self._starts = [0]
        self._names = [""]
        self._enter(tree, "")

    def at(self, line: int) -> str:
        """The scope of a line, such as ``Class.method``; empty outside of all."""
        return self._names[bisect_right(self._starts, line) - 1]

    def _enter(self, node: ast.AST, name: str) -> None:
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, _SCOPES):
                # No function or class stands within an expression.
                if not isinstance(child, ast.expr):
                    self._enter(child, name)
                continue
            inner = f"{name}.{child.name}" if name else child.name
            decorators = [one.lineno for one in child.decorator_list]
            self._begin(min([child.lineno, *decorators]), inner)
            self._enter(child, inner)
            self._begin((child.end_lineno or child.lineno) + 1, name)

    def _begin(self, line: int, name: str) -> None:
        # A scope may end on the line on which the next one begins.
        if self._starts[-1] >= line:
            self._names[-1] = name
            return
        self._starts.append(line)
        self._names.append(name)
