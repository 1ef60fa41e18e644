"""Print which lines of the test kit the tests of a series do not run, as JSON.

    kit_coverage.py '[{"kit": [FILE, ...], "tests": [FILE, ...]}, ...]'

One step per patch, in order: what it adds of the kit, and its test files. A file
of the kit must have been run by the tests of its patch and of the one after it.
Runs in a tree, as a process of its own.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import unittest

import coverage


def missing(steps: list[dict]) -> dict[str, list[int]]:
    """The lines of each file that ran too late, or never."""
    kit = [path for step in steps for path in step["kit"]]
    measured = coverage.Coverage(data_file=None, include=kit)
    found = {}
    for step, after in zip(steps, [*steps[1:], {"tests": []}]):
        measured.start()
        for path in step.pop("tests") + after["tests"]:
            run(path)
        after["tests"] = []
        measured.stop()
        for path in step["kit"]:
            found[path] = measured.analysis2(path)[3]
    return {path: lines for path, lines in found.items() if lines}


def run(path: str) -> None:
    """Run the tests of a file.

    Raises:
        SystemExit: one of them failed.
    """
    name = path.removesuffix(".py").replace("/", "_")
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tests = unittest.defaultTestLoader.loadTestsFromModule(module)
    if not unittest.TextTestRunner(verbosity=0).run(tests).wasSuccessful():
        raise SystemExit(f"{path} failed")


if __name__ == "__main__":
    print(json.dumps(missing(json.loads(sys.argv[1]))))
