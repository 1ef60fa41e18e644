"""What became of each test, read from the report of the tests' process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from ..errors import Precondition
from ..model.series import Patch
from .runner_child import selects

_OUTPUT_KEPT = 20_000


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One exception, or one way in which a test could not end.

    Attributes:
        bases: the names of the exception's class and its bases; empty when there
            was no exception, as after a crash.
        frame: the innermost frame's file, relative to the tree; empty outside.
        fixture: ``setUpClass`` and the like, ``collection``, or ``process``;
            empty when the test itself raised.
    """

    type: str
    message: str
    bases: tuple[str, ...] = ()
    frame: str = ""
    traceback: str = ""
    fixture: str = ""

    def __str__(self) -> str:
        lines = self.message.strip().splitlines()
        where = f" in {self.fixture}" if self.fixture else ""
        return f"{self.type}{where}" + (f": {lines[0]}" if lines else "")


class _Told(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """One line of the report."""


class Outcome(_Told, tag="outcome"):
    """The end of one test, ``PATH::CLASS.TEST``.

    A file that could not be loaded and a selector that matches nothing stand
    here too, under their own name, as errors.
    """

    id: str
    faults: tuple[Fault, ...] = ()
    skipped: str = ""
    output: str = ""

    @property
    def status(self) -> Literal["passed", "failed", "error", "skipped"]:
        """ "failed" when every fault is the test's own assertion."""
        if not self.faults:
            return "skipped" if self.skipped else "passed"
        own = all("AssertionError" in f.bases and not f.fixture for f in self.faults)
        return "failed" if own else "error"

    @property
    def detail(self) -> str:
        """All that the test said: its tracebacks, then what it printed."""
        parts = [fault.traceback.strip() or str(fault) for fault in self.faults]
        return "\n\n".join([*parts, self.output.strip()]).strip()

    def __str__(self) -> str:
        if self.faults:
            return "; ".join(map(str, self.faults))
        return f"skipped: {self.skipped}" if self.skipped else "passed"


class _Elsewhere(_Told, tag="elsewhere"):
    """sglang was found elsewhere than in the tree under test."""

    found: str


class _Plan(_Told, tag="plan"):
    """The tests that are about to run."""

    ids: tuple[str, ...]


class _Start(_Told, tag="start"):
    """A test begins; ``at`` is how much the process had printed by then."""

    id: str = ""
    at: int = 0


def names(patch: Patch, test: str) -> bool:
    """Whether a patch names the test with this id."""
    return any(selects(selector, test) for selector in patch.tests)


_LINE = msgspec.json.Decoder(Outcome | _Elsewhere | _Plan | _Start)


def read(
    report: bytes, output: bytes, selectors: Iterable[str], ending: str
) -> tuple[Outcome, ...]:
    """One outcome for every test that was selected.

    Args:
        report: what the process reported; a line that a kill cut short is dropped.
        output: all that it printed.
        selectors: what was asked of it.
        ending: how the process ended, for the tests that it did not report.

    Raises:
        Precondition: sglang was not the tree's.
    """
    found: dict[str, Outcome] = {}
    pending = dict.fromkeys(selectors)
    # Until the tests are known, what is printed is about all of them.
    running: _Start | None = _Start()
    for line in map(_LINE.decode, report.split(b"\n")[:-1]):
        if isinstance(line, _Elsewhere):
            raise Precondition(
                f"the tests would run against {line.found}",
                cause="sglang was expected in the tree under test",
                next_step="use a Python environment without an sglang of its own",
            )
        if isinstance(line, _Plan):
            pending, running = dict.fromkeys(line.ids), None
        elif isinstance(line, _Start):
            running = line
        else:
            pending.pop(line.id, None)
            if running and running.id == line.id:
                running = None
            # A fixture's fault comes apart from the test's own outcome.
            before = found.setdefault(line.id, line)
            if before is not line:
                faults = before.faults + line.faults
                found[line.id] = msgspec.structs.replace(before, faults=faults)
    for name in pending:
        found[name] = _unreported(name, running, output, ending)
    return tuple(found.values())


def _unreported(
    name: str, running: _Start | None, output: bytes, ending: str
) -> Outcome:
    died = running is not None and running.id in ("", name)
    if running and not died:
        ending = f"{ending} during {running.id}"
    kind = "Died" if died else "NotRun"
    fault = Fault(type=kind, message=ending, fixture="process")
    said = output[running.at :][-_OUTPUT_KEPT:] if died else b""
    return Outcome(id=name, faults=(fault,), output=said.decode("utf-8", "replace"))
