"""run.py on a made-up checkout, with a series that harms and one that does not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import psutil
import pytest

RUN = Path(__file__).with_name("run.py")
UNIT = "test/registered/unit/spec"
LIMIT = "8"

TEST = """import os
import signal
import subprocess
import time
import unittest
from pathlib import Path

import sglang

# register_cpu_ci


class Test(unittest.TestCase):
{body}
"""
FIRST = """\
        flag = Path(self.id())
        first = not flag.exists()
        flag.touch()
"""
BODIES = {
    "value": """\
    def test_value(self):
        self.assertEqual(sglang.VALUE, 1)

    def test_fails_anyway(self):
        self.fail()

    @unittest.skip("never")
    def test_skipped(self):
        pass
""",
    "flaky": f"""\
    def test_flaky_after(self):
{FIRST}        self.assertFalse(sglang.PATCHED and first)

    def test_flaky_before(self):
{FIRST}        self.assertTrue(first and not sglang.PATCHED)
""",
    "hangs": """\
    def test_first(self):
        child = subprocess.Popen(["sleep", "600"])
        with open(os.environ["TOY_CHILDREN"], "a") as stream:
            stream.write(f"{child.pid}\\n")

    def test_hangs(self):
        time.sleep(600)
""",
    "dies": """\
    def test_dies(self):
        if sglang.VALUE != 1:
            os.kill(os.getpid(), signal.SIGSEGV)
""",
}
NEW = TEST.format(body="    def test_new(self):\n        pass\n").rstrip() + "\n"
RUN_SUITE = """\
import glob
import sys
from types import SimpleNamespace

import tabulate
from sglang.test.ci.ci_utils import run_unittest_files

assert sys.argv[1:] == ["--hw", "cpu", "--suite", "base-a-test-cpu"]
files = glob.glob("test/registered/**/test_*.py", recursive=True)
files = [file for file in files if "register_cpu_ci" in open(file).read()]
sys.exit(run_unittest_files([SimpleNamespace(filename=file) for file in files]))
"""
CHECK = """\
import glob
import sys

files = glob.glob("test/registered/**/test_*.py", recursive=True)
sys.exit(any("register" not in open(file).read() for file in files))
"""
CONFIG = f"""\
repos:
  - repo: https://github.com/PyCQA/isort
    rev: 0.0.1
    hooks:
      - id: isort
  - repo: https://github.com/psf/black
    rev: {metadata.version("black")}
    hooks:
      - id: black-jupyter
        exclude: '^nothing'
  - repo: local
    hooks:
      - id: check-registered-tests
        entry: python3 scripts/check.py
        files: ^test/registered/
        pass_filenames: false
"""
CHECKOUT = {
    "python/sglang/__init__.py": "VALUE = 1\nPATCHED = False\n",
    "python/sglang/srt/__init__.py": "",
    "python/sglang/srt/managers/__init__.py": "",
    "python/sglang/srt/managers/schedule_batch.py": "",
    "python/sglang/test/__init__.py": "",
    "python/sglang/test/test_utils.py": "print('not an answer')\n",
    "python/sglang/test/ci/__init__.py": "",
    "python/sglang/test/ci/ci_utils.py": "run_unittest_files = None\n",
    "test/run_suite.py": RUN_SUITE,
    "scripts/check.py": CHECK,
    ".pre-commit-config.yaml": CONFIG,
    **{f"{UNIT}/test_{k}.py": TEST.format(body=v) for k, v in BODIES.items()},
}
SERIES = {
    "harmless": {
        "python/sglang/__init__.py": "VALUE = 1\nPATCHED = True\n",
        "test/registered/unit/elsewhere/test_new.py": NEW,
    },
    "harmful": {
        "python/sglang/__init__.py": "VALUE=2\nPATCHED = False\n",
        f"{UNIT}/test_new.py": NEW.replace("pass", "self.fail()"),
        f"{UNIT}/test_unregistered.py": NEW.replace("# register_cpu_ci\n\n", ""),
    },
}


def lay(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        Path(root, name).parent.mkdir(parents=True, exist_ok=True)
        Path(root, name).write_text(text)


def git(directory: Path, *args: str) -> None:
    identity = ("-c", "user.name=toy", "-c", "user.email=toy@example.invalid")
    subprocess.run(
        ["git", *identity, *args], cwd=directory, check=True, capture_output=True
    )


def listing(root: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in root.rglob("*") if p.is_file()}


@pytest.fixture
def checkout(tmp_path):
    root = tmp_path / "checkout"
    lay(root, CHECKOUT)
    git(tmp_path, "init", "--quiet", "checkout")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message=toy")
    return root


@pytest.fixture
def ask(tmp_path, checkout):
    """Run it on a series of the checkout's: its status, output and report."""

    def ask(
        name: str, edited: dict[str, str] = {}, dirs: str = "spec"
    ) -> tuple[int, str, dict]:
        work = tmp_path / "work"
        git(tmp_path, "clone", "--quiet", str(checkout), str(work))
        lay(work, SERIES[name])
        git(work, "add", "--all")
        git(work, "commit", "--quiet", "--message=A patch")
        git(work, "format-patch", "-1", f"--output-directory={tmp_path / 'p' / name}")
        if name == "harmless":
            shutil.rmtree(checkout / ".git")
            lay(checkout, edited)
        else:
            git(checkout, "tag", name)
            git(checkout, "checkout", "--quiet", "--detach", name)
        return run(name, dirs)

    def run(name: str, dirs: str) -> tuple[int, str, dict]:
        known, report = listing(checkout), tmp_path / "report.json"
        options = ["--json", str(report), "--dirs", dirs, "--limit", LIMIT]
        options += ["--jobs", "2", "--patches", str(tmp_path / "p")]
        if name == "harmless":
            options += ["--release", name]
        env = os.environ | {"TOY_CHILDREN": str(tmp_path / "children")}
        command = [sys.executable, str(RUN), str(checkout), *options]
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        assert listing(checkout) == known
        found = json.loads(report.read_text()) if report.exists() else {}
        return done.returncode, done.stdout + done.stderr, found

    return ask


