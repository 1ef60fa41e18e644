"""The files that series add to SGLang: their sources, and what upstream asks."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath

from ..findings import Finding
from ..model.series import Series, added_paths, is_test
from .derive import FEATURES, derive
from .used import IMPORTS, KIT, bound, module_path, parse

FOLDERS = ("python/sglang", "test/registered")
SUITE = "base-a-test-cpu"

_REGISTER = "register_cpu_ci("
_REGISTERED = re.compile(rf"register_cpu_ci\(est_time=[\d.]+, suite='{SUITE}'\)")
_MAIN = "if __name__ == '__main__':\n    unittest.main()"
# Bases that define no tests of their own.
_PLAIN = {"CustomTestCase", "TestCase", "object"}

# The clone's text of each file, or a release's, by path.
Texts = Mapping[str, bytes]


def read(root: Path) -> dict[str, bytes]:
    """Every file of a clone that is there to be added to SGLang."""
    found = (path for folder in FOLDERS for path in (root / folder).rglob("*"))
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(found)
        if path.is_file() and "__pycache__" not in path.parts
    }


def of_release(
    texts: Texts, series: Series, features: Mapping[str, bool]
) -> dict[str, bytes]:
    """What a series adds, and the kit that it may need, as its release has them.

    Raises:
        Malformed: a file cannot be derived.
    """
    fresh = added_paths(series)
    tests = [path for path in fresh if is_test(path) and path in texts]
    fresh |= kit_of(texts, tests)
    return derive({path: texts[path] for path in fresh if path in texts}, features)


def single_additions(series: Series) -> set[str]:
    """Paths that one patch adds and no other touches: the clone has their source.

    A file that a later patch edits again is, like an edit, its patches' own.
    """
    sections = [s for patch in series.patches for s in patch.file.sections]
    touched = Counter(section.path for section in sections)
    return {s.path for s in sections if s.kind == "add" and touched[s.path] == 1}


def placed(series: Series, texts: Texts) -> dict[str, set[str]]:
    """What each patch adds from its source; a kit file comes with its first test."""
    touched = {p.name: {s.path for s in p.file.sections} for p in series.patches}
    fresh = single_additions(series)
    kit = {path for path in fresh if path.startswith(KIT)}
    theirs = set().union(*touched.values()) - fresh
    first: dict[str, set[str]] = {}
    for name, paths in touched.items():
        used = kit_of(texts, paths & fresh, kit)
        first[name] = used.difference(theirs, *first.values())
    # A kit file that has neither a test nor a source any more goes.
    moved = set().union(*first.values()) | (kit - texts.keys())
    return {name: first[name] | (touched[name] & fresh) - moved for name in touched}


def lint(path: str, text: bytes) -> Iterator[Finding]:
    """What upstream's own lint and CI would refuse in an added file."""
    if not path.endswith(".py"):
        return
    try:
        statements = parse(text).body
    except SyntaxError as error:
        what, line = f"cannot be parsed: {error.msg}", error.lineno or 0
        yield Finding(file=path, line=line, what=what, hint="mend the syntax")
        return
    calls = {s.lineno: ast.unparse(s) for s in statements if isinstance(s, ast.Expr)}
    line, call = next(
        ((n, text) for n, text in calls.items() if text.startswith(_REGISTER)), (0, "")
    )
    if path.startswith("python/"):
        if call:
            hint = "move the test below test/registered/"
            what = "a registered test stands inside the package"
            yield Finding(file=path, line=line, what=what, hint=hint)
    elif PurePosixPath(path).name.startswith("test_"):
        if not _REGISTERED.fullmatch(call):
            hint = f'call {_REGISTER}est_time=<number>, suite="{SUITE}")'
            what = "the test is not registered with literal values"
            yield Finding(file=path, line=line, what=what, hint=hint)
        last = statements[-1] if statements else None
        if last is None or ast.unparse(last) != _MAIN:
            hint = 'end with `if __name__ == "__main__": unittest.main()`'
            what = "the file does not end with the unittest main guard"
            line = last.lineno if last else 0
            yield Finding(file=path, line=line, what=what, hint=hint)


def missing(texts: Texts, selector: str) -> str:
    """What of ``PATH[::CLASS[.TEST]]`` does not exist, or an empty string."""
    path, _, rest = selector.partition("::")
    if path not in texts:
        return path
    name, _, test = rest.partition(".")
    statements = _tree(texts[path]).body
    classes = {s.name: s for s in statements if isinstance(s, ast.ClassDef)}
    if name and name not in classes:
        return f"{path}::{name}"
    return selector if test and not _has_test(classes, name, test) else ""


def definitions(text: bytes) -> dict[str, int]:
    """The names that a file defines and does not import, each with its line."""
    own = (s for s in _tree(text).body if not isinstance(s, IMPORTS))
    return {name: statement.lineno for statement in own for name in bound(statement)}


def kit_of(texts: Texts, paths: Iterable[str], named: Collection[str] = ()) -> set[str]:
    """The kit files that the tests among some paths import, however far round.

    Args:
        texts: the files.
        paths: the tests, among others.
        named: kit files to be found even where ``texts`` lacks them; others are the
            release's own.
    """
    found: set[str] = set()
    waiting = [p for p in paths if is_test(p) and not p.startswith(KIT)]
    while waiting:
        new = {p for p in _kit(texts.get(waiting.pop(), b"")) if p in {*named, *texts}}
        waiting += new - found
        found |= new
    return found


@lru_cache(maxsize=1024)
def _kit(text: bytes) -> frozenset[str]:
    """The kit files from which a file imports, wherever in it."""
    nodes = (n for n in ast.walk(_tree(text)) if isinstance(n, ast.ImportFrom))
    paths = {module_path(node.module or "") for node in nodes} - {FEATURES}
    return frozenset(path for path in paths if path.startswith(KIT))


def _tree(text: bytes) -> ast.Module:
    """A file's syntax tree; an empty one where it cannot be parsed."""
    try:
        return parse(text)
    except SyntaxError:
        return ast.Module([], [])


def _has_test(classes: dict[str, ast.ClassDef], name: str, test: str) -> bool:
    """Whether a class has a test; one with an imported base may inherit it."""
    found = classes.get(name)
    if found is None:
        return name not in _PLAIN
    if any(isinstance(s, ast.FunctionDef) and s.name == test for s in found.body):
        return True
    bases = (ast.unparse(base).rpartition(".")[2] for base in found.bases)
    others = {other: c for other, c in classes.items() if other != name}
    return any(_has_test(others, base, test) for base in bases)
