"""The text that a release's patches have of the files that all series share.

The clone holds one text of each added file. It asks for what releases differ in
by the names in :data:`FEATURES`, as ``if NAME:`` or ``X if NAME else Y``. What a
release's patches hold is derived: each question is answered for that release, and the
parts of the test kit that its series does not use are left out. The shared texts
are written so that every derived one is formatted as upstream wants it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from ..errors import Malformed
from ..model.series import is_test

KIT = "python/sglang/test/kits/"
FEATURES = f"{KIT}features.py"
IMPORTS = (ast.Import, ast.ImportFrom)

_WIDTH = 88
# What needs no parentheses, wherever it stands.
_ATOMS = (ast.Attribute, ast.Call, ast.Constant, ast.Name, ast.Subscript, ast.Tuple)

# The clone's text of each added file, or a release's, by path.
Texts = Mapping[str, bytes]


def features(texts: Texts) -> dict[str, str]:
    """The text of :data:`FEATURES` as data: by name, where a release has it.

    Raises:
        Malformed: it holds anything else.
    """
    found = {}
    for statement in _parse(FEATURES, texts.get(FEATURES, b"")).body[1:]:
        match statement:
            case ast.Assign([ast.Name(name)], ast.Constant(str(place))):
                found[name] = place
            case _:
                what = 'expected NAME = "FILE" or NAME = "FILE::TEXT"'
                raise Malformed(FEATURES, statement.lineno, what)
    return found


def answers(texts: Texts, root: Path) -> dict[str, bool]:
    """Which features the release at ``root`` has; empty where the clone names none."""

    def has(place: str) -> bool:
        path, _, text = place.partition("::")
        file = root / "python/sglang" / path
        return file.is_file() and text.encode() in file.read_bytes()

    return {name: has(place) for name, place in features(texts).items()}


def derive(texts: Texts, answers: Mapping[str, bool]) -> dict[str, bytes]:
    """One release's text of what a series adds; the clone's without answers.

    Raises:
        Malformed: a feature is asked for in a way that cannot be answered.
    """
    if not answers:
        return dict(texts)
    answered = {}
    for path, text in texts.items():
        if is_test(path) and path.endswith(".py"):
            asked = tuple((n, a) for n, a in answers.items() if n.encode() in text)
            answered[path] = _answered(path, text, asked)
    trees = {path: _parse(path, text) for path, text in answered.items()}
    for path, names in _used(trees).items():
        for name in sorted(names & answers.keys()):
            line = texts[path].partition(name.encode())[0].count(b"\n") + 1
            raise Malformed(path, line, f"{name} cannot be answered here")
        answered[path] = _only(path, answered[path], trees[path], names)
    return dict(texts) | answered


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


def module_path(module: str | None) -> str:
    """The file of a module of SGLang's package."""
    return f"python/{(module or '').replace('.', '/')}.py"


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


@lru_cache(maxsize=1024)
def _answered(path: str, text: bytes, asked: tuple[tuple[str, bool], ...]) -> bytes:
    """``text`` with every question answered, one after the other."""
    for node in ast.walk(_parse(path, text)) if asked else ():
        if isinstance(node, (ast.If, ast.IfExp)):
            answer = _answer(node.test, dict(asked))
            if answer is not None:
                choose = _statement if isinstance(node, ast.If) else _expression
                return _answered(path, choose(text, node, answer), asked)
    return text


def _answer(test: ast.expr, answers: Mapping[str, bool]) -> bool | None:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        answer = _answer(test.operand, answers)
        return None if answer is None else not answer
    return answers.get(test.id) if isinstance(test, ast.Name) else None


