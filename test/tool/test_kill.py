"""A change that is killed at any moment loses nothing and can be ended.

The process is killed, for real, before every system call that writes, in the
middle of every file's content, and before git moves the index or a ref.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from machine import (
    EAGLE,
    KIT,
    LATER,
    Machine,
    carried,
    contents,
    environment,
    state,
    uninstall,
)

from dspark_patches.git import Git
from dspark_patches.installs.apply import change
from dspark_patches.installs.locate import Target, locate
from dspark_patches.installs.status import Status

MOVES = ("replace", "unlink", "rmdir")
STAGES = ("mkdir", "fchmod")
WRITING = {"update-ref", "--index-info"}
OTHER = {"apply": "revert", "revert": "apply"}

Tick = Callable[[], None]


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process needs no disk to have turned: the kernel has its writes."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def instrument(monkeypatch: pytest.MonkeyPatch, tick: Tick, moves: bool) -> None:
    """Let ``tick`` be called before all that writes, or only what moves files."""

    def before(call, counts=lambda args: True):
        def ticking(*args, **options):
            if counts(args):
                tick()
            return call(*args, **options)

        return ticking

    for name in MOVES if moves else (*MOVES, *STAGES):
        monkeypatch.setattr(os, name, before(getattr(os, name)))
    git = before(subprocess.run, lambda args: WRITING.intersection(args[0]))
    monkeypatch.setattr(subprocess, "run", git)
    if not moves:
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


def killed(job: Callable[[], object], moment: int, moves: bool) -> bool:
    """Run a job in a process that is killed at a moment; False if it ended."""
    left = iter(range(moment))

    def tick() -> None:
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        try:
            instrument(pytest.MonkeyPatch(), tick, moves)
            job()
            os._exit(0)
        except BaseException:
            os._exit(1)
    _, ending = os.waitpid(child, 0)
    assert not os.WIFEXITED(ending) or os.WEXITSTATUS(ending) == 0
    return os.WIFSIGNALED(ending)


def kills(root: Path, job: Callable[[], object], moves: bool = False) -> Iterator[int]:
    """Every moment at which a job on a folder can be killed; it just was.

    With ``moves``, only those before a file is moved. Moments that leave the folder as one before did are passed over.
    """
    stored = root.with_name(f"{root.name}-stored")
    bring(root, stored)
    seen: set[str] = set()
    for moment in range(10_000):
        bring(stored, root)
        if not killed(job, moment, moves):
            break
        now = repr([(str(p), p.is_file() and p.read_bytes()) for p in parts(root)])
        if now not in seen:
            seen.add(now)
            yield moment


def parts(root: Path) -> list[Path]:
    """What can differ between moments, objects that nothing refers to aside."""
    return sorted(path for path in root.rglob("*") if "objects" not in path.parts)


def bring(stored: Path, root: Path) -> None:
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(stored, root)


def names(root: Path) -> list[str]:
    return sorted(str(path) for path in root.rglob("*") if ".git" not in path.parts)


def all_old_or_new(root: Path, old: dict[str, bytes], new: dict[str, bytes]) -> None:
    """Nothing is lost, nothing is torn."""
    for path in old.keys() | new.keys():
        file = root / path
        found = file.read_bytes() if file.exists() else None
        assert found in (old.get(path), new.get(path)), path


def both_ways(machine: Machine, verb: str) -> tuple[Target, dict[str, tuple]]:
    """A package before a verb, and how each verb leaves it: RECORD, no litter."""
    target = machine.package()
    released = contents(target.root), names(target.root)
    change(target, "apply")
    patched = contents(target.root), names(target.root)
    if verb == "apply":
        change(target, "revert")
        assert (contents(target.root), names(target.root)) == released
    return target, {"apply": patched, "revert": released}


@pytest.mark.parametrize("verb", ["apply", "revert"])
def test_a_package(machine: Machine, verb: str) -> None:
    target, wanted = both_ways(machine, verb)
    told = set()
    halfway = target.root.with_name("halfway")
    count = 0
    for count, moment in enumerate(kills(target.root, lambda: change(target, verb))):
        all_old_or_new(target.root, wanted["apply"][0], wanted["revert"][0])
        found = Status(target)
        states = tuple(patch.state for patch in found.patches)
        told.add(states)
        if set(states) == {"applied"}:
            assert contents(target.root).items() >= carried(state(3)).items()
        shutil.copytree(target.root, halfway)
        for ending in (OTHER[verb], verb):
            bring(halfway, target.root)
            change(target, ending)
            assert (contents(target.root), names(target.root)) == wanted[ending], moment
        shutil.rmtree(halfway)
    assert count > 20
    # It was caught before, after and between the moves.
    assert len(told) > 3


def test_the_taking_back_is_killed_too(machine: Machine) -> None:
    """Killed while applying, then killed while that is taken back."""
    target, wanted = both_ways(machine, "apply")
    root = target.root
    next(m for m in kills(root, lambda: change(target, "apply")) if partly(target))
    for moment in kills(root, lambda: change(target, "revert")):
        change(target, "apply" if moment % 2 else "revert")
        change(target, "revert")
        assert (contents(root), names(root)) == wanted["revert"], moment
    assert moment > 10


def partly(target: Target) -> bool:
    return Status(target).mixed


@pytest.mark.parametrize("verb", ["apply", "revert"])
def test_pip_over_a_half_done_change(machine: Machine, verb: str, tmp_path) -> None:
    """pip takes along every file that was there, and the next release goes in."""
    target, _ = both_ways(machine, verb)
    root = target.root
    site = environment(tmp_path / "venv")
    next(m for m in kills(root, lambda: change(target, verb)) if partly(target))
    bring(root, site)
    uninstall(tmp_path / "venv")
    left = [path for path in names(site) if Path(path).is_file()]
    assert all(".dspark-patches-" in path for path in left)
    shutil.rmtree(root)
    newer = machine.site(LATER | {EAGLE: b"# later\n"}, "0.5.17")
    before = contents(newer)
    shutil.copytree(newer, site, dirs_exist_ok=True)
    target = locate(site)
    assert change(target, "apply").release == "v0.5.17"
    assert (site / carried({KIT: b""}).popitem()[0]).exists()
    change(target, "revert")
    assert contents(site) == before


@pytest.mark.parametrize("verb", ["apply", "revert"])
def test_a_checkout(machine: Machine, verb: str) -> None:
    """Work tree, index and HEAD agree again, whatever ends it."""
    git = machine.checkout()
    target = locate(git.directory)
    heads = {"revert": git.text("rev-parse", "HEAD")}
    change(target, "apply")
    heads["apply"] = git.text("rev-parse", "HEAD")
    if verb == "apply":
        change(target, "revert")
    count = 0
    every = kills(target.root, lambda: change(target, verb), moves=True)
    for count, moment in enumerate(every, 1):
        all_old_or_new(target.root, state(0), state(3))
        end(git, target, heads, verb if moment % 2 else OTHER[verb])
    assert count > 6


def end(git: Git, target: Target, heads: dict[str, str], ending: str) -> None:
    change(target, ending)
    assert git.text("rev-parse", "HEAD") == heads[ending]
    assert contents(target.root) == state(3 if ending == "apply" else 0)
    assert git.text("status", "--porcelain") == ""
