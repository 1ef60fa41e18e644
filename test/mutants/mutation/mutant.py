"""A change of one file of the patched tree that the series' tests must notice."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

# From, to (offsets in the file's bytes), and what stands there instead.
Edit = tuple[int, int, str]


class Mutant(msgspec.Struct, frozen=True, kw_only=True):
    """One mutant.

    Attributes:
        patch: the name of the patch that added what is changed.
        path: the file, relative to the tree.
        rule: how it came about; ``hunk N`` takes a hunk out.
        line: the number of the first changed line.
        before: the changed lines, without their indentation.
        after: what they become.
        edits: the change, in the file's order.
    """

    patch: str
    path: str
    rule: str
    line: int
    before: str
    after: str
    edits: tuple[Edit, ...]

    def __str__(self) -> str:
        before, after = (
            " / ".join(text.splitlines())[:160] for text in (self.before, self.after)
        )
        place = f"{self.patch[:4]} {self.path}:{self.line}"
        return f"{place} [{self.rule}: {before} -> {after}]"

    @property
    def is_hunk(self) -> bool:
        """Whether a hunk is taken out; else a line is changed."""
        return self.rule.startswith("hunk")


def make(
    content: bytes, edits: Iterable[Edit], *, patch: str, path: str, rule: str
) -> Mutant:
    """A mutant of a file of this content."""
    edits = tuple(sorted(edits))
    start = content.rfind(b"\n", 0, edits[0][0]) + 1
    end = content.find(b"\n", max(edits[-1][1] - 1, start))
    end = len(content) if end < 0 else end + 1
    shifted = [(a - start, b - start, text) for a, b, text in edits]
    return Mutant(
        patch=patch,
        path=path,
        rule=rule,
        line=content.count(b"\n", 0, start) + 1,
        before=_plain(content[start:end]),
        after=_plain(apply(content[start:end], shifted)),
        edits=edits,
    )


def apply(content: bytes, edits: Iterable[Edit]) -> bytes:
    """The content after the edits."""
    made, at = [], 0
    for start, end, text in edits:
        made += [content[at:start], text.encode()]
        at = end
    return b"".join([*made, content[at:]])


def _plain(content: bytes) -> str:
    return "\n".join(line.strip() for line in content.decode().splitlines())
