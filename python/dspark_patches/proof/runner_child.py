"""Run test files of one tree in a fork of this process and report each outcome.

Run by the interpreter that the tree is tested with, which has none of our dependencies.
It reads jobs, one JSON object a line, and answers each with the process id of the fork
and with its exit status. Outcomes go to a file of their own: a test may print anything.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import json
import os
import resource
import signal
import sys
import traceback
import unittest
from contextlib import suppress
from typing import Any, Iterator, Sequence

OUTPUT_KEPT = 20_000


class Report:
    """What is told and was printed; a test may close any descriptor of the files."""

    def __init__(self, tree: str, report: str, log: str) -> None:
        self.tree = tree
        self._path = report
        self._log = log

    def tell(self, id: str, faults: Sequence[dict] = (), **fields: Any) -> None:
        """Tell an outcome, or a better known one of the same test."""
        line = json.dumps({"id": id, "faults": faults, **fields}) + "\n"
        with open(self._path, "ab", buffering=0) as stream:
            stream.write(line.encode("utf-8", "backslashreplace"))

    def process(self, id: str, type: str, message: str = "") -> None:
        """Tell what became of a test if no more is told."""
        self.tell(id, [{"type": type, "message": message, "fixture": "process"}])

    def printed(self) -> int:
        for stream in (sys.__stdout__, sys.__stderr__):
            with suppress(OSError, ValueError):
                stream.flush()
        return os.path.getsize(self._log)

    def output(self, start: int) -> str:
        with open(self._log, "rb") as stream:
            stream.seek(max(start, self.printed() - OUTPUT_KEPT))
            return stream.read().decode("utf-8", "replace")

    def fault(self, error: Any, fixture: str = "", subtest: str = "") -> dict:
        """An exception as data."""
        # Upstream's CustomTestCase raises another in place of what the test raised.
        while type(error) is Exception and error.__context__ is not None:
            if not str(error).startswith("retry() "):
                break
            error = error.__context__
        shown = traceback.TracebackException.from_exception(error)
        file = os.path.realpath(shown.stack[-1].filename) if shown.stack else ""
        inside = file.startswith(self.tree + os.sep)
        return {
            "type": type(error).__name__,
            "bases": [each.__name__ for each in type(error).__mro__],
            "message": f"{subtest} {shown}" if subtest else str(shown),
            "frame": os.path.relpath(file, self.tree) if inside else "",
            "traceback": "".join(shown.format()),
            "fixture": fixture,
        }


class Result(unittest.TestResult):
    """Tells every outcome with its faults, those of subtests among them."""

    def __init__(self, report: Report, tests: list) -> None:
        super().__init__()
        self._report = report
        self._tests = tests
        self._ids = {id(test): name for name, test in tests}
        # A fixture's fault may come apart from the test's own outcome.
        self._told: dict[str, dict[str, Any]] = {
            name: dict(faults=[], skipped="", output="") for name, _ in tests
        }

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._at = self._report.printed()
        self._report.process(self._ids[id(test)], "Died")

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        self._of(test)["output"] = self._report.output(self._at)
        self._report.tell(self._ids[id(test)], **self._of(test))

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._of(test)["faults"].append(self._report.fault(err[1]))

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        if id(test) in self._ids:
            self.addFailure(test, err)
        else:
            self._fixture(test, error=err[1])

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            fault = self._report.fault(err[1], subtest=subtest._subDescription())
            self._of(test)["faults"].append(fault)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        reason = reason or "no reason given"
        if id(test) in self._ids:
            self._of(test)["skipped"] = reason
        else:
            self._fixture(test, skipped=reason)

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:
        self.addSkip(test, "expected to fail, and did")

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self.addFailure(test, (None, AssertionError("expected to fail, and did not")))

    def _of(self, test: unittest.TestCase) -> dict[str, Any]:
        return self._told[self._ids[id(test)]]

    def _fixture(self, holder: Any, error: Any = None, skipped: str = "") -> None:
        """Tell of ``setUpClass (MODULE.CLASS)`` and the like with their tests."""
        fixture, _, owner = holder.id().rstrip(")").partition(" (")
        for name, test in self._tests:
            if owner in (type(test).__module__, unittest.util.strclass(type(test))):
                told = self._told[name]
                told["faults"] += [self._report.fault(error, fixture)] if error else []
                told["skipped"] = told["skipped"] or skipped
                self._report.tell(name, **told)


def selects(selector: str, test: str) -> bool:
    """Whether ``PATH[::CLASS[.TEST]]`` names the test with this id."""
    return test == selector or test.startswith((selector + "::", selector + "."))


def load(path: str, tree: str) -> Iterator[tuple[str, unittest.TestCase]]:
    """The tests of one file, as ``python3 FILE`` would see them, by their ids."""
    name = "dspark_test_" + "".join(c if c.isalnum() else "_" for c in path)
    spec = importlib.util.spec_from_file_location(name, os.path.join(tree, path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    suites = [unittest.defaultTestLoader.loadTestsFromModule(module)]
    while suites:
        test = suites.pop()
        if isinstance(test, unittest.TestCase):
            yield f"{path}::{type(test).__name__}.{test._testMethodName}", test
        else:
            suites += reversed(list(test))


def collect(selectors: list[str], report: Report) -> list:
    """The selected tests, each once; what does not load or exist is told at once."""
    found = []
    for path in dict.fromkeys(selector.split("::")[0] for selector in selectors):
        try:
            tests = list(load(path, report.tree))
        except BaseException as error:
            report.tell(path, [report.fault(error, "collection")])
            selectors = [s for s in selectors if s.split("::")[0] != path]
            continue
        found += (one for one in tests if any(selects(s, one[0]) for s in selectors))
    for selector in selectors:
        if not any(selects(selector, name) for name, _ in found):
            fault = dict(type="NoSuchTest", message=selector, fixture="collection")
            report.tell(selector, [fault])
    return found


def run(report: Report, selectors: list[str]) -> None:
    """Run the selected tests with the tree's sglang, and tell every outcome."""
    try:
        import sglang

        # A folder without an __init__.py imports too, and has no file.
        found = os.path.realpath(sglang.__file__ or list(sglang.__path__)[0])
    except BaseException as error:
        for one in selectors:
            report.tell(one, [report.fault(error, "collection")])
        return
    if not found.startswith(os.path.join(report.tree, "python", "sglang") + os.sep):
        report.process("", "Elsewhere", found)
        return
    tests = collect(selectors, report)
    for name, _ in tests:
        report.process(name, "NotRun")
    unittest.TestSuite(test for _, test in tests).run(Result(report, tests))
    report.printed()


