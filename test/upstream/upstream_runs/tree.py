"""Copies of a checkout, as it is and patched, and the tests that run in them."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

# A status and its reason, by what was checked.
Results = dict[str, list[str]]

_HERE = Path(__file__).resolve().parent
_PACKAGE = _HERE.parents[2] / "python" / "dspark_patches"

# What a user's settings could change in a tree's behaviour, or in git's.
_SCRUBBED = ("PYTHON", "PYTEST", "SGLANG_", "SGL_", "GIT_")
_GIT = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
for _role in ("AUTHOR", "COMMITTER"):
    _GIT[f"GIT_{_role}_NAME"] = "dspark-patches"
    _GIT[f"GIT_{_role}_EMAIL"] = "noreply@dspark-patches.invalid"

# Reading the registry takes neither the package's own __init__, nor what runs the
# tests, nor tabulate, which comes with upstream's test environment.
_SUITE = """
import json, os, runpy, sys
from types import ModuleType, SimpleNamespace
for name in ("sglang", "sglang.test", "sglang.test.ci"):
    sys.modules[name] = ModuleType(name)
    sys.modules[name].__path__ = [os.path.join("python", *name.split("."))]
def answer(files, *_, **__):
    print(json.dumps([os.path.relpath(file.filename) for file in files]))
    return 0
sys.modules["sglang.test.ci.ci_utils"] = SimpleNamespace(run_unittest_files=answer)
sys.modules["tabulate"] = SimpleNamespace(tabulate=lambda *_, **__: "")
sys.argv[0] = "test/run_suite.py"
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Trouble(Exception):
    """Something that keeps us from asking."""


def environment(tree: Path) -> dict[str, str]:
    """Makes a tree the sglang that Python imports, as on a CPU runner of the CI."""
    path = [str(tree / "python")]
    if importlib.util.find_spec("torchvision") is None:
        path += map(str, _PACKAGE.rglob("stubs"))
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_SCRUBBED)}
    return kept | {
        "PYTHONPATH": os.pathsep.join(path),
        "CUDA_VISIBLE_DEVICES": "99",
        "OMP_NUM_THREADS": "1",
        "SGLANG_IS_IN_CI": "1",
    }


def git(directory: Path, *args: str) -> str:
    """Run git with no settings of the user's; its output."""
    command = ["git", "-c", f"core.hooksPath={os.devnull}", *args]
    env = environment(directory) | _GIT
    done = subprocess.run(
        command, cwd=directory, env=env, capture_output=True, text=True
    )
    if done.returncode:
        raise Trouble(f"git {args[0]} in {directory}: {done.stderr.strip()}")
    return done.stdout


def pair(checkout: Path, patches: list[Path], scratch: Path) -> tuple[Path, Path]:
    """Copies of a checkout's commit, or of a plain folder: as it is, and patched."""
    before, after = scratch / "before", scratch / "after"
    if (checkout / ".git").exists():
        git(scratch, "clone", "--quiet", "--shared", str(checkout), str(before))
    else:
        shutil.copytree(checkout, before, symlinks=True)
        git(before, "init", "--quiet")
        git(before, "add", "--all", "--force")
        git(before, "commit", "--quiet", "--message=As it is")
    git(scratch, "clone", "--quiet", "--shared", str(before), str(after))
    git(after, "am", "--quiet", *map(str, patches))
    return before, after


def tag(checkout: Path) -> str:
    """The tag of a checkout's commit; empty where there is none."""
    if not (checkout / ".git").exists():
        return ""
    return git(checkout, "tag", "--points-at", "HEAD").partition("\n")[0]


def touched(before: Path, after: Path) -> list[str]:
    """The files in which the commits of two copies differ."""
    base = git(before, "rev-parse", "HEAD").strip()
    return git(after, "diff", "--name-only", base, "HEAD").splitlines()


def selected(tree: Path) -> list[str]:
    """The test files that upstream's run_suite runs on a CPU."""
    options = ("--hw", "cpu", "--suite", "base-a-test-cpu")
    command = [sys.executable, "-c", _SUITE, *options]
    env = environment(tree)
    done = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True)
    if done.returncode:
        raise Trouble(f"run_suite fails in {tree.name}: {done.stderr[-2000:]}")
    return sorted(json.loads(done.stdout.splitlines()[-1]))


def tests(
    tree: Path, files: list[str], limit: float, jobs: int
) -> Iterator[tuple[str, Results]]:
    """Run test files; each with its results as it ends."""
    with tempfile.TemporaryDirectory(dir=tree.parent) as scratch:
        words = ("forks.py", scratch, str(limit), str(jobs), *files)
        errors = open(Path(scratch, "errors"), "w+")
        server = subprocess.Popen(
            [sys.executable, str(_HERE / words[0]), *words[1:]],
            cwd=tree,
            env=environment(tree) | {"TMPDIR": scratch},
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        with errors, server:
            try:
                for line in server.stdout:
                    file, found = json.loads(line)
                    yield file, {f"{file}::{k}".rstrip(":"): found[k] for k in found}
                if server.wait():
                    errors.seek(0)
                    raise Trouble(f"{tree.name} does not load: {errors.read()[-2000:]}")
            finally:
                server.terminate()
