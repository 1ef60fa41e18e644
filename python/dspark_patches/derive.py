"""The text that a release's mails have of the files that all series share.

The clone holds one text of each added file. It asks for what releases differ in
by names of :data:`FEATURES`, as ``if NAME:`` or ``X if NAME else Y``. What a
base's mails hold is derived: each question is answered for that release, and
what its series does not use of the test kit then is left out. The sources are
written so that every release's text is formatted as upstream wants it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from .lines import Malformed
from .series import is_test

KIT = "python/sglang/test/kits/"
FEATURES = f"{KIT}features.py"

_WIDTH = 88
_ATOMS = (
    ast.Attribute,
    ast.Call,
    ast.Constant,
    ast.Dict,
    ast.List,
    ast.Name,
    ast.Subscript,
    ast.Tuple,
)


def places(source: bytes | None) -> dict[str, str]:
    """The text of :data:`FEATURES` as data: by name, where a release has it.

    Raises:
        Malformed: it holds anything else.
    """
    found = {}
    for statement in _parse(FEATURES, source or b"").body[1:]:
        match statement:
            case ast.Assign([ast.Name(name)], ast.Constant(str(place))):
                found[name] = place
            case _:
                what = 'expected NAME = "FILE" or NAME = "FILE::SYMBOL"'
                raise Malformed(FEATURES, statement.lineno, what)
    return found


def features(sources: Path, root: Path) -> dict[str, bool]:
    """Which features a release has, by name; none where none is asked for.

    Args:
        sources: the clone.
        root: the release's tree; it holds ``python/sglang``.

    Raises:
        Malformed: the list of features, or a file of the release, is broken.
    """
    file = sources / FEATURES
    named = places(file.read_bytes() if file.is_file() else None)
    return {name: _has(root / "python/sglang", place) for name, place in named.items()}


def derive(texts: Mapping[str, bytes], answers: Mapping[str, bool]) -> dict[str, bytes]:
    """One release's text of what a series adds.

    Args:
        texts: the clone's text of each added file, by path.
        answers: which features the release has; none leaves all as it is.

    Returns:
        The release's texts.

    Raises:
        Malformed: a question is asked where it cannot be answered.
    """
    if not answers:
        return dict(texts)
    ours = {p: t for p, t in texts.items() if is_test(p) and p.endswith(".py")}
    folded = {path: _fold(path, text, answers) for path, text in ours.items()}
    trees = {path: _parse(path, text) for path, text in folded.items()}
    return dict(texts) | {
        path: _without(folded[path], trees[path], live, path.startswith(KIT))
        for path, live in _reached(trees).items()
    }


def _has(package: Path, place: str) -> bool:
    """Whether ``FILE`` is in a package, or defines the symbol of ``FILE::SYMBOL``."""
    path, _, symbol = place.partition("::")
    file = package / path
    if not file.is_file():
        return False
    body = _parse(path, file.read_bytes()).body if symbol else []
    for name in filter(None, symbol.split(".")):
        found = [s for s in body if name in _bound(s)]
        if not found:
            return False
        body = getattr(found[0], "body", [])
    return True


# Questions.


@lru_cache(maxsize=1024)
def _answered(path: str, text: bytes, answers: tuple[tuple[str, bool], ...]) -> bytes:
    known = dict(answers)
    while True:
        for node in ast.walk(_parse(path, text)):
            if isinstance(node, (ast.If, ast.IfExp)):
                answer = _answer(node.test, known)
                if answer is not None:
                    break
        else:
            return text
        fold = _fold_statement if isinstance(node, ast.If) else _fold_expression
        text = fold(text, node, answer)


def _fold(path: str, text: bytes, answers: Mapping[str, bool]) -> bytes:
    """``text`` with every question answered."""
    asked = tuple((n, a) for n, a in answers.items() if n.encode() in text)
    return _answered(path, text, asked) if asked else text


def _answer(test: ast.expr, answers: Mapping[str, bool]) -> bool | None:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        answer = _answer(test.operand, answers)
        return None if answer is None else not answer
    return answers.get(test.id) if isinstance(test, ast.Name) else None


def _fold_statement(text: bytes, node: ast.If, answer: bool) -> bytes:
    lines = text.splitlines(keepends=True)
    last_of_body = node.body[-1].end_lineno
    otherwise = last_of_body
    if node.orelse:
        while not lines[otherwise].lstrip().startswith((b"else:", b"elif ")):
            otherwise += 1
    start, end = node.lineno - 1, node.end_lineno
    if node.orelse and not answer and lines[otherwise].lstrip().startswith(b"elif"):
        chosen = [
            lines[otherwise].replace(b"elif", b"if", 1),
            *lines[otherwise + 1 : end],
        ]
    else:
        first, stop = (
            (node.test.end_lineno, last_of_body) if answer else (otherwise + 1, end)
        )
        block = lines[first:stop] if answer or node.orelse else []
        chosen = [line.removeprefix(b"    ") for line in block]
        while chosen and not chosen[0].strip():
            del chosen[0]
    if chosen:
        lines[start:end] = chosen
    else:
        _delete(lines, start, end)
    return b"".join(lines)


def _fold_expression(text: bytes, node: ast.IfExp, answer: bool) -> bytes:
    chosen = node.body if answer else node.orelse
    start, end = _span(text, node)
    first, stop = _span(text, chosen)
    before, after = text[:start], text[end:]
    # Parentheses around the question alone go with it; those of a call stay.
    if isinstance(chosen, _ATOMS) and re.search(rb"(^|[^\w)\]])\(\s*\Z", before):
        if after.lstrip().startswith(b")"):
            before = before.rstrip()[:-1]
            after = after.lstrip()[1:]
    return before + text[first:stop] + after


def _span(text: bytes, node: ast.expr) -> tuple[int, int]:
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    first = starts[node.lineno - 1] + node.col_offset
    return first, starts[node.end_lineno - 1] + node.end_col_offset


# What is used.


def _reached(trees: Mapping[str, ast.Module]) -> dict[str, set[str]]:
    """The names of each file that the series' tests use, however far round."""
    reached: dict[str, set[str]] = {path: set() for path in trees}
    waiting: list[tuple[str, ast.stmt]] = [
        (path, statement)
        for path, tree in trees.items()
        for statement in tree.body
        if not _is_import(statement)
        and (not path.startswith(KIT) or not _bound(statement))
    ]
    while waiting:
        path, statement = waiting.pop()
        for name in _used(statement) - reached[path]:
            reached[path].add(name)
            waiting.extend(_definitions(trees, reached, path, name))
    return reached


