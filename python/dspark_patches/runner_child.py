"""Run test files of one tree in a fork of this process and report each outcome.

Started by :mod:`dspark_patches.runner` under the interpreter that the tree
is tested with, which has none of our dependencies: only the standard library
may be imported here. It reads jobs, one JSON object a line, and answers each
with the process id of the fork and with its exit status. What the tests report
goes to a file of its own, since a test may print anything and may end the
process.
"""

from __future__ import annotations

import faulthandler
import importlib
import importlib.util
import json
import os
import resource
import signal
import sys
import time
import traceback
import unittest
from contextlib import suppress
from typing import Any, Iterator

# sglang.test.test_utils.CustomTestCase runs each test through this function,
# which raises a bare Exception in place of the one that the test raised.
_RETRY = ("python/sglang/srt/utils/common.py", "retry")

_OUTPUT_KEPT = 20_000

Tests = "list[tuple[str, unittest.TestCase]]"


class Report:
    """What is told, and what was printed: files that are opened anew each time,
    since a test may close any descriptor."""

    def __init__(self, tree: str, report: str, log: str) -> None:
        self.tree = tree
        self._path = report
        self._log = log

    def tell(self, kind: str, **fields: Any) -> None:
        line = json.dumps({"kind": kind, **fields}) + "\n"
        with open(self._path, "ab", buffering=0) as stream:
            stream.write(line.encode("utf-8", "backslashreplace"))

    def outcome(self, name: str, *faults: dict[str, Any], **fields: Any) -> None:
        self.tell("outcome", id=name, faults=faults, **fields)

    def printed(self) -> int:
        """How much has been printed."""
        for stream in (sys.__stdout__, sys.__stderr__):
            with suppress(OSError, ValueError):
                stream.flush()
        return os.path.getsize(self._log)

    def output(self, start: int) -> str:
        """The end of what has been printed since then."""
        with open(self._log, "rb") as stream:
            stream.seek(max(start, self.printed() - _OUTPUT_KEPT))
            return stream.read().decode("utf-8", "replace")

    def fault(
        self, error: BaseException, fixture: str = "", subtest: str = ""
    ) -> dict[str, Any]:
        """An exception as data, seen through the retry wrapper."""
        while error.__context__ is not None and self._innermost(error) == _RETRY:
            error = error.__context__
        shown = traceback.format_exception(type(error), error, error.__traceback__)
        try:
            message = str(error)
        except Exception as broken:
            message = f"its own __str__ failed: {type(broken).__name__}"
        return {
            "type": type(error).__name__,
            "bases": [base.__name__ for base in type(error).__mro__],
            "message": f"{subtest} {message}" if subtest else message,
            "frame": self._innermost(error)[0],
            "traceback": "".join(shown),
            "fixture": fixture,
        }

    def _innermost(self, error: BaseException) -> tuple[str, str]:
        """File, relative to the tree or empty outside of it, and function."""
        frames = list(traceback.walk_tb(error.__traceback__))
        if not frames:
            return "", ""
        code = frames[-1][0].f_code
        path = os.path.realpath(code.co_filename)
        inside = path.startswith(self.tree + os.sep)
        return os.path.relpath(path, self.tree) if inside else "", code.co_name


class Result(unittest.TestResult):
    """Tells every outcome with its faults, those of subtests among them."""

    def __init__(self, report: Report, tests: Tests) -> None:
        super().__init__()
        self._report = report
        self._tests = tests
        self._ids = {id(test): name for name, test in tests}

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._faults: list[dict[str, Any]] = []
        self._skips: list[str] = []
        self._at = self._report.printed()
        self._report.tell("start", id=self._ids[id(test)], at=self._at)
        self._started = time.monotonic()

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        self._report.outcome(
            self._ids[id(test)],
            *self._faults,
            skipped="; ".join(self._skips),
            output=self._report.output(self._at),
            seconds=round(time.monotonic() - self._started, 3),
        )

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._faults.append(self._report.fault(err[1]))

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        if id(test) in self._ids:
            self.addFailure(test, err)
        else:
            self._fixture(test, err[1])

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            described = subtest._subDescription()
            self._faults.append(self._report.fault(err[1], subtest=described))

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        reason = reason or "no reason given"
        if id(test) in self._ids:
            self._skips.append(reason)
        else:
            self._fixture(test, skipped=reason)

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._skips.append("expected to fail, and did")

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        error = AssertionError("expected to fail, and did not")
        self._faults.append(self._report.fault(error))

    def _fixture(
        self, holder: Any, error: BaseException | None = None, skipped: str = ""
    ) -> None:
        """Tell of setUpClass, tearDownModule and the like with their tests.

        unittest hands over a stand-in whose id is ``setUpClass (MODULE.CLASS)``.
        """
        fixture, _, owner = holder.id().rstrip(")").partition(" (")
        faults = [self._report.fault(error, fixture)] if error else []
        for name, test in self._tests:
            if owner in (type(test).__module__, unittest.util.strclass(type(test))):
                self._report.outcome(name, *faults, skipped=skipped)


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
    for test in flat(unittest.defaultTestLoader.loadTestsFromModule(module)):
        yield f"{path}::{type(test).__name__}.{test._testMethodName}", test


