"""Reading KV as attention does, and knowing what is right."""

from __future__ import annotations

from typing import Any, Optional

import msgspec
import numpy as np

from .cells import Cells


class WrongKV(AssertionError):
    """A forward read, or would have read, KV that is not its request's."""


class Read(msgspec.Struct, frozen=True):
    """What a row of a batch read.

    Attributes:
        chunk: how many prefills the request has had, this one included.
        full, swa: slots of the positions from 0 and from ``window_from`` on.
        tags: the right ones, by position.
    """

    req: Any
    chunk: int
    full: np.ndarray
    swa: np.ndarray
    window_from: int
    tags: np.ndarray

    def until(self, end: int) -> Read:
        """The part of it before a position."""
        return msgspec.structs.replace(
            self,
            full=self.full[:end],
            swa=self.swa[: end - self.window_from],
            tags=self.tags[:end],
        )


class Reader:
    """Reads cells, and raises over those that are wrong.

    Args:
        window: how far back a sliding layer sees, itself not counted.

    Attributes:
        count: cells read and found right.
    """

    def __init__(self, cells: Cells, window: int) -> None:
        self.cells = cells
        self.window = window
        self.count = 0

    def plan(
        self, req: Any, chunk: int, slots: np.ndarray, start: int, tags: list[int]
    ) -> Read:
        """What the queries from ``start`` on see, in the slots of a request's row."""
        first = max(0, start - self.window)
        swa = self.cells.translate(slots[first:])
        return Read(req, chunk, slots, swa, first, np.array(tags, dtype=np.uint64))

    def read(self, read: Read) -> tuple[np.ndarray, np.ndarray]:
        """Its tags, of the full and of the sliding layer.

        Raises:
            WrongKV: some are not right.
        """
        full = self._side(read, "full", "read", None)
        return full, self._side(read, "swa", "read", None)

    def read_again(self, read: Read, slots: np.ndarray) -> None:
        """Look whether all is still there, or else in the row's slots of now.

        Raises:
            WrongKV: some is in neither.
        """
        swa = self.cells.translate(slots[read.window_from :])
        now = msgspec.structs.replace(read, full=slots, swa=swa)
        for side in ("full", "swa"):
            self._side(read, side, "lost in flight", now)

    def _side(self, read: Read, side: str, how: str, moved: Optional[Read]):
        first = 0 if side == "full" else read.window_from
        tags, positions, wrong = self._wrong(read, side, first)
        if moved and wrong.any():
            wrong &= self._wrong(moved, side, first)[2]
        if wrong.any():
            at = int(np.argmax(wrong))
            raise WrongKV(
                f"{read.req.rid}: {side} KV of position {first + at} of "
                f"{len(read.full)} {how}, {int(wrong.sum())} wrong, the first holds "
                f"position {int(positions[at])}"
            )
        self.count += len(tags)
        return tags

    def _wrong(self, read: Read, side: str, first: int):
        slots = getattr(read, side)
        tags, positions = getattr(self.cells, side).read(slots)
        wrong = tags != read.tags[first:]
        wrong |= positions != np.arange(first, first + len(slots))
        # Slot 0 is padding.
        return tags, positions, wrong | (slots <= 0)