def _definitions(
    trees: Mapping[str, ast.Module], reached: dict[str, set[str]], path: str, name: str
) -> Iterator[tuple[str, ast.stmt]]:
    """What a name of a file stands for, in that file or in another of the kit."""
    for statement in trees[path].body:
        if not _is_import(statement):
            if path.startswith(KIT) and name in _bound(statement):
                yield path, statement
            continue
        for alias in statement.names:
            if name != (alias.asname or alias.name):
                continue
            module = getattr(statement, "module", None) or alias.name
            other = f"python/{module.replace('.', '/')}.py"
            if other in trees and alias.name not in reached[other]:
                reached[other].add(alias.name)
                yield from _definitions(trees, reached, other, alias.name)


def _without(text: bytes, tree: ast.Module, live: set[str], whole: bool) -> bytes:
    """``text`` without imports and, as a ``whole``, definitions that are not live."""
    lines = text.splitlines(keepends=True)
    for statement in reversed(tree.body):
        bound = _bound(statement)
        start = min(s.lineno for s in (statement, *_decorators(statement))) - 1
        if not bound or bound <= live or b"F401" in lines[start]:
            continue
        if not bound & live:
            if whole or _is_import(statement):
                _delete(lines, start, statement.end_lineno)
        elif _is_import(statement):
            lines[start : statement.end_lineno] = _import(statement, lines[start], live)
    return b"".join(lines)


def _import(statement: ast.ImportFrom, first: bytes, live: set[str]) -> list[bytes]:
    """An import of what is live alone, as isort writes it."""
    kept = [
        f"{a.name} as {a.asname}" if a.asname else a.name
        for a in statement.names
        if (a.asname or a.name) in live
    ]
    start = f"from {statement.module} import "
    _, hash_, comment = first.decode().rstrip().partition("  #")
    comment = hash_ + comment
    line = f"{start}{', '.join(kept)}{comment}"
    if len(line) <= _WIDTH:
        return [f"{line}\n".encode()]
    middle = (f"    {name},\n" for name in kept)
    return [s.encode() for s in (f"{start}({comment}\n", *middle, ")\n")]


def _delete(lines: list[bytes], start: int, end: int) -> None:
    """Drop lines with the comment on them, and one of the gaps around them."""
    while start and re.match(rb"\s*#(?! isort)", lines[start - 1]):
        start -= 1
    if end == len(lines) or not lines[end].strip():
        while start and not lines[start - 1].strip():
            start -= 1
    del lines[start:end]


def _bound(statement: ast.stmt) -> set[str]:
    """The names that a statement defines or imports."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {statement.name}
    if _is_import(statement):
        if getattr(statement, "module", "") == "__future__":
            return set()
        return {(alias.asname or alias.name) for alias in statement.names}
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _used(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}


def _is_import(statement: ast.stmt) -> bool:
    return isinstance(statement, (ast.Import, ast.ImportFrom))


def _decorators(statement: ast.stmt) -> list[ast.expr]:
    return getattr(statement, "decorator_list", [])


@lru_cache(maxsize=1024)
def _parse(path: str, text: bytes) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", 0) or 0
        raise Malformed(path, line, f"cannot be parsed: {error}") from error