def flat(tests: Any) -> Iterator[unittest.TestCase]:
    """The tests of a suite, in order."""
    if isinstance(tests, unittest.TestCase):
        yield tests
    else:
        for each in tests:
            yield from flat(each)


def collect(selectors: list[str], report: Report) -> Tests:
    """The selected tests of every selected file, each once.

    A file that does not load and a selector that names nothing are told at once.
    """
    found: Tests = []
    for path in dict.fromkeys(selector.split("::")[0] for selector in selectors):
        try:
            tests = list(load(path, report.tree))
        except BaseException as error:
            report.outcome(path, report.fault(error, "collection"))
            selectors = [s for s in selectors if s.split("::")[0] != path]
            continue
        found += (one for one in tests if any(selects(s, one[0]) for s in selectors))
    for selector in selectors:
        if not any(selects(selector, name) for name, _ in found):
            fault = dict(type="NoSuchTest", message=selector, fixture="collection")
            report.outcome(selector, fault)
    return found


def run(report: Report, selectors: list[str]) -> None:
    """Run the selected tests with the tree's sglang, and tell every outcome."""
    try:
        import sglang
    except BaseException as error:
        for selector in selectors:
            report.outcome(selector, report.fault(error, "collection"))
        return
    # A folder without an __init__.py imports too, and has no file.
    found = os.path.realpath(sglang.__file__ or list(sglang.__path__)[0])
    if not found.startswith(os.path.join(report.tree, "python", "sglang") + os.sep):
        report.tell("elsewhere", found=found)
        return
    tests = collect(selectors, report)
    report.tell("plan", ids=[name for name, _ in tests])
    unittest.TestSuite(test for _, test in tests).run(Result(report, tests))
    report.printed()


def become(tree: str, log: str, env: dict[str, str]) -> None:
    """Turn a fork into the process that ``python3`` would start in the tree."""
    # A session of its own, so that whatever the tests start can be ended with it.
    os.setsid()
    os.chdir(tree)
    os.environ.clear()
    os.environ.update(env)
    # The interpreter read its settings when it started, these among them.
    sys.path[:0] = [p for p in env["PYTHONPATH"].split(os.pathsep) if p not in sys.path]
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, source in enumerate((nothing, output, output)):
        os.dup2(source, descriptor)
    os.close(output)
    os.close(nothing)
    faulthandler.enable()
    # A crash is reported; its core dump would be the size of all of torch.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def wait(child: int) -> int:
    """The exit status of a child, once nothing of its session is left."""
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def serve(preload: list[str]) -> None:
    """Fork for each job on standard input, one after the other."""
    # The interpreter put our own package's folder first; its modules have
    # ordinary names, which tests must not find.
    sys.path.remove(os.path.dirname(os.path.abspath(__file__)))
    # What a module prints while it is loaded is no answer.
    answers = os.dup(1)
    os.dup2(2, 1)
    for name in preload:
        with suppress(Exception):
            importlib.import_module(name)
    for line in sys.stdin.buffer:
        job = json.loads(line)
        child = os.fork()
        if not child:
            os.close(answers)
            become(job["tree"], job["log"], job["env"])
            run(Report(job["tree"], job["report"], job["log"]), job["selectors"])
            # Tearing torch down takes seconds, and threads that a test left
            # behind may never end; everything that counts has been written.
            os._exit(0)
        os.write(answers, b"%d\n" % child)
        os.write(answers, b"%d\n" % wait(child))


if __name__ == "__main__":
    serve(sys.argv[1:])
