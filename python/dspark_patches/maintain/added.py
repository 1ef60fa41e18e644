"""The files that series add to SGLang: their sources, and what upstream asks."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path, PurePosixPath

import msgspec

from ..findings import Finding
from ..model.diff import ZEROS, blob_id
from ..model.series import is_test
from .derive import FEATURES, derive
from .used import IMPORTS, KIT, bound, module_path, parse

FOLDERS = ("python/sglang", "test/registered")
SUITE = "base-a-test-cpu"

_REGISTER = "register_cpu_ci"
_MAIN = "if __name__ == '__main__':\n    unittest.main()"
# Releases that define no tests of their own.
_PLAIN_RELEASES = {"CustomTestCase", "TestCase", "object"}


class Module(msgspec.Struct, frozen=True, kw_only=True):
    """A Python file as far as it can be parsed; ``error`` says why it cannot.

    Attributes:
        imports: the modules from which it imports, wherever in it.
    """

    statements: tuple[ast.stmt, ...] = ()
    imports: frozenset[str] = frozenset()
    error: str = ""
    line: int = 0

    @property
    def classes(self) -> dict[str, ast.ClassDef]:
        """The module's classes by name."""
        return {s.name: s for s in self.statements if isinstance(s, ast.ClassDef)}

    @property
    def definitions(self) -> dict[str, int]:
        """The names that it defines and does not import, each with its line."""
        return {
            name: statement.lineno
            for statement in self.statements
            if not isinstance(statement, IMPORTS)
            for name in bound(statement)
        }


class Sources:
    """The added files of a clone; each is read and parsed once.

    Args:
        root: the clone.
        texts: what a release has in the place of the clone's text, by path.
    """

    def __init__(self, root: Path, texts: Mapping[str, bytes] | None = None) -> None:
        self._root = root
        self.texts = texts or {}
        self.blob = cache(self._blob)
        self.module = cache(self._module)

    def of_release(self, paths: Iterable[str], features: Mapping[str, bool]) -> Sources:
        """The same files, as a release has them that adds ``paths``.

        Raises:
            Malformed: a file cannot be derived.
        """
        found = {path: self.content(path) for path in paths}
        texts = {path: text for path, text in found.items() if text is not None}
        return Sources(self._root, derive(texts, features))

    def paths(self) -> list[str]:
        """Every file of the clone that is there to be added to SGLang."""
        found = (
            path for folder in FOLDERS for path in (self._root / folder).rglob("*")
        )
        return sorted(
            path.relative_to(self._root).as_posix()
            for path in found
            if path.is_file() and "__pycache__" not in path.parts
        )

    def content(self, path: str) -> bytes | None:
        """The file's bytes; None where there is no such file."""
        if path in self.texts:
            return self.texts[path]
        file = self._root / path
        return file.read_bytes() if file.is_file() else None

    def _blob(self, path: str) -> str:
        """The file's blob id; zeros where there is no such file."""
        content = self.content(path)
        return ZEROS if content is None else blob_id(content)

    def _module(self, path: str) -> Module:
        try:
            tree = parse(self.content(path) or b"")
        except SyntaxError as error:
            return Module(error=error.msg, line=error.lineno or 0)
        return Module(statements=tuple(tree.body), imports=_imports(tree))


@lru_cache(maxsize=1024)
def _imports(tree: ast.Module) -> frozenset[str]:
    imported = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return frozenset(node.module for node in imported if node.module)


def lint(sources: Sources, path: str) -> Iterator[Finding]:
    """What upstream's own lint and CI would refuse in an added file."""
    if not path.endswith(".py"):
        return
    module = sources.module(path)
    if module.error:
        what = f"cannot be parsed: {module.error}"
        yield Finding(file=path, line=module.line, what=what, hint="mend the syntax")
        return
    call = _registration(module)
    if path.startswith("python/"):
        if call:
            hint = "move the test below test/registered/"
            what = "a registered test stands inside the package"
            yield Finding(file=path, line=call.lineno, what=what, hint=hint)
    elif PurePosixPath(path).name.startswith("test_"):
        yield from _lint_test(module, path, call)


def missing(sources: Sources, selector: str) -> str:
    """What of ``PATH[::CLASS[.TEST]]`` does not exist, or an empty string."""
    path, _, rest = selector.partition("::")
    if sources.blob(path) == ZEROS:
        return path
    name, _, test = rest.partition(".")
    classes = sources.module(path).classes
    if name and name not in classes:
        return f"{path}::{name}"
    return selector if test and not _has_test(classes, name, test) else ""


def kit_of(
    sources: Sources, paths: Iterable[str], named: Collection[str] = ()
) -> set[str]:
    """The kit files that the tests among some paths import, however far round.

    Args:
        sources: the clone's files.
        paths: the tests, among others.
        named: kit files to be found even where the clone does not have them; others
            are the release's own.
    """
    found: set[str] = set()
    waiting = [p for p in paths if is_test(p) and not p.startswith(KIT)]
    while waiting:
        for module in sources.module(waiting.pop()).imports:
            path = module_path(module)
            if path in found or not path.startswith(KIT) or path == FEATURES:
                continue
            if path in named or sources.blob(path) != ZEROS:
                found.add(path)
                waiting.append(path)
    return found


def _registration(module: Module) -> ast.Call | None:
    for statement in module.statements:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            if call.func.id == _REGISTER:
                return call
    return None


def _lint_test(module: Module, path: str, call: ast.Call | None) -> Iterator[Finding]:
    literal = f'{_REGISTER}(est_time=<number>, suite="{SUITE}")'
    if call is None or not _is_literal(call):
        what = "the test is not registered with literal values"
        line = call.lineno if call else 0
        yield Finding(file=path, line=line, what=what, hint=f"call {literal}")
    last = module.statements[-1] if module.statements else None
    if last is None or ast.unparse(last) != _MAIN:
        line = last.lineno if last else 0
        what = "the file does not end with the unittest main guard"
        hint = 'end with `if __name__ == "__main__": unittest.main()`'
        yield Finding(file=path, line=line, what=what, hint=hint)


def _is_literal(call: ast.Call) -> bool:
    values = {
        keyword.arg: keyword.value.value
        for keyword in call.keywords
        if isinstance(keyword.value, ast.Constant)
    }
    timed = isinstance(values.get("est_time"), (int, float))
    return not call.args and timed and values.get("suite") == SUITE


def _has_test(classes: dict[str, ast.ClassDef], name: str, test: str) -> bool:
    """Whether a class has a test; one with an imported release may inherit it."""
    found = classes.get(name)
    if found is None:
        return name not in _PLAIN_RELEASES
    if any(isinstance(s, ast.FunctionDef) and s.name == test for s in found.body):
        return True
    releases = (ast.unparse(release).rpartition(".")[2] for release in found.bases)
    others = {other: c for other, c in classes.items() if other != name}
    return any(_has_test(others, release, test) for release in releases)
