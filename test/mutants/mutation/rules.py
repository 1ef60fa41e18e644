"""The rules that mutate a line of Python, each as an edit of the source.

Left out, as no test should pin them: messages (of an exception, an assertion or a
log), annotations and imports.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Collection, Iterator

from .mutant import Edit

_OPERATORS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),  # codespell:ignore
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"),
    ast.Mod: ("%", "//"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
_DROPPED = (
    ast.Expr,
    ast.Assign,
    ast.AugAssign,
    ast.AnnAssign,
    ast.Raise,
    ast.Assert,
    ast.Delete,
    ast.Continue,
    ast.Break,
)
_SKIPPED = (ast.JoinedStr, ast.Import, ast.ImportFrom, ast.arguments)


class Rules:
    """What the rules make of one file.

    Args:
        content: the file.
        lines: the numbers of the lines to mutate; an edit belongs to the line that
            it begins on.
    """

    def __init__(self, content: bytes, lines: Collection[int]) -> None:
        self._content = content
        self._lines = lines
        self._starts = [0]
        for line in content.split(b"\n"):
            self._starts.append(self._starts[-1] + len(line) + 1)

    def edits(self) -> Iterator[tuple[str, int, Edit]]:
        """Each mutation: the rule's name, the line and the edit."""
        for rule, start, end, text in self._visit(ast.parse(self._content)):
            line = self._content.count(b"\n", 0, start) + 1
            if line in self._lines and self._content[start:end] != text.encode():
                yield rule, line, (start, end, text)

    def _visit(self, node: ast.AST) -> Iterator[tuple[str, int, int, str]]:
        if isinstance(node, _SKIPPED) or _is_idle(node):
            if isinstance(node, ast.arguments):
                for default in (*node.defaults, *filter(None, node.kw_defaults)):
                    yield from self._visit(default)
            return
        yield from self._of(node)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "msg"):
                continue
            if isinstance(node, ast.Raise):
                # Which error it is counts for the tests; what it says does not.
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from self._visit(child)

    def _of(self, node: ast.AST) -> Iterator[tuple[str, int, int, str]]:
        if isinstance(node, _DROPPED):
            yield "drop", *self._span(node), "pass"
        elif isinstance(node, ast.Return):
            # Nobody tells a None from a False.
            if not isinstance(node.value, ast.Constant):
                yield "return None", *self._span(node), "return None"
        elif isinstance(node, (ast.If, ast.IfExp, ast.While)):
            for value in ("False",) if isinstance(node, ast.While) else _BOTH:
                yield f"condition {value}", *self._span(node.test), value
        elif isinstance(node, ast.For):
            yield "loop over nothing", *self._span(node.iter), "()"
        elif isinstance(node, ast.comprehension):
            for test in node.ifs:
                yield "condition True", *self._span(test), "True"
        elif isinstance(node, ast.Compare):
            yield from self._operators([node.left, *node.comparators], node.ops)
        elif isinstance(node, ast.BinOp):
            yield from self._operators([node.left, node.right], [node.op])
        elif isinstance(node, ast.BoolOp):
            yield from self._operators(node.values, [node.op] * len(node.values))
            neutral = str(isinstance(node.op, ast.And))
            for value in node.values:
                # A constant stands for a missing value, as in `count or 0`.
                if not isinstance(value, ast.Constant):
                    yield "drop operand", *self._span(value), neutral
        elif isinstance(node, ast.UnaryOp):
            if isinstance(node.op, (ast.Not, ast.USub)):
                start = self._span(node)[0]
                sign = "not" if isinstance(node.op, ast.Not) else "-"
                yield "drop sign", start, start + len(sign), ""
        elif isinstance(node, ast.Constant):
            yield from self._constant(node)
        elif isinstance(node, ast.Call):
            yield from self._call(node)

    def _span(self, node: ast.AST) -> tuple[int, int]:
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def _operators(self, operands, operators) -> Iterator[tuple[str, int, int, str]]:
        for left, right, operator in zip(operands, operands[1:], operators):
            if type(operator) not in _OPERATORS:
                continue
            old, new = _OPERATORS[type(operator)]
            at = self._content.index(old.encode(), self._span(left)[1])
            if at < self._span(right)[0]:
                yield "operator", at, at + len(old), new

    def _constant(self, node: ast.Constant) -> Iterator[tuple[str, int, int, str]]:
        if isinstance(node.value, bool):
            yield "constant", *self._span(node), str(not node.value)
        elif isinstance(node.value, int):
            for value in (node.value + 1, node.value - 1):
                text = str(value) if value >= 0 else f"({value})"
                yield "constant", *self._span(node), text

    def _call(self, node: ast.Call) -> Iterator[tuple[str, int, int, str]]:
        if isinstance(node.func, ast.Name) and node.func.id in _NAMES:
            yield "min, max", *self._span(node.func), _NAMES[node.func.id]
        changed = []
        for at in range(len(node.keywords)):
            changed.append(("drop argument", copy.copy(node)))
            changed[-1][1].keywords = node.keywords[:at] + node.keywords[at + 1 :]
        if node.args:
            changed.append(("drop argument", copy.copy(node)))
            changed[-1][1].args = node.args[:-1]
        # The least of two is that of the two, whichever comes first.
        if len(node.args) > 1 and ast.unparse(node.func) not in _NAMES:
            changed.append(("swap arguments", copy.copy(node)))
            changed[-1][1].args = [node.args[1], node.args[0], *node.args[2:]]
        for rule, call in changed:
            yield rule, *self._span(node), ast.unparse(call)


_BOTH = ("True", "False")


def code(content: bytes) -> str:
    """What a file does: its syntax, without docstrings and types.

    The text where it has no syntax."""
    try:
        tree = ast.parse(content)
    except SyntaxError:
        return content.decode()
    for node in ast.walk(tree):
        for field in {"annotation", "returns"}.intersection(node._fields):
            if not isinstance(node, ast.AnnAssign):
                setattr(node, field, None)
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [each for each in body if not _is_idle(each)]
    return ast.dump(tree)


def _is_idle(node: ast.AST) -> bool:
    """Whether a statement is a docstring, a log or for type checkers alone."""
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    if not isinstance(node, ast.Expr):
        return False
    if isinstance(node.value, ast.Constant):
        return True
    function = node.value.func if isinstance(node.value, ast.Call) else None
    owner = function.value if isinstance(function, ast.Attribute) else None
    return isinstance(owner, ast.Name) and owner.id in ("logger", "logging")
