"""A change that is killed at any moment loses nothing and can be ended.

On a package the process is killed, for real, before every system call that
writes and in the middle of every file's content. On a checkout, where a run
takes long, what a kill would leave is put aside at every one of these moments,
and some are killed for real.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from machine import Machine, carried, contents, state

from dspark_patches.change.job import change
from dspark_patches.git import Git
from dspark_patches.target.locate import Target, locate
from dspark_patches.target.status import Status, status

CALLS = ("replace", "unlink", "mkdir", "rmdir", "fchmod", "fchown", "fsync")
WRITING = {"read-tree", "apply", "write-tree", "commit-tree", "update-ref"}

Tick = Callable[[], None]


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process needs no disk to have turned: the kernel has its writes."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def instrument(monkeypatch: pytest.MonkeyPatch, tick: Tick) -> None:
    """Let ``tick`` be called before everything that writes."""

    def before(call):
        def ticking(*args, **options):
            tick()
            return call(*args, **options)

        return ticking

    def before_git(run):
        def ticking(command, **options):
            if WRITING.intersection(command):
                tick()
            return run(command, **options)

        return ticking

    for name in CALLS:
        monkeypatch.setattr(os, name, before(getattr(os, name)))
    monkeypatch.setattr(subprocess, "run", before_git(subprocess.run))
    monkeypatch.setattr(os, "fdopen", torn(os.fdopen, tick))


def torn(fdopen, tick: Tick):
    """Files that are written in two halves, with a moment in between."""

    class Torn:
        def __init__(self, stream) -> None:
            self._stream = stream

        def __enter__(self):
            return self

        def __exit__(self, *exception) -> None:
            self._stream.close()

        def write(self, content) -> int:
            half = max(len(content) // 2, 1)
            self._stream.write(content[:half])
            tick()
            return half

    def opened(descriptor, mode="r", *args, **options):
        stream = fdopen(descriptor, mode, *args, **options)
        return Torn(stream) if mode == "wb" else stream

    return opened


def killed(job: Callable[[], object], moment: int) -> bool:
    """Run a job in a process that is killed at a moment; False if it ended."""
    left = iter(range(moment))

    def tick() -> None:
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        try:
            instrument(pytest.MonkeyPatch(), tick)
            job()
            os._exit(0)
        except BaseException:
            os._exit(1)
    _, ending = os.waitpid(child, 0)
    assert not os.WIFEXITED(ending) or os.WEXITSTATUS(ending) == 0
    return os.WIFSIGNALED(ending)


class Store:
    """A folder as it was, to be brought back."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._stored = root.with_name(f"{root.name}-stored")
        self._seen: set[str] = set()
        shutil.copytree(root, self._stored)

    def reset(self, stored: Path | None = None) -> None:
        shutil.rmtree(self.root)
        shutil.copytree(stored or self._stored, self.root)

    def counts(self, state: str) -> bool:
        """Whether to try both ways out of how things are now.

        Every way that things can be once a change is under way; of those
        before, in which nothing has changed yet, one in six.
        """
        if not self._is_new():
            return False
        under_way = (self.root / state / "journal.json").exists()
        return under_way or not len(self._seen) % 6

    def _is_new(self) -> bool:
        """Whether the folder has not been like this before; git's part included."""
        files = (path for path in sorted(self.root.rglob("*")) if path.is_file())
        now = repr([(str(path), path.read_bytes()) for path in files])
        folders = repr([str(path) for path in sorted(self.root.rglob("*/"))])
        new = now + folders not in self._seen
        self._seen.add(now + folders)
        return new

    def kills(self, job: Callable[[], object]) -> Iterator[int]:
        """Every moment at which the job can be killed; it just was."""
        for moment in range(10_000):
            self.reset()
            if not killed(job, moment):
                return
            yield moment


def all_old_or_new(root: Path, old: dict[str, bytes], new: dict[str, bytes]) -> None:
    """Nothing is lost, nothing is torn."""
    for path in old.keys() | new.keys():
        file = root / path
        found = file.read_bytes() if file.exists() else None
        assert found in (old.get(path), new.get(path)), path


def named(found: Status) -> bool:
    """Whether `status` tells how things stand."""
    states = {patch.state for patch in found.patches}
    return bool(found.interrupted) or states in ({"missing"}, {"applied"})


@pytest.mark.parametrize("verb", ["apply", "revert"])
def test_a_package(machine: Machine, verb: str) -> None:
    target = machine.package()
    wanted = {"revert": contents(target.root)}
    change(target, "apply")
    wanted["apply"] = contents(target.root)
    change(target, "revert" if verb == "apply" else "apply")
    store = Store(target.root)
    told = set()
    for moment in store.kills(lambda: change(target, verb)):
        all_old_or_new(target.root, wanted["apply"], wanted["revert"])
        found = status(target)
        assert named(found), moment
        told.add(found.interrupted)
        if not store.counts(target.state):
            continue
        halfway = target.root.with_name("halfway")
        shutil.copytree(target.root, halfway)
        for ending in ("revert", "apply"):
            store.reset(halfway)
            change(target, ending)
            assert contents(target.root) == wanted[ending], moment
            assert status(target).interrupted == ""
        shutil.rmtree(halfway)
    assert moment > 80
    # It was caught before, after and between all the moves.
    assert len(told) > len(carried(state(3))) - len(carried(state(0)))


def test_the_taking_back_is_killed_too(machine: Machine) -> None:
    """Killed while applying, then killed while that is taken back."""
    target = machine.package()
    released = contents(target.root)
    store = Store(target.root)
    half = next(
        moment
        for moment in store.kills(lambda: change(target, "apply"))
        if "3 of 5 files" in status(target).interrupted
    )
    store.reset()
    assert killed(lambda: change(target, "apply"), half)
    back = Store(target.root.rename(target.root.with_name("half")))
    back.root = target.root
    target.root.mkdir()
    for moment in back.kills(lambda: change(target, "revert")):
        if back.counts(target.state):
            change(target, "apply" if moment % 2 else "revert")
            change(target, "revert")
            assert contents(target.root) == released, moment
    assert moment > 20


@pytest.mark.parametrize("verb", ["apply", "revert"])
def test_a_checkout(machine: Machine, verb: str, monkeypatch) -> None:
    """Work tree, index and HEAD agree again, whatever ends it."""
    git = machine.checkout()
    target = locate(git.directory)
    heads = {"revert": git.text("rev-parse", "HEAD")}
    change(target, "apply")
    heads["apply"] = git.text("rev-parse", "HEAD")
    change(target, "revert" if verb == "apply" else "apply")
    store = Store(git.directory)
    aside: list[Path] = []

    def put_aside() -> None:
        if store.counts(target.state):
            aside.append(git.directory.with_name(f"moment-{len(aside)}"))
            shutil.copytree(git.directory, aside[-1])

    with monkeypatch.context() as patch:
        instrument(patch, put_aside)
        change(target, verb)
    for number, moment in enumerate(aside):
        store.reset(moment)
        end(git, target, heads, "apply" if number % 2 else "revert")
    for moment in (40, 70, 100):
        store.reset()
        assert killed(lambda: change(target, verb), moment)
        end(git, target, heads, verb)
    assert len(aside) > 15


def end(git: Git, target: Target, heads: dict[str, str], ending: str) -> None:
    all_old_or_new(target.root, state(0), state(3))
    assert named(status(target))
    change(target, ending)
    assert git.text("rev-parse", "HEAD") == heads[ending]
    assert contents(target.root) == state(3 if ending == "apply" else 0)
    assert git.text("status", "--porcelain") == ""
