"""Names that a patch uses and that a fork does not have."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from ..model.diff import Section, hunks
from ..model.series import is_test
from ..model.states import Content
from .fork import Fork
from .imports import parse
from .source import Source

_WORD = re.compile(rb"[A-Za-z_]\w*")


def lacking(
    made: Iterable[Section],
    before: Mapping[str, Content],
    after: Mapping[str, Content],
    fork: Fork,
    source: Source,
) -> Iterator[str]:
    """What each added line needs and the fork does not have, with file and line.

    A name counts when the release or its patches have it; what neither has is of
    Python or of a library.

    Args:
        made: the edits, against the fork's files.
        before: the fork's files that patches touch, without this one, by path.
        after: the same with it.
        fork: the fork.
        source: the release that the patch was written for.
    """
    uses: dict[bytes, str] = {}
    known: set[bytes] = set()
    for section in made:
        lines = _added(section)
        tree = parse(after.get(section.path) or b"")
        if not section.path.endswith(".py") or tree is None:
            continue
        for node in ast.walk(tree):
            if getattr(node, "lineno", 0) not in lines:
                continue
            if isinstance(node, ast.ImportFrom) and not _module(node, after, fork):
                yield f"{section.path}:{node.lineno}: there is no module {node.module}"
            used, bound = _words(node)
            known |= bound
            for word in used:
                uses.setdefault(word, f"{section.path}:{node.lineno}")
    here = (t for path, t in before.items() if t and not is_test(path))
    unknown = _unseen(uses.keys() - known, chain(here, fork.texts()))
    for word in sorted(unknown - _unseen(unknown, source.texts())):
        yield f"{uses[word]}: there is no {word.decode()}"


def _added(section: Section) -> set[int]:
    """The numbers of the lines that a section adds."""
    found = set()
    for hunk in hunks(section):
        number = hunk.new_start
        for line in hunk.lines:
            if line[:1] == b"+":
                found.add(number)
            number += line[:1] in b"+ "
    return found


def _words(node: ast.AST) -> tuple[set[bytes], set[bytes]]:
    """The names that a node uses, and those that it binds."""
    used: set[str] = set()
    bound: set[str] = set()
    if isinstance(node, (ast.Name, ast.Attribute)):
        name = node.id if isinstance(node, ast.Name) else node.attr
        (used if isinstance(node.ctx, ast.Load) else bound).add(name)
    elif isinstance(node, ast.ImportFrom):
        used = {one.name for one in node.names}
    elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        bound.add(node.name)
    elif isinstance(node, ast.arg):
        bound.add(node.arg)
    elif isinstance(node, ast.keyword) and node.arg:
        used.add(node.arg)
    return {word.encode() for word in used}, {word.encode() for word in bound}


def _module(node: ast.ImportFrom, now: Mapping[str, Content], fork: Fork) -> bool:
    """Whether what is imported from is SGLang's and there, or not SGLang's."""
    if node.level or not (node.module or "").startswith("sglang."):
        return True
    path = "python/" + node.module.replace(".", "/")
    places = (f"{path}.py", f"{path}/__init__.py")
    return any(now.get(one) or fork.read(one) for one in places)


def _unseen(words: Iterable[bytes], texts: Iterable[bytes]) -> set[bytes]:
    """The words that none of the texts has."""
    left = set(words)
    for text in texts:
        if not left:
            break
        if any(word in text for word in left):
            left -= set(_WORD.findall(text))
    return left
