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
from types import TracebackType
from typing import Any, Iterator

WRONG_TREE = 96
NO_SGLANG = 97

# sglang.test.test_utils.CustomTestCase runs each test through this function,
# which raises a bare Exception in place of the one that the test raised.
_RETRY = ("python/sglang/srt/utils/common.py", "retry")


class Events:
    """The report, opened anew for each line: a test may close any descriptor."""

    def __init__(self, path: str) -> None:
        self._path = path

    def emit(self, event: str, **fields: Any) -> None:
        line = json.dumps({"event": event, **fields}) + "\n"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        descriptor = os.open(self._path, flags, 0o600)
        try:
            os.write(descriptor, line.encode("utf-8", "backslashreplace"))
        finally:
            os.close(descriptor)


class Result(unittest.TestResult):
    """Every outcome with its failures, subtests among them, as data."""

    def __init__(
        self, events: Events, tests: list[tuple[str, unittest.TestCase]], tree: str
    ) -> None:
        super().__init__()
        self._events = events
        self._tests = tests
        self._ids = {id(test): name for name, test in tests}
        self._tree = tree
        self._begin()

    def _begin(self) -> None:
        self._failures: list[dict[str, Any]] = []
        self._skips: list[str] = []
        self._started = time.monotonic()

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._begin()
        self._events.emit("start", id=self._ids[id(test)], at=output_size())

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        self._events.emit(
            "stop",
            id=self._ids[id(test)],
            at=output_size(),
            seconds=round(time.monotonic() - self._started, 3),
            failures=self._failures,
            skipped="; ".join(self._skips),
        )

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._add(test, err)

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        if id(test) in self._ids:
            self._add(test, err)
        else:
            self._fixture(test, failure=describe(err[1], self._tree))

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self._add(test, err, subtest._subDescription())

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
        self._add(test, (type(error), error, None))

    def _add(self, test: unittest.TestCase, err: Any, subtest: str = "") -> None:
        self._failures.append(describe(err[1], self._tree) | {"subtest": subtest})

    def _fixture(self, holder: Any, **fields: Any) -> None:
        """Report setUpClass, tearDownModule and the like with their tests.

        unittest hands over a stand-in whose id is ``setUpClass (MODULE.CLASS)``.
        """
        fixture, _, owner = holder.id().rstrip(")").partition(" (")
        ids = [name for name, test in self._tests if owner in owners(test)]
        self._events.emit("fixture", fixture=fixture, ids=ids, **fields)


def owners(test: unittest.TestCase) -> tuple[str, str]:
    """The module and the class of a test, as unittest names them."""
    return type(test).__module__, unittest.util.strclass(type(test))


def describe(error: BaseException, tree: str) -> dict[str, Any]:
    """An exception as data, seen through the retry wrapper."""
    while error.__context__ is not None and _innermost(error, tree) == _RETRY:
        error = error.__context__
    shown = traceback.format_exception(type(error), error, error.__traceback__)
    try:
        message = str(error)
    except Exception as broken:
        message = f"its own __str__ failed: {type(broken).__name__}"
    return {
        "type": type(error).__name__,
        "bases": [base.__name__ for base in type(error).__mro__],
        "message": message,
        "frame": _innermost(error, tree)[0],
        "traceback": "".join(shown),
    }


def _innermost(error: BaseException, tree: str) -> tuple[str, str]:
    """File, relative to the tree or empty outside of it, and function."""
    step: TracebackType | None = error.__traceback__
    if step is None:
        return "", ""
    while step.tb_next is not None:
        step = step.tb_next
    code = step.tb_frame.f_code
    path = os.path.realpath(code.co_filename)
    inside = path.startswith(tree + os.sep)
    return os.path.relpath(path, tree) if inside else "", code.co_name


def output_size() -> int:
    """How much this process has printed; -1 when a test closed its output."""
    try:
        sys.__stdout__.flush()
        sys.__stderr__.flush()
        return os.fstat(1).st_size
    except (OSError, ValueError):
        return -1


def load(path: str, tree: str) -> unittest.TestSuite:
    """The tests of one file, as ``python3 FILE`` would see them."""
    name = "dspark_test_" + "".join(c if c.isalnum() else "_" for c in path)
    spec = importlib.util.spec_from_file_location(name, os.path.join(tree, path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return unittest.defaultTestLoader.loadTestsFromModule(module)


def flatten(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    """The suite's tests, in order."""
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flatten(test)
        else:
            yield test


def selects(selector: str, test: str) -> bool:
    """Whether ``PATH[::CLASS[.TEST]]`` names the test with this id."""
    return test == selector or test.startswith((selector + "::", selector + "."))


def collect(
    tree: str, selectors: list[str], events: Events
) -> list[tuple[str, unittest.TestCase]]:
    """The selected tests of every selected file, each once."""
    found = []
    for path in dict.fromkeys(selector.split("::")[0] for selector in selectors):
        try:
            tests = list(flatten(load(path, tree)))
        except BaseException as error:
            events.emit("uncollected", id=path, failure=describe(error, tree))
            continue
        for test in tests:
            name = f"{path}::{type(test).__name__}.{test._testMethodName}"
            if any(selects(selector, name) for selector in selectors):
                found.append((name, test))
    return found


def check_tree(tree: str, events: Events) -> int:
    """Import sglang; 0 if it is the tree under test, else an exit status."""
    try:
        import sglang
    except BaseException as error:
        events.emit("fatal", failure=describe(error, tree))
        return NO_SGLANG
    # A folder without an __init__.py imports too, and has no file.
    found = os.path.realpath(sglang.__file__ or list(sglang.__path__)[0])
    if found.startswith(os.path.join(tree, "python", "sglang") + os.sep):
        return 0
    events.emit("wrong-tree", found=found)
    return WRONG_TREE


def run(tree: str, report: str, selectors: list[str]) -> int:
    """Run the selected tests; 0 means that every outcome was reported."""
    events = Events(report)
    status = check_tree(tree, events)
    if status:
        return status
    tests = collect(tree, selectors, events)
    events.emit("collected", ids=[name for name, _ in tests])
    suite = unittest.TestSuite(test for _, test in tests)
    suite.run(Result(events, tests, tree))
    output_size()
    events.emit("done")
    return 0


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
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        pass
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
        try:
            importlib.import_module(name)
        except Exception:
            pass
    for line in sys.stdin.buffer:
        job = json.loads(line)
        child = os.fork()
        if not child:
            os.close(answers)
            become(job["tree"], job["log"], job["env"])
            # Tearing torch down takes seconds, and threads that a test left
            # behind may never end; everything that counts has been written.
            os._exit(run(job["tree"], job["report"], job["selectors"]))
        os.write(answers, b"%d\n" % child)
        os.write(answers, b"%d\n" % wait(child))


if __name__ == "__main__":
    serve(sys.argv[1:])