def _statement(text: bytes, node: ast.If, answer: bool) -> bytes:
    """``text`` with the chosen branch in the place of an ``if`` statement."""
    lines = text.splitlines(keepends=True)
    start, middle, end = node.lineno - 1, node.body[-1].end_lineno, node.end_lineno
    body, indent = lines[start + 1 : middle], b"    "
    while middle < end and not re.match(rb"\s*(else:|elif )", lines[middle]):
        middle += 1
    if not answer:
        body = lines[middle + 1 : end]
        if middle < end and b"elif" in lines[middle]:
            body, indent = [lines[middle].replace(b"elif", b"if", 1), *body], b""
    while body and not body[0].strip():
        del body[0]
    if body:
        lines[start:end] = [line.removeprefix(indent) for line in body]
    else:
        _delete(lines, start, end)
    return b"".join(lines)


def _expression(text: bytes, node: ast.IfExp, answer: bool) -> bytes:
    """``text`` with the chosen value in the place of a conditional expression."""
    chosen = node.body if answer else node.orelse
    (start, end), (first, last) = _span(text, node), _span(text, chosen)
    before, after = text[:start], text[end:]
    # Parentheses around the question go with it; those of a call stay.
    around = re.search(rb"(^|[^\w)\]])\(\s*\Z", before) and re.match(rb"\s*\)", after)
    if around and isinstance(chosen, _ATOMS):
        before, after = before.rstrip()[:-1], after[around.end() :]
    return before + text[first:last] + after


def _span(text: bytes, node: ast.expr) -> tuple[int, int]:
    lines = text.splitlines(keepends=True)
    start, end = (sum(map(len, lines[: n - 1])) for n in (node.lineno, node.end_lineno))
    return start + node.col_offset, end + node.end_col_offset


def _used(trees: Mapping[str, ast.Module]) -> dict[str, set[str]]:
    """The names of each file that are used, in it or, of the kit, in another.

    Args:
        trees: the tests and the kit, by path.
    """
    found = {path: set().union(*map(bound, t.body)) for path, t in trees.items()}
    last = None
    # What only unused parts use goes in the next round.
    while found != last:
        last, found = found, {path: set() for path in trees}
        for path, statement in ((p, s) for p, t in trees.items() for s in t.body):
            ours, kit = bound(statement), path.startswith(KIT)
            if isinstance(statement, IMPORTS):
                pairs = ((a.name, a.asname or a.name) for a in statement.names)
                names = {name for name, here in pairs if here in last[path]}
                other = module_path(getattr(statement, "module", ""))
                found.get(other, set()).update(names)
            elif not kit or not ours or ours & last[path]:
                found[path] |= _loaded(statement) - (ours if kit else set())
    return found


def _only(path: str, text: bytes, tree: ast.Module, kept: set[str]) -> bytes:
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
            _delete(lines, start, statement.end_lineno)
    return b"".join(lines)


def _import(statement: ast.ImportFrom, first: bytes, kept: set[str]) -> list[bytes]:
    """An import of what is used alone, as isort writes it."""
    aliases = (a for a in statement.names if (a.asname or a.name) in kept)
    shown = [ast.unparse(alias) for alias in aliases]
    start = f"from {statement.module} import "
    _, hash_, comment = first.decode().rstrip().partition("  #")
    line = f"{start}{', '.join(shown)}{hash_}{comment}"
    if len(line) <= _WIDTH:
        return [f"{line}\n".encode()]
    middle = (f"    {name},\n" for name in shown)
    return [s.encode() for s in (f"{start}({hash_}{comment}\n", *middle, ")\n")]


def _delete(lines: list[bytes], start: int, end: int) -> None:
    """Drop lines, the comment above them, and one of the gaps around them."""
    while start and re.match(rb"\s*#(?! isort)", lines[start - 1]):
        start -= 1
    if end == len(lines) or not lines[end].strip():
        while start and not lines[start - 1].strip():
            start -= 1
    del lines[start:end]


@lru_cache(maxsize=4096)
def _loaded(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}


def _parse(path: str, text: bytes) -> ast.Module:
    try:
        return parse(text)
    except SyntaxError as error:
        what = f"cannot be parsed: {error.msg}"
        raise Malformed(path, error.lineno or 0, what) from error
