"""One file's part of a patch, carried over to another version of the file.

git merges what the patch does to the base's file with what became of that
file. Where that is a conflict, or the base's file is not at hand, each hunk is
put where its lines stand, if that is one place. Either way the result's own
difference must be the patch's: the same lines removed and added, in the same
order, each inside the same function or class.
"""

from __future__ import annotations

import ast
import tempfile
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path

import msgspec

from ..diff import Section, hunks
from ..git import Git, GitError
from ..guard.scopes import Scopes, parse
from ..patching import lines_of, sides

_SHOWN = 3


class Verdict(IntEnum):
    """What a patch, or a part of it, would do; the worst part decides."""

    CLEAN = 0
    MOVED = 1
    UPSTREAMED = 2
    PARTLY_UPSTREAMED = 3
    GONE = 4
    CONFLICT = 5

    def __str__(self) -> str:
        return self.name.lower().replace("_", " ")


class Versions(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the base before and after the patch, and the target's.

    ``before`` is None where the base's file is not at hand.
    """

    before: bytes | None
    after: bytes | None
    target: bytes


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
    scope: str


def merge(section: Section, versions: Versions) -> Fit:
    """Carry an edit over; the verdict is not yet final when it merges."""
    path, target = section.path, versions.target
    if versions.before is not None and versions.after is not None:
        content = _merged(versions.before, target, versions.after)
    elif _placed(section, target, back=True) is not None:
        content = target
    else:
        content = None
    if content is None:
        content = _placed(section, target)
    if content is None:
        return Fit(verdict=Verdict.CONFLICT, evidence=_lacking(section, target))
    if content == target:
        return Fit(verdict=Verdict.UPSTREAMED, content=target)
    if path.endswith(".py") and parse(content) is None:
        why = f"{path} could not be parsed any more"
        return Fit(verdict=Verdict.CONFLICT, evidence=(why,))
    return Fit(verdict=Verdict.MOVED, content=content)


def compare(section: Section, versions: Versions, made: Section, content: bytes) -> Fit:
    """Judge a merge by the difference that it makes to the target.

    Args:
        section: the patch's part.
        versions: the files that were merged.
        made: git's difference between the target's file and ``content``.
        content: the merged file.
    """
    got = _lines(made, versions.target, content)
    if versions.before is None or versions.after is None:
        told = f"{section.path}: the base's file is not at hand to compare functions"
        return Fit(verdict=Verdict.MOVED, evidence=(told,), content=content)
    wanted = _lines(section, versions.before, versions.after)
    if got == wanted:
        if _starts(made) == _starts(section):
            return Fit(verdict=Verdict.CLEAN, content=content)
        return Fit(
            verdict=Verdict.MOVED, evidence=_moves(section, made), content=content
        )
    if _is_part(got, wanted):
        missing = next(line for line in wanted if line not in got)
        told = f"{section.path}: {_told(missing)} is there already"
        return Fit(verdict=Verdict.PARTLY_UPSTREAMED, evidence=(told,))
    return Fit(
        verdict=Verdict.CONFLICT, evidence=(_difference(section.path, wanted, got),)
    )


def _merged(before: bytes, target: bytes, after: bytes) -> bytes | None:
    """The three-way merge; None when there is a conflict."""
    with tempfile.TemporaryDirectory(prefix="dspark-patches-") as scratch:
        folder = Path(scratch)
        for name, content in (("t", target), ("b", before), ("a", after)):
            (folder / name).write_bytes(content)
        git = Git(folder, {"GIT_CEILING_DIRECTORIES": str(folder.resolve().parent)})
        try:
            return git.run("merge-file", "-p", "-q", "t", "b", "a")
        except GitError:
            return None


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
        places = _places(lines, old)
        if len(places) != 1:
            return None
        lines[places[0] : places[0] + len(old)] = new
    return b"".join(lines)


def _places(lines: Sequence[bytes], wanted: Sequence[bytes]) -> list[int]:
    count = len(wanted)
    return [n for n in range(len(lines)) if lines[n : n + count] == wanted]


def _lacking(section: Section, target: bytes) -> tuple[str, ...]:
    """Which hunks do not stand in the target, and what of them is missing."""
    lines = lines_of(target)
    there = set(lines)
    found = []
    for hunk in hunks(section):
        old, _ = sides(hunk)
        places = _places(lines, old)
        if len(places) == 1:
            continue
        lost = next((line for line in old if line not in there), None)
        if lost is not None:
            text = lost.decode("utf-8", "replace").strip()
            why = f"there is no {text!r}"
        else:
            why = "its lines stand " + ("apart" if not places else "in several places")
        found.append(f"{section.path}: the hunk at line {hunk.old_start}: {why}")
    return tuple(found[:_SHOWN]) or (f"{section.path} changed close by",)


def _lines(section: Section, before: bytes, after: bytes) -> list[Line]:
    old, new = _scopes(section.path, before), _scopes(section.path, after)
    found = []
    for hunk in hunks(section):
        here, there = hunk.old_start, hunk.new_start
        for line in hunk.lines:
            sign, text = line[:1], line[1:]
            if sign == b"-":
                found.append(Line(sign, text, old.at(here)))
            elif sign == b"+":
                found.append(Line(sign, text, new.at(there)))
            here += sign in b"- "
            there += sign in b"+ "
    return found


def _scopes(path: str, source: bytes) -> Scopes:
    """The scopes of a file; what is not Python has one."""
    tree = parse(source) if path.endswith(".py") else None
    return Scopes(tree or ast.Module([], []))


def _starts(section: Section) -> list[int]:
    return [hunk.old_start for hunk in hunks(section)]


def _moves(section: Section, made: Section) -> tuple[str, ...]:
    pairs = zip(_starts(section), _starts(made))
    return tuple(f"{section.path}:{old} is at line {new}" for old, new in pairs)


def _is_part(some: Sequence[Line], whole: Sequence[Line]) -> bool:
    """Whether ``some`` are lines of ``whole``, in order."""
    left = iter(whole)
    return all(any(line == other for other in left) for line in some)


def _difference(path: str, wanted: Sequence[Line], got: Sequence[Line]) -> str:
    for one, other in zip(wanted, got):
        if (one.sign, one.text) == (other.sign, other.text):
            if one.scope != other.scope:
                there = other.scope or "no function"
                return f"{path}: {_told(one)} would land in {there}"
            continue
        break
    return f"{path}: merged, it would not be the same change"


def _told(line: Line) -> str:
    text = (line.sign + line.text).decode("utf-8", "replace")
    where = f" of {line.scope}" if line.scope else ""
    return f"{text!r}{where}"
