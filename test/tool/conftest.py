"""Worlds to work in: a clone and a hostile user, fake releases and their wheels.

Nothing here reaches a network.
"""

from __future__ import annotations

import hashlib
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from clone import HOSTILE_CONFIG, Clone
from factories import write_files
from machine import Machine
from world import World

from dspark_patches.model import releases
from dspark_patches.proof import runner
from dspark_patches.trees import wheels

# The command line in a process of its own, in a world's data root.
IN_WORLD = """
import sys
from pathlib import Path
from dspark_patches import cli
from dspark_patches.model import releases
from dspark_patches.proof import runner

root = Path(sys.argv.pop(1))
releases.data_root = lambda: root
runner.PRELOAD = ()
cli.entry_point()
"""


@pytest.fixture(autouse=True)
def _no_preload(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trees of these tests import nothing of what a release imports."""
    monkeypatch.setattr(runner, "PRELOAD", ())


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    hooks = tmp_path / "hooks"
    write_files(tmp_path, {"order": b"test/*\n", "attributes": b"*.py diff=shout\n"})
    for hook in ("post-checkout", "pre-commit", "post-index-change"):
        write_files(hooks, {hook: b"#!/bin/sh\nexit 1\n"})
        (hooks / hook).chmod(0o755)
    text = HOSTILE_CONFIG.format(
        order=tmp_path / "order", attributes=tmp_path / "attributes", hooks=hooks
    )
    write_files(tmp_path, {"gitconfig": text.encode()})
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "false")
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Hostile")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    return text


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Fake releases, in which our data root, cache and pip stand."""
    world = World(tmp_path / "world")
    monkeypatch.setattr(releases, "data_root", lambda: world.data)
    monkeypatch.setenv("DSPARK_CACHE", str(world.cache))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(world.shelf))
    return world


@pytest.fixture
def machine(world: World, tmp_path: Path) -> Machine:
    """Fake releases with series and locks, to be installed or checked out."""
    return Machine(world, tmp_path)


@pytest.fixture
def no_pip(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wheels straight from the shelf: pip takes a second each time."""

    def install(release: releases.Release, sha256: str, to: Path) -> str:
        wheel = world.shelf / release.wheel
        shutil.unpack_archive(wheel, to, "zip")
        return sha256 or hashlib.sha256(wheel.read_bytes()).hexdigest()

    monkeypatch.setattr(wheels, "_install", install)


def _heed_signals():
    # A shell's background job, as which these tests may run, ignores some.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture
def start(world, tmp_path, monkeypatch):
    """Start the command line in the fake world, with temporary files apart."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    started = []

    def start(*arguments):
        command = [sys.executable, "-c", IN_WORLD, str(world.data), *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(command, preexec_fn=_heed_signals, **pipes))
        return started[-1]

    start.scratch = scratch
    yield start
    for process in started:
        # One that a failed test has left.
        process.kill()


@pytest.fixture
def await_end():
    """Wait until a process has ended; a dead one may still wait for its parent."""

    def await_end(pid: int) -> None:
        stat = Path(f"/proc/{pid}/stat")
        with suppress(FileNotFoundError, ProcessLookupError):
            while stat.read_text().rpartition(")")[2].split()[0] != "Z":
                time.sleep(0.05)

    return await_end
