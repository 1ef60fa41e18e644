"""What became of each test, read from the report of the tests' process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Union

import msgspec

from .runner_child import selects

_OUTPUT_KEPT = 20_000


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One exception, or one way in which a test could not end.

    Attributes:
        type: the exception's class name.
        bases: the names of that class and all its bases; empty when there was
            no exception, as after a crash.
        frame: the innermost frame's file, relative to the tree; empty outside.
        subtest: the subtest that it arose in, if any.
        fixture: ``setUpClass`` and the like, ``collection``, or ``process``;
            empty when the test itself raised.
    """

    type: str
    message: str
    bases: tuple[str, ...] = ()
    frame: str = ""
    traceback: str = ""
    subtest: str = ""
    fixture: str = ""

    def __str__(self) -> str:
        lines = self.message.strip().splitlines()
        where = f" in {self.fixture}" if self.fixture else ""
        return f"{self.type}{where}" + (f": {lines[0]}" if lines else "")


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one test, ``PATH::CLASS.TEST``.

    A file that could not be loaded and a selector that matches nothing stand
    here too, under their own name, as errors.
    """

    id: str
    faults: tuple[Fault, ...] = ()
    skipped: str = ""
    output: str = ""
    seconds: float = 0.0

    @property
    def status(self) -> Literal["passed", "failed", "error", "skipped"]:
        """ "failed" when every fault is the test's own assertion."""
        if not self.faults:
            return "skipped" if self.skipped else "passed"
        own = all("AssertionError" in f.bases and not f.fixture for f in self.faults)
        return "failed" if own else "error"

    def __str__(self) -> str:
        if self.faults:
            return "; ".join(map(str, self.faults))
        return f"skipped: {self.skipped}" if self.skipped else "passed"


class _Event(msgspec.Struct, frozen=True, tag_field="event"):
    pass


class Fatal(_Event, frozen=True, tag="fatal"):
    """sglang itself could not be imported."""

    failure: Fault


class WrongTree(_Event, frozen=True, tag="wrong-tree"):
    """sglang was found elsewhere than in the tree under test."""

    found: str


class Uncollected(_Event, frozen=True, tag="uncollected"):
    """A test file could not be loaded."""

    id: str
    failure: Fault


class Collected(_Event, frozen=True, tag="collected"):
    """The tests that are about to run."""

    ids: tuple[str, ...]


class Start(_Event, frozen=True, tag="start"):
    """A test begins; ``at`` is how much the process had printed by then."""

    id: str
    at: int


class Stop(_Event, frozen=True, tag="stop"):
    """A test has ended."""

    id: str
    at: int
    seconds: float
    failures: tuple[Fault, ...]
    skipped: str


class Fixture(_Event, frozen=True, tag="fixture"):
    """A fixture of a class or module failed or skipped, for all these tests."""

    fixture: str
    ids: tuple[str, ...]
    failure: Union[Fault, None] = None
    skipped: str = ""


class Done(_Event, frozen=True, tag="done"):
    """Every collected test was given its chance."""


Event = Union[Fatal, WrongTree, Uncollected, Collected, Start, Stop, Fixture, Done]
_DECODER = msgspec.json.Decoder(Event)


def read_events(report: bytes) -> tuple[Event, ...]:
    """The report's events; a line that a kill cut short is dropped."""
    lines = report.split(b"\n")
    return tuple(_DECODER.decode(line) for line in lines[:-1])


def outcomes(
    events: Sequence[Event], output: bytes, selectors: Iterable[str], ending: str
) -> tuple[Outcome, ...]:
    """One outcome for every test that was selected.

    Args:
        events: what the process reported.
        output: all that it printed.
        selectors: what was asked of it.
        ending: how the process ended, for the tests that it did not report.
    """
    reading = _Reading(output, ending)
    for event in events:
        reading.take(event)
    return reading.outcomes(tuple(selectors))


class _Reading:
    def __init__(self, output: bytes, ending: str) -> None:
        self._output = output
        self._ending = ending
        self._found: dict[str, Outcome] = {}
        self._pending: dict[str, None] = {}
        self._collected = False
        self._running: Start | None = None
        self._fatal: Fault | None = None

    def take(self, event: Event) -> None:
        if isinstance(event, Fatal):
            self._fatal = event.failure
        elif isinstance(event, Uncollected):
            fault = msgspec.structs.replace(event.failure, fixture="collection")
            self._found[event.id] = Outcome(id=event.id, faults=(fault,))
        elif isinstance(event, Collected):
            self._pending = dict.fromkeys(event.ids)
            self._collected = True
        elif isinstance(event, Start):
            self._running = event
        elif isinstance(event, Stop):
            self._stop(event)
        elif isinstance(event, Fixture):
            self._fixture(event)

    def outcomes(self, selectors: tuple[str, ...]) -> tuple[Outcome, ...]:
        for name in self._pending:
            self._found[name] = self._unreported(name)
        for selector in selectors:
            path = selector.split("::")[0]
            if path in self._found or any(selects(selector, n) for n in self._found):
                continue
            self._found[selector] = self._unmatched(selector)
        return tuple(self._found.values())

    def _stop(self, event: Stop) -> None:
        start = self._running.at if self._running else -1
        self._running = None
        self._pending.pop(event.id, None)
        self._found[event.id] = Outcome(
            id=event.id,
            faults=event.failures,
            skipped=event.skipped,
            output=self._printed(start, event.at),
            seconds=event.seconds,
        )

    def _fixture(self, event: Fixture) -> None:
        for name in event.ids:
            self._pending.pop(name, None)
            before = self._found.get(name, Outcome(id=name, skipped=event.skipped))
            faults = before.faults
            if event.failure:
                named = msgspec.structs.replace(event.failure, fixture=event.fixture)
                faults += (named,)
            self._found[name] = msgspec.structs.replace(before, faults=faults)

    def _unreported(self, name: str) -> Outcome:
        running = self._running
        if running and running.id == name:
            fault = Fault(type="Died", message=self._ending, fixture="process")
            output = self._printed(running.at, len(self._output))
            return Outcome(id=name, faults=(fault,), output=output)
        during = f" during {running.id}" if running else ""
        fault = Fault(type="NotRun", message=self._ending + during, fixture="process")
        return Outcome(id=name, faults=(fault,))

    def _unmatched(self, selector: str) -> Outcome:
        output = ""
        if self._fatal:
            fault = msgspec.structs.replace(self._fatal, fixture="collection")
        elif not self._collected:
            fault = Fault(type="Died", message=self._ending, fixture="process")
            output = self._printed(0, len(self._output))
        else:
            fault = Fault(type="NoSuchTest", message=selector, fixture="collection")
        return Outcome(id=selector, faults=(fault,), output=output)

    def _printed(self, start: int, end: int) -> str:
        if start < 0 or end < 0:
            return ""
        return self._output[start:end][-_OUTPUT_KEPT:].decode("utf-8", "replace")