def become(tree: str, log: str, env: dict[str, str]) -> None:
    """Turn a fork into the process that ``python3`` would start in the tree."""
    # So that whatever the tests start can be ended with it.
    os.setsid()
    os.chdir(tree)
    os.environ.clear()
    os.environ.update(env)
    sys.path[:0] = [p for p in env["PYTHONPATH"].split(os.pathsep) if p not in sys.path]
    with open(os.devnull) as nothing, open(log, "ab") as output:
        for descriptor, source in enumerate((nothing, output, output)):
            os.dup2(source.fileno(), descriptor)
    faulthandler.enable()
    # A core dump would be the size of all of torch.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def serve(preload: list[str]) -> None:
    """Fork for each job on standard input, one after the other."""
    # The interpreter put our package's folder first, whose names tests must not find.
    sys.path.remove(os.path.dirname(os.path.abspath(__file__)))
    # What a module prints while it is loaded is no answer.
    answers = os.dup(1)
    os.dup2(2, 1)
    for name in preload:
        with suppress(Exception):
            importlib.import_module(name)
    for line in sys.stdin.buffer:
        job = json.loads(line)
        hold, go = os.pipe()
        child = os.fork()
        if not child:
            os.close(go)
            # One of which nobody was told could not be ended.
            _ = os.read(hold, 1) or os._exit(0)
            os.close(answers)
            become(job["tree"], job["log"], job["env"])
            faulthandler.dump_traceback_later(job["timeout"], exit=True)
            run(Report(job["tree"], job["report"], job["log"]), job["selectors"])
            # Tearing torch down takes seconds, and a test's threads may never end.
            os._exit(0)
        os.write(answers, b"%d\n" % child)
        os.write(go, b"!")
        os.close(hold), os.close(go)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        # Nothing of its session may be left when its end is told.
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.write(answers, b"%d\n" % status)


if __name__ == "__main__":
    serve(sys.argv[1:])
