"""Which hunk of which patch each line of a patched tree comes from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from dspark_patches.model import diff, series
from dspark_patches.model.series import Series

from . import mutant
from .mutant import Mutant
from .rules import Rules, code


class Line:
    """One line, told from others by its identity."""

    def __init__(self, text: bytes, patch: str = "") -> None:
        self.text = text
        self.patch = patch


class Block:
    """Lines that a hunk replaces by others, behind a line that it keeps."""

    def __init__(self, anchor: Line | None) -> None:
        self.anchor = anchor
        self.removed: list[bytes] = []
        self.added: list[Line] = []


class Traced:
    """The files that a series changes, line by line, and its hunks.

    Args:
        loaded: the series; its tests and test kit do not count.
        root: the released tree.
    """

    def __init__(self, loaded: Series, root: Path) -> None:
        self.files: dict[str, list[Line]] = {}
        self._hunks: list[tuple[str, str, list[Block]]] = []
        for patch in loaded.patches:
            for section in patch.file.sections:
                path = section.path
                if not series.is_test(path) and series.in_wheels(path):
                    if path not in self.files:
                        self.files[path] = _read(root / path)
                    self._lay(patch.name, path, diff.hunks(section))

    def content(self, path: str) -> bytes:
        """A file after the series."""
        return b"".join(line.text for line in self.files[path])

    def mutants(self) -> Iterator[Mutant]:
        """What the rules make of each line that a patch adds."""
        for path, lines in self.files.items():
            content = self.content(path)
            added = {n: line.patch for n, line in enumerate(lines, 1) if line.patch}
            for rule, number, edit in Rules(content, added).edits():
                facts = dict(patch=added[number], path=path, rule=rule)
                yield mutant.make(content, [edit], **facts)

    def ablations(self) -> tuple[list[Mutant], list[str]]:
        """Each hunk taken out on its own, and those of which nothing is left."""
        made, gone, counts = [], [], Counter()
        for patch, path, blocks in self._hunks:
            counts[patch, path] += 1
            count = counts[patch, path]
            edits, lost = self._out(path, blocks)
            rule = f"hunk {count}"
            if lost:
                rule += f" but for {lost} lines that later patches changed"
            if not edits:
                gone.append(f"{patch}, {path}: hunk {count}: later patches changed it")
                continue
            content = self.content(path)
            facts = dict(patch=patch, path=path, rule=rule)
            # One that is about text alone, nothing can notice.
            if code(mutant.apply(content, edits)) != code(content):
                made.append(mutant.make(content, edits, **facts))
        return made, gone

    def _lay(self, patch: str, path: str, hunks) -> None:
        before, after, at = self.files[path], [], 0
        for hunk in hunks:
            start = hunk.old_start - bool(hunk.old_count)
            after += before[at:start]
            at, blocks, block = start, [], None
            for line in hunk.lines:
                marker, text = line[:1], line[1:] + b"\n"
                if marker == b" ":
                    after.append(before[at])
                    at, block = at + 1, None
                    continue
                if block is None:
                    block = Block(after[-1] if after else None)
                    blocks.append(block)
                if marker == b"-":
                    block.removed.append(text)
                    at += 1
                else:
                    block.added.append(Line(text, patch))
                    after.append(block.added[-1])
            self._hunks.append((patch, path, blocks))
        self.files[path] = after + before[at:]

    def _out(self, path: str, blocks: list[Block]) -> tuple[list[mutant.Edit], int]:
        """The edits that take blocks out, and how many of their lines are gone."""
        starts, at = {}, 0
        for line in self.files[path]:
            starts[line] = at
            at += len(line.text)
        edits, lost = [], 0
        for block in blocks:
            left = [line for line in block.added if line in starts]
            lost += len(block.added) - len(left)
            edits += [(starts[x], starts[x] + len(x.text), "") for x in left]
            if len(left) < len(block.added) or not block.removed:
                continue
            if left:
                place = starts[left[0]]
            elif block.anchor in starts:
                place = starts[block.anchor] + len(block.anchor.text)
            else:
                lost += len(block.removed)
                continue
            edits.append((place, place, b"".join(block.removed).decode()))
        return sorted(edits), lost


def _read(file: Path) -> list[Line]:
    content = file.read_bytes() if file.exists() else b""
    return [Line(text) for text in content.splitlines(keepends=True)]
