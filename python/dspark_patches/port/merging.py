"""Three versions of a text made one."""

from __future__ import annotations

import difflib
import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from ..git import Git
from ..model.hunks import lines_of
from ..model.states import Content
from . import imports

# How many lines around a change tell its place, at most.
_CONTEXT = 3


class Clash(msgspec.Struct, frozen=True, kw_only=True):
    """What cannot be merged; ``text`` shows it with git's markers, or says why."""

    patch: str
    what: str
    text: str


class Merging:
    """Three-way merges, and what of them cannot be done."""

    def __init__(self, clashes: Iterable[Clash] = ()) -> None:
        self.clashes = list(clashes)

    def three(
        self, states: tuple[Content, ...], patch: str, what: str, *options: str
    ) -> Content:
        """Merge a text's base, our version and theirs; None stands for no file."""
        base, ours, theirs = states
        if base == theirs or ours == theirs:
            return ours
        if base == ours:
            return theirs
        text = "one side has no such file"
        if base is not None and ours is not None and theirs is not None:
            merged, text = merge(base, ours, theirs)
            if merged is None:
                # git takes lines for one change that stand side by side.
                merged = placed(base, ours, theirs)
            if merged is None and options:
                merged, text = merge(base, ours, theirs, *options)
            if merged is not None:
                return merged
        # Every later state of a file has the same clash.
        if all(one.what != what for one in self.clashes):
            self.clashes.append(Clash(patch=patch, what=what, text=text))
        return ours


def merge(
    base: bytes, ours: bytes, theirs: bytes, *options: str
) -> tuple[bytes | None, str]:
    """git's three-way merge of a text; or None, and the conflicts with markers.

    An import that both sides changed is merged by what it names.
    """
    merged, clash = _merge_file(base, ours, theirs, options)
    if merged is None and (apart := imports.aligned(base, ours, theirs)):
        merged, _ = _merge_file(apart[0], ours, apart[1], options)
    return merged, clash if merged is None else ""


def _merge_file(
    base: bytes, ours: bytes, theirs: bytes, options: Sequence[str]
) -> tuple[bytes | None, str]:
    with tempfile.TemporaryDirectory(prefix="dspark-patches-") as scratch:
        folder = Path(scratch)
        names = ("ours", "base", "theirs")
        for name, content in zip(names, (ours, base, theirs)):
            (folder / name).write_bytes(content)
        git = Git(folder, {"GIT_CEILING_DIRECTORIES": str(folder.resolve().parent)})
        merges = git.succeeds("merge-file", "-q", *options, *names)
        text = (folder / "ours").read_bytes()
    found = re.findall(rb"^<{7} .*?^>{7} [^\n]*", text, re.DOTALL | re.MULTILINE)
    shown = b"\n".join(found).decode("utf-8", "replace")
    return (text, "") if merges else (None, shown)


def placed(base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """Their changes of ``base``, each where its lines stand in ours, if once."""
    old, new, result = lines_of(base), lines_of(theirs), lines_of(ours)
    codes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    for _, start, end, first, last in [c for c in codes[::-1] if c[0] != "equal"]:
        for around in range(_CONTEXT, -1, -1):
            above, below = old[max(0, start - around) : start], old[end : end + around]
            wanted = above + old[start:end] + below
            found = places(result, wanted) if wanted else []
            if len(found) == 1:
                made = above + new[first:last] + below
                result[found[0] : found[0] + len(wanted)] = made
                break
        else:
            return None
    return b"".join(result)


def places(lines: Sequence[bytes], wanted: Sequence[bytes]) -> list[int]:
    """Where some lines stand, one after the other."""
    count = len(wanted)
    return [n for n in range(len(lines)) if lines[n : n + count] == wanted]
