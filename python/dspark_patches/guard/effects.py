"""What a patch makes code do, and where a tree does it.

An effect is an attribute that is set, a function that is called or a function
or class that is defined. Only rare names count: what a base or a target does
in many files says nothing.
"""

from __future__ import annotations

import ast
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
    before, after = Counter(_purposes(old, path)), Counter(_purposes(new, path))
    changed = [k for k in before.keys() | after.keys() if before[k] != after[k]]
    scopes = frozenset(scope for scope, _ in changed if scope)
    callers = {Effect("calls", scope.rpartition(".")[2]) for scope in scopes}
    return Change(
        effects=frozenset({effect for _, effect in changed} | callers),
        scopes=scopes,
        calls=frozenset(
            effect.name
            for source in (old, new)
            for scope, effect, _ in _walk(parse(source), source, path)
            if effect.verb == "calls" and scope in scopes
        ),
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
    wanted = set(effects)
    names = {effect.name.encode() for effect in wanted}
    found: dict[Effect, list[Site]] = {effect: [] for effect in wanted}
    for path, source in files:
        if any(name in source for name in names):
            for effect, site in in_file(path, source, wanted):
                found[effect].append(site)
    return found


def in_file(
    path: str, source: bytes, wanted: Container[Effect]
) -> Iterator[tuple[Effect, Site]]:
    """Where one file has effects."""
    for scope, effect, node in _walk(parse(source), source, path):
        if effect in wanted:
            yield effect, Site(path=path, scope=scope, line=node.lineno)


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


def _purposes(source: bytes, path: str) -> Iterator[tuple[str, Effect]]:
    """What a file does on purpose: calls count where the result is dropped."""
    tree = parse(source)
    dropped = {
        id(node.value)
        for node in ast.walk(tree or ast.Module([], []))
        if isinstance(node, ast.Expr)
    }
    for scope, effect, node in _walk(tree, source, path):
        if effect.verb != "calls" or id(node) in dropped:
            yield scope, effect


def _walk(
    tree: ast.Module | None, source: bytes, path: str
) -> Iterator[tuple[str, Effect, ast.AST]]:
    scopes = Scopes(source, path)
    for node in ast.walk(tree or ast.Module([], [])):
        for effect in _of(node):
            scope = scopes.at(node.lineno)
            if effect.verb == "defines":
                # A definition stands in the scope around it.
                scope = scope.rpartition(".")[0]
            yield scope, effect, node


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
