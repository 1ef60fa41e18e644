"""The files that series add to SGLang: their sources, and what upstream asks."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from ..findings import Finding
from ..model.series import Series, added_paths, is_test
from .derive import FEATURES, IMPORTS, KIT, Texts, bound, derive, module_path, parse

FOLDERS = ("python/sglang", "test/registered")
SUITE = "base-a-test-cpu"

_REGISTER = re.compile(
    rb'^register_cpu_ci\((?P<literal>est_time=[\d.]+, suite="%s"\)$)?' % SUITE.encode(),
    re.MULTILINE,
)
_MAIN = b'\n\n\nif __name__ == "__main__":\n    unittest.main()\n'


def read(root: Path) -> dict[str, bytes]:
    """Every file of a clone that is there to be added to SGLang."""
    found = (path for folder in FOLDERS for path in (root / folder).rglob("*"))
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(found)
        if path.is_file() and "__pycache__" not in path.parts
    }


def of_release(
    texts: Texts, series: Series, answers: Mapping[str, bool]
) -> dict[str, bytes]:
    """What a series adds, and the kit that it may need, as its release has them.

    Raises:
        Malformed: a file cannot be derived.
    """
    fresh = added_paths(series)
    wanted = texts.keys() & (fresh | kit_of(texts, fresh))
    return derive({path: texts[path] for path in wanted}, answers)


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


def kit_of(texts: Texts, paths: Iterable[str], named: Collection[str] = ()) -> set[str]:
    """The kit files that the tests among some paths import, however far round.

    Kit files that ``texts`` lacks are the release's own, unless they are ``named``.
    """
    found: set[str] = set()
    waiting = [path for path in paths if is_test(path) and not path.startswith(KIT)]
    while waiting:
        new = {p for p in _kit(texts.get(waiting.pop(), b"")) if p in {*named, *texts}}
        waiting += new - found
        found |= new
    return found


def lint(path: str, text: bytes) -> Iterator[Finding]:
    """What upstream's own lint and CI would refuse in an added file."""
    if not path.endswith(".py"):
        return
    try:
        parse(text)
    except SyntaxError as error:
        what, line = f"cannot be parsed: {error.msg}", error.lineno or 0
        yield Finding(file=path, line=line, what=what, hint="mend the syntax")
        return
    call = _REGISTER.search(text)
    line = text.count(b"\n", 0, call.start()) + 1 if call else 0
    if path.startswith("python/"):
        if call:
            what = "a registered test stands inside the package"
            hint = "move the test below test/registered/"
            yield Finding(file=path, line=line, what=what, hint=hint)
    elif Path(path).name.startswith("test_"):
        if not (call and call["literal"]):
            what = "the test is not registered with literal values"
            hint = f'call register_cpu_ci(est_time=<number>, suite="{SUITE}")'
            yield Finding(file=path, line=line, what=what, hint=hint)
        if not text.endswith(_MAIN):
            what = "the file does not end with the unittest main guard"
            hint = 'end with `if __name__ == "__main__": unittest.main()`'
            line = text.count(b"\n")
            yield Finding(file=path, line=line, what=what, hint=hint)


def missing(texts: Texts, selector: str) -> str:
    """What of ``PATH[::CLASS[.TEST]]`` no added file defines, or an empty string."""
    path, _, rest = selector.partition("::")
    name, _, test = rest.partition(".")
    if path not in texts:
        return path
    if name and name not in definitions(texts[path]):
        return f"{path}::{name}"
    inherited = (f"    def {test}(".encode() in text for text in texts.values())
    return selector if test and not any(inherited) else ""


def definitions(text: bytes) -> dict[str, int]:
    """The names that a file defines and does not import, each with its line."""
    own = (s for s in _tree(text).body if not isinstance(s, IMPORTS))
    return {name: statement.lineno for statement in own for name in bound(statement)}


@lru_cache(maxsize=1024)
def _kit(text: bytes) -> frozenset[str]:
    """The kit files from which a file imports, wherever in it."""
    nodes = (n for n in ast.walk(_tree(text)) if isinstance(n, ast.ImportFrom))
    paths = {module_path(node.module) for node in nodes} - {FEATURES}
    return frozenset(path for path in paths if path.startswith(KIT))


def _tree(text: bytes) -> ast.Module:
    """A file's syntax tree; an empty one where it cannot be parsed."""
    try:
        return parse(text)
    except SyntaxError:
        return ast.Module([], [])
