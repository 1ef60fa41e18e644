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
from . import used

FEATURES = f"{used.KIT}features.py"

# What needs no parentheses, wherever it stands.
_ATOMS = (ast.Attribute, ast.Call, ast.Constant, ast.Name, ast.Subscript, ast.Tuple)

Answers = tuple[tuple[str, bool], ...]


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
                what = 'expected NAME = "FILE" or NAME = "FILE::TEXT"'
                raise Malformed(FEATURES, statement.lineno, what)
    return found


def features(sources: Path, root: Path) -> dict[str, bool]:
    """Which features a release has, by name; empty where the clone names none.

    Args:
        sources: the clone.
        root: the release's tree; it holds ``python/sglang``.

    Raises:
        Malformed: the list of features is broken.
    """
    file = sources / FEATURES
    named = places(file.read_bytes() if file.is_file() else None)
    return {name: _has(root / "python/sglang", place) for name, place in named.items()}


def derive(
    texts: Mapping[str, bytes], features: Mapping[str, bool]
) -> dict[str, bytes]:
    """One release's text of what a series adds.

    Args:
        texts: the clone's text of each added file, by path.
        features: which features the release has; empty leaves all as it is.

    Raises:
        Malformed: a feature is asked for in a way that cannot be answered.
    """
    if not features:
        return dict(texts)
    asking = {p: t for p, t in texts.items() if is_test(p) and p.endswith(".py")}
    answered = {}
    for path, text in asking.items():
        asked = tuple((n, a) for n, a in features.items() if n.encode() in text)
        answered[path] = _answered(path, text, asked)
    trees = {path: _parse(path, text) for path, text in answered.items()}
    for path, names in used.names(trees).items():
        for name in sorted(names & features.keys()):
            line = texts[path].partition(name.encode())[0].count(b"\n") + 1
            raise Malformed(path, line, f"{name} cannot be answered here")
        answered[path] = used.only(path, answered[path], trees[path], names)
    return dict(texts) | answered


def _has(package: Path, place: str) -> bool:
    """Whether a package has ``FILE``, or the text of ``FILE::TEXT`` in it."""
    path, _, text = place.partition("::")
    file = package / path
    return file.is_file() and text.encode() in file.read_bytes()


@lru_cache(maxsize=1024)
def _answered(path: str, text: bytes, asked: Answers) -> bytes:
    """``text`` with every question answered, one after the other."""
    answers = dict(asked)
    questions = True
    while asked and questions:
        questions = [
            (node, answer)
            for node in ast.walk(_parse(path, text))
            if isinstance(node, (ast.If, ast.IfExp))
            and (answer := _answer(node.test, answers)) is not None
        ]
        for node, answer in questions[:1]:
            choose = _statement if isinstance(node, ast.If) else _expression
            text = choose(text, node, answer)
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
    while middle < end and not re.match(rb"\s*(else:|elif )", lines[middle]):
        middle += 1
    if answer:
        chosen = lines[start + 1 : node.body[-1].end_lineno]
    elif middle < end and lines[middle].lstrip().startswith(b"elif"):
        lines[start:end] = [
            lines[middle].replace(b"el", b"", 1),
            *lines[middle + 1 : end],
        ]
        return b"".join(lines)
    else:
        chosen = lines[middle + 1 : end]
    while chosen and not chosen[0].strip():
        del chosen[0]
    if chosen:
        lines[start:end] = [line.removeprefix(b"    ") for line in chosen]
    else:
        used.delete(lines, start, end)
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
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    first = starts[node.lineno - 1] + node.col_offset
    return first, starts[node.end_lineno - 1] + node.end_col_offset


def _parse(path: str, text: bytes) -> ast.Module:
    try:
        return used.parse(text)
    except SyntaxError as error:
        raise Malformed(
            path, error.lineno or 0, f"cannot be parsed: {error.msg}"
        ) from error
