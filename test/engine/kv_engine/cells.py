"""The KV pools as memory whose content is known: written, read and poisoned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

_PIECES, _PIECE_BITS = 3, 16
_POSITION = _PIECES

# What an allocator of a release gives back, by the sides that it frees.
_FREES = dict(
    free=("full", "swa"),
    free_segment=("full", "swa"),
    free_full=("full",),
    free_full_segment=("full",),
    free_swa=("swa",),
    free_swa_segment=("swa",),
)


class Cells:
    """One full and one sliding-window layer of the target's KV.

    A cell holds a token's tag, in pieces that a float32 holds exactly, and its
    position. A cell that is given back is poisoned at once, also when a free
    group keeps it from the free list for a while.

    Args:
        allocator: the release's allocator of a hybrid model.
    """

    def __init__(self, allocator: Any) -> None:
        pool = allocator.get_kvcache()
        self._allocator = allocator
        self._page_size = allocator.page_size
        self.full = Layer(pool, allocator.full_attn_allocator, sliding=False)
        self.swa = Layer(pool, allocator.swa_attn_allocator, sliding=True)
        for name, sides in _FREES.items():
            if hasattr(allocator, name):
                setattr(allocator, name, self._poisoning(name, sides))
        self.poison_free()

    def translate(self, slots: np.ndarray) -> np.ndarray:
        """The sliding-window slots of full ones, as the release maps them."""
        return self._allocator.translate_loc_from_full_to_swa(
            torch.from_numpy(slots)
        ).numpy()

    def write(
        self, slots: np.ndarray, positions: np.ndarray, tags: Sequence[int]
    ) -> None:
        """Write tokens into their full and sliding-window slots."""
        values = np.array(tags, dtype=np.uint64)
        self.full.write(slots, positions, values)
        self.swa.write(self.translate(slots), positions, values)

    def poison_free(self) -> None:
        """Poison what is in a free list, however it came there."""
        self.full.poison(self.full.free_slots())
        self.swa.poison(self.swa.free_slots())

    def _poisoning(self, name: str, sides: tuple[str, ...]):
        free = getattr(self._allocator, name)

        def wrapper(slots: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if slots.numel():
                whole = self._whole_pages(slots.numpy().astype(np.int64))
                if "full" in sides:
                    self.full.poison(whole)
                if "swa" in sides:
                    mapped = self.translate(whole)
                    self.swa.poison(mapped[mapped > 0])
            return free(slots, *args, **kwargs)

        return wrapper

    def _whole_pages(self, slots: np.ndarray) -> np.ndarray:
        if self._page_size == 1:
            return slots
        starts = np.unique(slots // self._page_size) * self._page_size
        return (starts[:, None] + np.arange(self._page_size)).reshape(-1)


class Layer:
    """The cells of one layer, by the slots of its own pool."""

    def __init__(self, pool: Any, allocator: Any, *, sliding: bool) -> None:
        # Which of its layers slides, the pool says.
        layer_id = next(
            layer_id
            for layer_id, (_, is_swa) in sorted(pool.layers_mapping.items())
            if is_swa == sliding
        )
        self._cells = pool.get_key_buffer(layer_id).numpy()[:, 0, :]
        self._allocator = allocator

    def write(self, slots: np.ndarray, positions: np.ndarray, tags: np.ndarray) -> None:
        for piece in range(_PIECES):
            bits = tags >> np.uint64(piece * _PIECE_BITS)
            self._cells[slots, piece] = bits & np.uint64((1 << _PIECE_BITS) - 1)
        self._cells[slots, _POSITION] = positions

    def read(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Their tags and positions; poison reads as tag 0 at position -1."""
        cells = np.nan_to_num(self._cells[slots], nan=-1.0)
        poisoned = cells[:, _POSITION] < 0
        cells[poisoned, :_PIECES] = 0
        pieces = cells[:, :_PIECES].astype(np.uint64)
        tags = np.zeros(len(slots), dtype=np.uint64)
        for piece in range(_PIECES):
            tags |= pieces[:, piece] << np.uint64(piece * _PIECE_BITS)
        return tags, cells[:, _POSITION].astype(np.int64)

    def poison(self, slots: np.ndarray) -> None:
        self._cells[slots] = np.nan

    def free_slots(self) -> np.ndarray:
        """What the allocator could hand out."""
        pages = [self._allocator.free_pages]
        if self._allocator.release_pages is not None:
            pages.append(self._allocator.release_pages)
        slots = torch.cat(pages).numpy().astype(np.int64)
        page_size = self._allocator.page_size
        if page_size > 1:
            slots = (slots[:, None] * page_size + np.arange(page_size)).reshape(-1)
        return slots
