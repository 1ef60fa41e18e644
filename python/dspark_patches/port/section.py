"""One file's part of a patch, carried over to another version of the file.

git merges what the patch does to the release's file with what became of that
file. Where that is a conflict, or the release's file is not at hand, each hunk is
put where its lines stand, if that is one place. Either way the result's own
difference must be the patch's: the same lines removed and added, in the same
order, each inside the same function or class. Import statements are compared by
the names that they import.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Literal

import msgspec

from ..model.diff import Section, blob_of, hunks
from ..model.hunks import lines_of, sides
from ..model.states import Step
from .imports import imported, parse, statements
from .merging import merge, places

_SHOWN = 3
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Verdict(IntEnum):
    """What a patch, or a part of it, would do; the worst part decides."""

    CLEAN = 0
    MOVED = 1
    UPSTREAMED = 2
    PARTLY_UPSTREAMED = 3
    GONE = 4
    LACKS_NAMES = 5
    CONFLICT = 6
    DONE_ELSEWHERE = 7
    LACKS_THE_FIX = 8

    def __str__(self) -> str:
        return self.name.lower().replace("_", " ")


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one file's part.

    Attributes:
        content: the target's file with the patch; None unless it fits.
    """

    verdict: Verdict
    evidence: tuple[str, ...] = ()
    content: bytes | None = None


class Line(msgspec.Struct, frozen=True):
    """A line that a diff removes or adds, and where."""

    sign: bytes
    text: bytes
    scope: str = ""

    def __str__(self) -> str:
        text = (self.sign + self.text).decode("utf-8", "replace")
        return f"{text!r} of {self.scope}" if self.scope else f"{text!r}"


def fit(step: Step, target: bytes | None) -> Fit:
    """Carry one part over; "moved" is not yet final, see :func:`compare`."""
    section = step.section
    path, found = section.path, blob_of(target)
    if section.kind == "delete":
        if target is None:
            return Fit(verdict=Verdict.UPSTREAMED)
        if found == section.old:
            return Fit(verdict=Verdict.CLEAN)
        return _conflict(f"{path}: it is not the file that the patch deletes")
    if found == section.new:
        return Fit(verdict=Verdict.UPSTREAMED, content=target)
    if section.kind == "add":
        if target is None:
            return Fit(verdict=Verdict.CLEAN, content=step.after)
        return _conflict(f"{path}: another file of that name is there")
    if target is None:
        return Fit(verdict=Verdict.GONE, evidence=(f"{path} is not there",))
    if found == section.old and step.known:
        return Fit(verdict=Verdict.CLEAN, content=step.after)
    return _edit(step, target)


def compare(step: Step, target: bytes, made: Section, content: bytes) -> Fit:
    """Judge a merge by the difference that it makes to the target.

    Args:
        step: the patch's part.
        target: the target's file.
        made: git's difference between that and ``content``.
        content: the merged file.
    """
    section, path = step.section, step.section.path
    if not step.known:
        told = f"{path}: the release's file is not at hand to compare functions"
        return Fit(verdict=Verdict.MOVED, evidence=(told,), content=content)
    got = changed(made, target, content)
    wanted = changed(section, step.before or b"", step.after or b"")
    if got == wanted:
        pairs = [
            (h.old_start, m.old_start) for h, m in zip(hunks(section), hunks(made))
        ]
        moves = [f"{path}:{old} is at line {new}" for old, new in pairs]
        if len(hunks(section)) == len(hunks(made)) and all(a == b for a, b in pairs):
            return Fit(verdict=Verdict.CLEAN, content=content)
        return Fit(verdict=Verdict.MOVED, evidence=tuple(moves), content=content)
    left = iter(wanted)
    if all(any(line == other for other in left) for line in got):
        missing = next(line for line in wanted if line not in got)
        told = f"{path}: {missing} is there already"
        return Fit(verdict=Verdict.PARTLY_UPSTREAMED, evidence=(told,))
    return _conflict(_difference(path, wanted, got))


