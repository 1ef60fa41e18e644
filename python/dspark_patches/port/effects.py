"""What a patch makes code do, and where a tree does that already.

A patch that fits, line by line, may still do a thing a second time: upstream
or a fork may have mended the same fault in another place. So the effects that
a patch adds or takes away (attributes that are set, functions that are called
for what they do, functions and classes that are defined) are looked for all
over the package. Where a tree has one in a place in which the base has none,
whoever wrote it must be asked, and the patch does not fit.

Only rare names count: what base or target do in many files says nothing.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from ..confined import Confined
from ..errors import BadInput
from ..series import is_test
from .scopes import Scopes, parse

MOST_FILES = 8

_PACKAGE = "python/sglang"


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

    def __str__(self) -> str:
        where = f" ({self.scope})" if self.scope else ""
        return f"{self.path}:{self.line}{where}"


def of_edit(path: str, old: bytes, new: bytes) -> set[Effect]:
    """The effects that an edit adds or takes away, and the functions it does it in.

    Whoever calls such a function gets or loses the effect.
    """
    if is_test(path) or not path.endswith(".py"):
        return set()
    before, after = Counter(_purposes(old, path)), Counter(_purposes(new, path))
    found = set()
    for key in before.keys() | after.keys():
        if before[key] != after[key]:
            scope, effect = key
            found.add(effect)
            if scope:
                found.add(Effect("calls", scope.rpartition(".")[2]))
    return found


def sites(package: Path, effects: Iterable[Effect]) -> dict[Effect, list[Site]]:
    """Where a package has effects; its tests aside.

    Args:
        package: the folder that is imported as ``sglang``.
        effects: the effects.
    """
    wanted = set(effects)
    names = {effect.name.encode() for effect in wanted}
    found: dict[Effect, list[Site]] = {effect: [] for effect in wanted}
    for path, source in _sources(package):
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


def elsewhere(
    effects: Iterable[Effect],
    base: Mapping[Effect, Iterable[Site]],
    target: Mapping[Effect, Iterable[Site]],
) -> tuple[str, ...]:
    """Where a target has rare effects in places in which the base has none."""
    found = []
    for effect in sorted(effects):
        known = {(site.path, site.scope) for site in base[effect]}
        there = {(site.path, site.scope) for site in target[effect]}
        if max(_files(known), _files(there)) > MOST_FILES:
            continue
        for site in target[effect]:
            if (site.path, site.scope) not in known:
                found.append(f"{site} {effect}; the base does not do that there")
    return tuple(found)


def _files(places: Iterable[tuple[str, str]]) -> int:
    return len({path for path, _ in places})


def _sources(package: Path) -> Iterator[tuple[str, bytes]]:
    with Confined(package) as files:
        for file in sorted(package.rglob("*.py")):
            inside = file.relative_to(package).as_posix()
            path = f"{_PACKAGE}/{inside}"
            if is_test(path):
                continue
            try:
                yield path, files.read(inside)
            except (OSError, BadInput):
                continue


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
            line = node.lineno
            scope = scopes.at(line)
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
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield Effect("defines", node.name)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        # getattr and setattr know names as strings.
        if node.value.isidentifier():
            yield Effect("sets", node.value)
            yield Effect("calls", node.value)
