"""What became of each test, read from the report of the tests' process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from ..errors import Precondition
from ..model.series import Patch
from .runner_child import OUTPUT_KEPT, selects


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


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
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


def names(patch: Patch, test: str) -> bool:
    """Whether a patch names the test with this id."""
    return any(selects(selector, test) for selector in patch.tests)


def read(
    report: bytes, output: bytes, selectors: Iterable[str], ending: str
) -> tuple[Outcome, ...]:
    """One outcome for every test that was selected.

    Args:
        report: what the process reported: the last line of a test counts, and one that
            a kill cut short is dropped.
        output: all that it printed.
        selectors: what was asked of it.
        ending: how the process ended, for the tests that it did not report.

    Raises:
        Precondition: sglang was not the tree's.
    """
    decoder = msgspec.json.Decoder(Outcome)
    found = {one.id: one for one in map(decoder.decode, report.split(b"\n")[:-1])}
    if "" in found:
        raise Precondition(
            f"the tests would run against {found[''].faults[0].message}",
            cause="sglang was expected in the tree under test",
            next_step="use a Python environment without an sglang of its own",
        )
    for selector in selectors:
        file = selector.partition("::")[0]
        if not any(name == file or selects(selector, name) for name in found):
            fault = Fault(type="Died", message="", fixture="process")
            found[selector] = Outcome(id=selector, faults=(fault,))
    during = ""
    for name, one in found.items():
        for fault in one.faults[-1:]:
            if fault.fixture == "process":
                died = fault.type == "Died"
                said = output[-OUTPUT_KEPT:].decode("utf-8", "replace") if died else ""
                fault = msgspec.structs.replace(fault, message=ending + during)
                found[name] = Outcome(id=name, faults=(fault,), output=said)
                during = during or f" during {name}"
    return tuple(found.values())
