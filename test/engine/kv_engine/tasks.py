"""What a run of this package is told to do, and what it answers."""

from __future__ import annotations

import msgspec

from .engine import Engine
from .serve import Record


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A load for an engine.

    Attributes:
        seed: of the load and of the draft.
        requests, shared, gap: see ``load.overload``.
        sabotage: a defect to put in, by its name.
    """

    name: str
    engine: Engine
    seed: int = 0
    requests: int = 8
    shared: int = 0
    gap: int = 0
    sabotage: str = ""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a task; ``absent`` or ``failed`` is why there is no record.

    Attributes:
        absent: what the release does not have.
        failed: what went wrong before or beside the event loop.
    """

    task: Task
    record: Record | None = None
    absent: str = ""
    failed: str = ""
