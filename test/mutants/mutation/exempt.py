"""Mutants that may live: those that no test can notice, each with its reason."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from .mutant import Mutant


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One exemption.

    Attributes:
        releases: their tags, or ``all``.
        path: the file, relative to the tree.
        before: the lines that the mutant changes, without their indentation.
        after: what they become; a line may stand for each of several mutants.
        reason: why no test notices.
    """

    releases: tuple[str, ...] | str
    path: str
    before: str
    after: tuple[str, ...] | str
    reason: str

    def covers(self, release: str) -> bool:
        """Whether it is about this release."""
        return self.releases == "all" or release in self.releases

    def matches(self, one: Mutant) -> str | None:
        """The text that the mutant has after it, if this is about the mutant."""
        texts = (self.after,) if isinstance(self.after, str) else self.after
        changed = self.before.strip("\n") == one.before.strip("\n")
        there = self.path == one.path and changed
        found = [text for text in texts if text.strip("\n") == one.after]
        return found[0] if there and found else None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    exempt: tuple[Entry, ...] = ()


class Exemptions:
    """The entries of a file about one release.

    Args:
        path: the file.
        release: the release.
    """

    def __init__(self, path: Path, release: str) -> None:
        entries = msgspec.toml.decode(path.read_bytes(), type=_File).exempt
        self._entries = [entry for entry in entries if entry.covers(release)]
        self._used: set[tuple[int, str]] = set()

    def reason(self, one: Mutant) -> str:
        """Why this mutant may live; empty when it may not."""
        for number, entry in enumerate(self._entries):
            if (text := entry.matches(one)) is not None:
                self._used.add((number, text))
                return entry.reason
        return ""

    def stale(self) -> Iterable[str]:
        """The mutants that entries name and that :meth:`reason` was not asked for."""
        for number, entry in enumerate(self._entries):
            texts = (entry.after,) if isinstance(entry.after, str) else entry.after
            for text in texts:
                if (number, text) not in self._used:
                    yield f"{entry.path}: {entry.before!r} -> {text!r}"