def differences(report: dict) -> set[tuple[str, str, str, str]]:
    return {
        (d["kind"], d["what"].removeprefix(f"{UNIT}/"), d["before"][0], d["after"][0])
        for d in report["differences"]
    }


def runs(pid: int) -> bool:
    """Whether a process runs; what a container's init has not reaped does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_harmless_series(ask, tmp_path):
    status, output, report = ask("harmless")
    assert status == 0, output
    assert differences(report) == {
        ("flaky", "test_flaky.py::Test::test_flaky_after", "passed", "failed"),
        ("flaky", "test_flaky.py::Test::test_flaky_before", "passed", "failed"),
    }
    before, after = report["results"]
    states = {k.removeprefix(f"{UNIT}/"): v[0] for k, v in after.items()}
    assert states["test_value.py::Test::test_fails_anyway"] == "failed"
    assert states["test_value.py::Test::test_skipped"] == "skipped"
    assert states["test_hangs.py::Test::test_first"] == "passed"
    assert (
        states["test_hangs.py::Test::test_hangs"] == states["test_hangs.py"] == "hung"
    )
    new = "test/registered/unit/elsewhere/test_new.py"
    assert states[f"run_suite selects: {new}"] == "passed"
    assert (
        states[f"black-jupyter: {new}"] == states[f"{new}::Test::test_new"] == "passed"
    )
    assert states["check-registered-tests"] == "passed"
    isort = f"0.0.1 is pinned, {metadata.version('isort')} is installed"
    assert report["checks_left_out"] == {"isort": isort}
    children = (tmp_path / "children").read_text().split()
    assert len(children) == 2
    assert not [pid for pid in children if runs(int(pid))]


def test_a_harmful_series(ask):
    status, output, report = ask("harmful")
    assert status == 1, output
    unregistered = f"{UNIT}/test_unregistered.py"
    assert differences(report) == {
        ("broken", "test_value.py::Test::test_value", "passed", "failed"),
        ("broken", "test_dies.py", "absent", "died"),
        ("broken", "test_dies.py::Test::test_dies", "passed", "died"),
        ("broken", "test_new.py::Test::test_new", "absent", "failed"),
        ("broken", "black-jupyter: python/sglang/__init__.py", "passed", "failed"),
        ("broken", f"run_suite selects: {unregistered}", "absent", "failed"),
        ("broken", "check-registered-tests", "passed", "failed"),
    }
    assert "SIGSEGV" in output and "AssertionError: 2 != 1" in output


def test_a_series_that_does_not_apply(ask):
    status, output, report = ask(
        "harmless", {"python/sglang/__init__.py": "VALUE = 3\n"}
    )
    assert (status, report) == (2, {})
    assert "git am" in output and "patch does not apply" in output


def test_a_folder_without_tests(ask):
    status, output, report = ask("harmless", dirs="spec,spectral")
    assert (status, report) == (2, {})
    assert "selects nothing in test/registered/unit/spectral" in output
