"""The two ways to test a mutant: in a preloaded process, and from disk."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dspark_patches.errors import Precondition
from dspark_patches.proof import runner, runner_child

from . import mutant
from .mutant import Mutant

_CHILD = Path(__file__).with_name("child.py")


class Preloaded:
    """A process that has imported a tree, and forks for each mutant.

    Args:
        tree: the patched tree.
        files: the files of it that mutants change.
        selectors: the tests.

    Raises:
        Precondition: the tests do not pass on the tree itself.
    """

    def __init__(self, tree: Path, files: Sequence[str], selectors: Sequence[str]):
        self._scratch = tempfile.TemporaryDirectory(prefix="dspark-mutants-")
        self._log = open(Path(self._scratch.name, "stderr"), "w+b")
        self._process = subprocess.Popen(
            [sys.executable, str(_CHILD)],
            env=runner.environment(tree) | {"TMPDIR": self._scratch.name},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=tree,
        )
        job = dict(
            tree=str(tree),
            files=list(files),
            selectors=list(selectors),
            scratch=self._scratch.name,
            runner=runner_child.__file__,
            timeout=runner.TIMEOUT,
        )
        baseline = self._ask(job)
        if "reason" in baseline:
            why = f"{baseline['by']}: {baseline['reason']}"
            self.__exit__()
            raise Precondition("the tests fail on the patched tree", cause=why)
        self.tests = sorted(baseline["classes"])

    def __enter__(self) -> Preloaded:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._log.close()
        self._scratch.cleanup()

    def judge(self, one: Mutant, own: Sequence[str]) -> dict[str, Any]:
        """What the tests say of a mutant, those of its own patch first."""
        return self._ask(dict(path=one.path, edits=one.edits, own=list(own)))

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())
        except (OSError, ValueError) as error:
            self._log.seek(0)
            said = self._log.read().decode("utf-8", "replace").strip()
            self.__exit__()
            raise Precondition("the preloaded process died", cause=said[-2000:]) from (
                error
            )


class Disk:
    """A patched tree, whose tests run in a fresh process.

    Args:
        build: makes the patched tree at a path.
    """

    def __init__(self, build: Callable[[Path], None]) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="dspark-mutants-")
        self.tree = Path(self._scratch.name, "tree")
        build(self.tree)
        self._server: runner.Server | None = None

    def __enter__(self) -> Disk:
        return self

    def __exit__(self, *error: object) -> None:
        if self._server:
            self._server.kill()
        self._scratch.cleanup()

    def judge(self, one: Mutant, tests: Sequence[Sequence[str]]) -> dict[str, Any]:
        """What tests say of a mutant; each group of them only if the last passes."""
        self._server = self._server or runner.Server(preload=runner.PRELOAD)
        file = self.tree / one.path
        content = file.read_bytes()
        file.write_bytes(mutant.apply(content, one.edits))
        try:
            for selectors in filter(None, tests):
                if found := self._run(selectors):
                    return found
        finally:
            file.write_bytes(content)
        return {"verdict": "alive"}

    def _run(self, selectors: Sequence[str]) -> dict[str, Any]:
        outcomes = runner.run(self.tree, selectors, server=self._server)
        bad = [each for each in outcomes if each.faults]
        if not bad:
            return {}
        late = any("hung" in str(each) for each in bad)
        verdict = "timeout" if late else "killed"
        return {"verdict": verdict, "by": bad[0].id, "reason": str(bad[0])[:300]}