def changed(section: Section, before: bytes, after: bytes) -> list[Line]:
    """The lines that a section removes and adds, each with its function or class."""
    python = section.path.endswith(".py")
    old, new = (_scopes(text) if python else {} for text in (before, after))
    (named, here_lines), (names, there_lines) = (
        imported(text) if python else (set(), set()) for text in (before, after)
    )
    found = [Line(b"-", name.encode()) for name in sorted(named - names)]
    found += [Line(b"+", name.encode()) for name in sorted(names - named)]
    for hunk in hunks(section):
        here, there = hunk.old_start, hunk.new_start
        for line in hunk.lines:
            sign, text = line[:1], line[1:]
            if sign == b"-" and here not in here_lines:
                found.append(Line(sign, text, old.get(here, "")))
            elif sign == b"+" and there not in there_lines:
                found.append(Line(sign, text, new.get(there, "")))
            here += sign in b"- "
            there += sign in b"+ "
    return found


def undone(step: Step, target: bytes | None) -> bytes | None | Literal[False]:
    """The target without the part; False when it does not have all of it."""
    section = step.section
    if section.kind != "edit":
        same = section.new == blob_of(target)
        return step.before if same else False
    if target is None:
        return False
    if not step.known:
        content = _placed(section, target, back=True)
    else:
        content, _ = merge(step.after or b"", target, step.before or b"")
    if content is None or content == target:
        return False
    if (
        step.known
        and target != merge(step.before or b"", content, step.after or b"")[0]
    ):
        return False
    return content


def _edit(step: Step, target: bytes) -> Fit:
    section, path = step.section, step.section.path
    content = None
    if step.known:
        content, _ = merge(step.before or b"", target, step.after or b"")
    elif _placed(section, target, back=True) is not None:
        content = target
    if content is None:
        content = _placed(section, target)
    if content is None:
        return Fit(verdict=Verdict.CONFLICT, evidence=_lacking(section, target))
    if content == target:
        return Fit(verdict=Verdict.UPSTREAMED, content=target)
    if path.endswith(".py") and parse(content) is None:
        return _conflict(f"{path} could not be parsed any more")
    return Fit(verdict=Verdict.MOVED, content=content)


def _conflict(evidence: str) -> Fit:
    return Fit(verdict=Verdict.CONFLICT, evidence=(evidence,))


def _placed(section: Section, target: bytes, back: bool = False) -> bytes | None:
    """The target with every hunk at the one place where its lines stand.

    Args:
        section: the hunks.
        target: the file.
        back: whether to take the hunks out rather than put them in.
    """
    lines = lines_of(target)
    for hunk in reversed(hunks(section)):
        old, new = sides(hunk)[::-1] if back else sides(hunk)
        where = places(lines, old)
        if len(where) != 1:
            return None
        lines[where[0] : where[0] + len(old)] = new
    return b"".join(lines)


def _lacking(section: Section, target: bytes) -> tuple[str, ...]:
    """Which hunks do not stand in the target, and what of them is missing."""
    lines = lines_of(target)
    found = []
    for hunk in hunks(section):
        old, _ = sides(hunk)
        where = places(lines, old)
        if len(where) == 1:
            continue
        gone = [line[1:] + b"\n" for line in hunk.lines if line[:1] == b"-"]
        lost = next((line for line in (*gone, *old) if line not in lines), None)
        if lost is not None:
            why = f"there is no {lost.decode('utf-8', 'replace').strip()!r}"
        else:
            why = "its lines stand " + ("in several places" if where else "apart")
        found.append(f"{section.path}: the hunk at line {hunk.old_start}: {why}")
    return tuple(found[:_SHOWN]) or (f"{section.path} changed close by",)


def _difference(path: str, wanted: Sequence[Line], got: Sequence[Line]) -> str:
    for one, other in zip(wanted, got):
        if (one.sign, one.text) != (other.sign, other.text):
            break
        if one.scope != other.scope:
            return f"{path}: {one} would land in {other.scope or 'no function'}"
    return f"{path}: merged, it would not be the same change"


@lru_cache(maxsize=64)
def _scopes(source: bytes) -> dict[int, str]:
    """The function or class of each line, such as ``Class.method``."""
    names: dict[int, str] = {}
    for node in statements(source):
        if isinstance(node, _SCOPES):
            starts = [node.lineno, *(one.lineno for one in node.decorator_list)]
            lines = range(min(starts), (node.end_lineno or node.lineno) + 1)
            outer = names.get(lines[0])
            name = f"{outer}.{node.name}" if outer else node.name
            names |= dict.fromkeys(lines, name)
    return names
