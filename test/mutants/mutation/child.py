"""Run the tests of one tree against its mutants, each in a fork of this process.

Started by :mod:`.process` under the interpreter of the tests. The tree's sglang and
test files are imported once. Then it reads mutants, one JSON object a line, and
answers each with a line.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import os
import select
import signal
import sys
import threading
import time
import unittest
from contextlib import suppress
from functools import partial

HERE = os.path.dirname(os.path.abspath(__file__))
# A mutated loop may be slower and still end; what takes longer counts as endless.
SLOWER, GRACE = 5, 10


class First(unittest.TestResult):
    """Stops at the first test that does not pass, and knows why."""

    def __init__(self, fault):
        super().__init__()
        self.failfast = True
        self.found = {}
        self._fault = fault

    def addError(self, test, err):
        self.shouldStop = True
        if not self.found:
            fault = self._fault(err[1])
            reason = f"{fault['type']}: {fault['message']}"
            self.found = {"by": test.id().split(".", 1)[-1], "reason": reason[:300]}

    addFailure = addError

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.addError(test, err)

    def addUnexpectedSuccess(self, test):
        self.addError(test, (None, AssertionError("expected to fail, and did not")))


class Child:
    """The preloaded process.

    Args:
        job: ``tree``, ``files`` (those that may be mutated), ``selectors`` and
            ``scratch``.
    """

    def __init__(self, job, runner, swap):
        self._runner, self._swap = runner, swap
        self._tree, self._scratch = job["tree"], job["scratch"]
        self._answer = os.path.join(self._scratch, "answer")
        self._log = os.path.join(self._scratch, "log")
        self._report = runner.Report(self._tree, self._answer, self._log)
        open(self._log, "wb").close()
        self._import(job["selectors"], job["files"])
        self._files = {path: self._full(path) for path in job["files"]}
        self._functions = swap.live(set(self._files.values()))
        self._code, self._seen, self._content = {}, set(), {}
        for path, full in self._files.items():
            if os.path.exists(full):
                with open(full, "rb") as stream:
                    self._content[path] = stream.read()
                self._code[path] = self._compiled(path, self._content[path])
        # What is never collected stays shared between the forks.
        gc.collect()
        gc.freeze()
        self.baseline = self._fork(self._reach, job["timeout"])
        self._classes = self.baseline.get("classes", {})

    def judge(self, task):
        """What the tests say of one mutant."""
        path, swap = task["path"], self._swap
        content = self._content[path]
        for start, end, text in reversed(task["edits"]):
            content = content[:start] + text.encode() + content[end:]
        try:
            code = self._compiled(path, content)
            # Their hash, since a thousand of them would fill the memory.
            if hash(code) in self._seen:
                return {"verdict": "same"}
            self._seen.add(hash(code))
            changed = swap.Changed(self._code[path], code, self._functions)
        except SyntaxError:
            return {"verdict": "killed", "by": "compile()", "reason": "SyntaxError"}
        except (swap.NotSwappable, KeyError):
            return {"verdict": "disk"}
        if not changed.own:
            return {"verdict": "same"}
        keys = {json.dumps(swap.key(code)) for code in changed.own}
        reached = [n for n, seen in self._classes.items() if keys & set(seen["keys"])]
        reached.sort(key=lambda name: not self._is_own(name, task["own"]))
        found = {"verdict": "alive", "reached": reached}
        if reached:
            seconds = sum(self._classes[name]["seconds"] for name in reached)
            seconds = GRACE + SLOWER * seconds
            found |= self._fork(partial(self._run, changed, reached), seconds)
        if "reason" in found and found["verdict"] == "alive":
            found["verdict"] = "killed"
        return found

    def _import(self, selectors, files):
        os.chdir(self._tree)
        import sglang

        found = os.path.realpath(sglang.__file__ or list(sglang.__path__)[0])
        assert found.startswith(os.path.realpath(self._tree) + os.sep), found
        self._tests = {}
        for name, each in self._runner.collect(selectors, self._report):
            self._tests.setdefault(name.rpartition(".")[0], []).append(each)
        # Some are first imported by the function that needs them.
        for path in files:
            with suppress(Exception):
                name = path.removeprefix("python/").removesuffix(".py")
                importlib.import_module(name.replace("/", "."))

    def _full(self, path):
        return os.path.join(self._tree, path)

    def _compiled(self, path, content):
        return compile(content, self._files[path], "exec", dont_inherit=True)

    def _is_own(self, name, selectors):
        return any(
            self._runner.selects(s, name) or s.startswith(name + ".") for s in selectors
        )

    def _run(self, changed, names):
        changed.swap()
        for name in names:
            result = First(self._report.fault)
            unittest.TestSuite(self._tests[name]).run(result)
            if result.found:
                return result.found
        return {}

    def _reach(self):
        """Which functions of the files each class of tests runs, and how long it is."""
        files, seen = set(self._files.values()), set()

        def trace(frame, event, argument):
            if frame.f_code.co_filename in files:
                seen.add(json.dumps(self._swap.key(frame.f_code)))

        found = {}
        for name, tests in self._tests.items():
            seen.clear()
            result, start = First(self._report.fault), time.monotonic()
            threading.settrace(trace), sys.settrace(trace)
            unittest.TestSuite(tests).run(result)
            threading.settrace(None), sys.settrace(None)
            if result.found:
                return result.found
            seconds = time.monotonic() - start
            found[name] = {"keys": sorted(seen), "seconds": seconds}
        return {"classes": found}

    def _fork(self, task, seconds):
        with suppress(FileNotFoundError):
            os.unlink(self._answer)
        child = os.fork()
        if not child:
            environ = os.environ | {"TMPDIR": self._scratch}
            self._runner.become(self._tree, self._log, environ)
            try:
                found = task()
            except BaseException as error:
                found = {"by": "the process", "reason": repr(error)[:300]}
            with open(self._answer + ".new", "w") as stream:
                json.dump(found, stream)
            os.rename(self._answer + ".new", self._answer)
            os._exit(0)
        ending = os.pidfd_open(child)
        ended, _, _ = select.select([ending], [], [], seconds)
        os.close(ending)
        for kill in (os.killpg, os.kill):
            with suppress(ProcessLookupError):
                kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if not ended:
            reason = f"no end after {seconds:.0f} seconds"
            return {"verdict": "timeout", "by": "the clock", "reason": reason}
        try:
            with open(self._answer) as stream:
                return json.load(stream)
        except FileNotFoundError:
            return {"by": "the process", "reason": f"ended with status {status}"}


def module(name, path):
    """A module by its file."""
    spec = importlib.util.spec_from_file_location(name, path)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def main():
    # The interpreter put this folder first, whose names tests must not find.
    sys.path.remove(HERE)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    job = json.loads(sys.stdin.readline())
    runner = module("mutants_runner_child", job["runner"])
    swap = module("mutants_swap", os.path.join(HERE, "swap.py"))
    child = Child(job, runner, swap)
    print(json.dumps(child.baseline), file=answers)
    for line in sys.stdin:
        start = time.monotonic()
        answer = child.judge(json.loads(line))
        answer["seconds"] = round(time.monotonic() - start, 2)
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
