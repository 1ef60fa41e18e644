"""What a patch makes code do, and where a tree does it.

An effect is an attribute that is set, a function that is called or a function
or class that is defined. Only rare names count: what a base or a target does
in many files says nothing.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from ..confined import Confined
from ..errors import BadInput
from .scopes import Scopes, parse

MOST_FILES = 8
# The serving runtime; what lies beside it does not take part in decoding.
PACKAGE = "python/sglang/srt"

# Text may be a comment; in four times as many files some of it is code.
_FEW = 4
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Effect(msgspec.Struct, frozen=True, order=True):
    """Something that code does: ``sets``, ``calls`` or ``defines`` a name."""

    verb: str
    name: str

    def __str__(self) -> str:
        return f"{self.verb} {self.name}"


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """A place at which code does it."""

    path: str
    scope: str
    line: int

    @property
    def key(self) -> str:
        """The place without its line, which any edit above it changes."""
        return f"{self.path} {self.scope}".rstrip()

    def __str__(self) -> str:
        where = f" ({self.scope})" if self.scope else ""
        return f"{self.path}:{self.line}{where}"


Sources = Iterable[tuple[str, bytes]]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What an edit of one file changes.

    Attributes:
        effects: those that it adds or takes away.
        scopes: the functions that it does so in.
        calls: what these functions call.
    """

    effects: frozenset[Effect] = frozenset()
    scopes: frozenset[str] = frozenset()
    calls: frozenset[str] = frozenset()

    def __or__(self, other: Change) -> Change:
        return Change(
            effects=self.effects | other.effects,
            scopes=self.scopes | other.scopes,
            calls=self.calls | other.calls,
        )


def of_edit(path: str, old: bytes, new: bytes) -> Change:
    """What an edit changes; outside of the runtime's Python files, nothing.

    Whoever calls a function that is changed gets or loses the effect, so that
    calling it is an effect as well.
    """
    if not path.startswith(f"{PACKAGE}/") or not path.endswith(".py"):
        return Change()
    before, after = Counter(_purposes(old)), Counter(_purposes(new))
    changed = [k for k in before.keys() | after.keys() if before[k] != after[k]]
    # What defines something is the scope around it, which nobody calls for that.
    scopes = frozenset(s for s, effect in changed if s and effect.verb != "defines")
    callers = {Effect("calls", scope.rpartition(".")[2]) for scope in scopes}
    return Change(
        effects=frozenset({effect for _, effect in changed} | callers),
        scopes=scopes,
        calls=frozenset(n for source in (old, new) for n in _calls(source, scopes)),
    )


def sources(runtime: Path) -> Iterator[tuple[str, bytes]]:
    """The Python files of a folder ``sglang/srt``, by the repository's path."""
    with Confined(runtime) as files:
        for file in sorted(runtime.rglob("*.py")):
            inside = file.relative_to(runtime).as_posix()
            try:
                yield f"{PACKAGE}/{inside}", files.read(inside)
            except (OSError, BadInput):
                continue


def sites(files: Sources, effects: Iterable[Effect]) -> dict[Effect, list[Site]]:
    """Where files have effects."""
    found: dict[Effect, list[Site]] = {effect: [] for effect in effects}
    used = _names(e for e in found if e.verb != "defines")
    defined = _names(e for e in found if e.verb == "defines")
    hint = re.compile(rb"\b(?:%s)\b|\b(?:def|class)\s+(?:%s)\b" % (used, defined))
    for path, source in files:
        if hint.search(source):
            for effect, site in in_file(path, source, found):
                found[effect].append(site)
    return found


def in_file(
    path: str, source: bytes, wanted: Container[Effect]
) -> Iterator[tuple[Effect, Site]]:
    """Where one file has effects."""
    tree = parse(source) or ast.Module([], [])
    found = [(e, node) for node in ast.walk(tree) for e in _of(node) if e in wanted]
    scopes = Scopes(tree if found else ast.Module([], []))
    for effect, node in found:
        scope = _scope(scopes, effect, node)
        yield effect, Site(path=path, scope=scope, line=node.lineno)


def not_common(files: Sources, effects: Iterable[Effect]) -> set[Effect]:
    """Those effects that need a closer look to know whether they are rare.

    What the text of many files looks like having is common without parsing
    any, and most of what a function calls is.
    """
    wanted = set(effects)
    names = _names(wanted)
    form = re.compile(
        rb"\b(?:def|class)\s+(?P<defines>%s)\b|\b(?P<calls>%s)\("
        rb"|\b(?P<sets>%s)\s*[-+*/|&]?=(?!=)" % (names, names, names)
    )
    counts: Counter[Effect] = Counter()
    for _, source in files:
        found = {
            (m.lastgroup or "", m[m.lastgroup or 0]) for m in form.finditer(source)
        }
        counts.update(Effect(verb, name.decode()) for verb, name in found)
    return {effect for effect in wanted if counts[effect] <= _FEW * MOST_FILES}


def _names(effects: Iterable[Effect]) -> bytes:
    """The names of effects as a pattern; one that never fits for none."""
    found = sorted({re.escape(effect.name.encode()) for effect in effects})
    return b"|".join(found) or rb"(?!)"


def rare(places: Iterable[Site]) -> bool:
    """Whether so few files have an effect that one more is worth a look."""
    return len({site.path for site in places}) <= MOST_FILES


def elsewhere(
    known: Mapping[Effect, Counter[str]], found: Mapping[Effect, Iterable[Site]]
) -> tuple[str, ...]:
    """Where a target has rare effects in places in which its base has none.

    Args:
        known: how often the base has each effect, by the key of the place.
        found: where the target has it; once more in the same function counts.
    """
    told = []
    for effect in sorted(known):
        there = tuple(found[effect])
        left = Counter(known[effect])
        for site in there if rare(there) else ():
            if left[site.key]:
                left[site.key] -= 1
            else:
                told.append(f"{site} {effect}; the base does not do that there")
    return tuple(told)


def _purposes(source: bytes) -> Iterator[tuple[str, Effect]]:
    """What a file does on purpose: calls count where the result is dropped.

    A name in a string may be one that is set or called; it mostly is not.
    """
    tree = parse(source) or ast.Module([], [])
    scopes = Scopes(tree)
    statements = (node for node in ast.walk(tree) if isinstance(node, ast.Expr))
    dropped = {id(statement.value) for statement in statements}
    for node in ast.walk(tree):
        for effect in () if isinstance(node, ast.Constant) else _of(node):
            if effect.verb != "calls" or id(node) in dropped:
                yield _scope(scopes, effect, node), effect


def _calls(source: bytes, within: Container[str]) -> Iterator[str]:
    """What some functions of a file call."""
    tree = parse(source) or ast.Module([], [])
    scopes = Scopes(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and scopes.at(node.lineno) in within:
            yield from (effect.name for effect in _of(node))


def _scope(scopes: Scopes, effect: Effect, node: ast.AST) -> str:
    scope = scopes.at(node.lineno)
    # A definition stands in the scope around it.
    return scope.rpartition(".")[0] if effect.verb == "defines" else scope


def _of(node: ast.AST) -> Iterator[Effect]:
    if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
        yield Effect("sets", node.attr)
    elif isinstance(node, ast.keyword) and node.arg:
        yield Effect("sets", node.arg)
    elif isinstance(node, ast.Call):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name:
            yield Effect("calls", name)
    elif isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        yield Effect("defines", node.name)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        # getattr and setattr know names as strings.
        if node.value.isidentifier():
            yield Effect("sets", node.value)
            yield Effect("calls", node.value)
