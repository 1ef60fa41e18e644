"""Broken and hostile series, locks and trees: refused, never traced, no harm."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machine import (
    EAGLE,
    RECORD,
    RELEASED,
    ROUTER,
    Machine,
    carried,
    contents,
    state,
)

from dspark_patches import cli
from dspark_patches.errors import Exit
from dspark_patches.model import releases

RELAXED = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
NOISE = st.binary(max_size=6) | st.sampled_from(
    [b"../", b"\r", b"\0", b"120000", b"\n", b"@@ -1 +1 @@\n", b"\x1b[2J", b"x" * 300]
)


def run(*arguments: str) -> int:
    """A command's exit code; a bug of ours fails the test."""
    code = cli.main([*arguments])
    assert code != Exit.BUG
    return code


def spoil(root: Path, data: st.DataObject) -> tuple[Path, bool]:
    """Change a stretch of one of the files below a folder; whether it differs now."""
    files = sorted(path for path in root.rglob("*") if path.is_file())
    victim = data.draw(st.sampled_from(files))
    content = victim.read_bytes()
    at = data.draw(st.integers(0, len(content)))
    cut = data.draw(st.integers(0, 6) | st.just(len(content)))
    victim.write_bytes(content[:at] + data.draw(NOISE) + content[at + cut :])
    return victim, victim.read_bytes() != content


@RELAXED
@given(data=st.data())
def test_a_corrupt_series_or_lock_changes_nothing(machine: Machine, data) -> None:
    """Patches, locks and the table of releases, one at a time."""
    patches = machine.world.data / "patches"
    stored = machine.folder / "patches"
    if not stored.exists():
        shutil.copytree(patches, stored)
        machine.site()
    shutil.rmtree(patches)
    shutil.copytree(stored, patches)
    target = machine.folder / "site-packages"
    before = contents(target)
    spoil(patches, data)
    run("status", str(target))
    code = run("apply", str(target))
    after = {p: c for p, c in contents(target).items() if p.startswith("sglang/")}
    if code == Exit.OK:
        assert after == carried(state(3))
        machine.write(machine.release, machine.patch_files, RELEASED)
        assert run("revert", str(target)) == Exit.OK
    assert contents(target) == before


@RELAXED
@given(data=st.data())
def test_a_corrupt_target_is_never_written_over(machine: Machine, data) -> None:
    shutil.rmtree(machine.folder / "site-packages", ignore_errors=True)
    site = machine.site(state(data.draw(st.sampled_from([0, 3]))))
    victim, differs = spoil(site, data)
    before, released = contents(site), carried(RELEASED)
    place = victim.relative_to(site).as_posix()
    touched = {p for p, c in carried(state(3)).items() if released.get(p) != c}
    run("status", str(site))
    for verb in ("apply", "revert"):
        if run(verb, str(site)) != Exit.OK:
            assert contents(site) == before
            continue
        assert place not in touched or not differs
        before = contents(site)


def replaced(path: Path) -> Path:
    """A path at which nothing is any more."""
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    return path


SRT = "sglang/srt"
# What stands in a site-packages folder, and what leads out of it.
TWISTS = {
    "link": lambda s, out: replaced(s / SRT / "router.py").symlink_to(out / "victim"),
    "loop": lambda s, out: replaced(s / SRT / "router.py").symlink_to("router.py"),
    "folder": lambda s, out: replaced(s / SRT).symlink_to(out),
    "cache": lambda s, out: (s / SRT / "__pycache__").symlink_to(out),
    "kits": lambda s, out: (s / "sglang/test/kits").symlink_to(out),
    "record": lambda s, out: replaced(s / RECORD).symlink_to(out / "RECORD"),
    "pipe": lambda s, out: os.mkfifo(replaced(s / SRT / "eagle.py")),
    "folder of a file": lambda s, out: (s / SRT / "handoff.py").mkdir(),
    "huge": lambda s, out: os.truncate(s / SRT / "router.py", 100 << 20),
}


@pytest.mark.parametrize("twist", TWISTS)
def test_a_twisted_tree_leads_nothing_out(machine: Machine, twist, capsys) -> None:
    """Nor is it called patched, where it is not only a cache that leads out."""
    site, outside = machine.site(), machine.folder / "outside"
    outside.mkdir()
    for name in ("router.py", "eagle.py", "router.cpython-310.pyc"):
        (outside / name).write_bytes(RELEASED.get(f"python/sglang/srt/{name}", b"#"))
    (outside / "victim").write_bytes(RELEASED[ROUTER])
    shutil.copy(site / RECORD, outside)
    TWISTS[twist](site, outside)
    before = contents(outside)
    run("status", str(site))
    assert (run("apply", str(site)) == Exit.OK) == (twist == "cache")
    assert (run("status", str(site), "--require") == Exit.OK) == (twist == "cache")
    run("revert", str(site))
    run("port", "v0.5.16", str(site))
    assert contents(outside) == before
    assert "Traceback" not in capsys.readouterr().err


def test_a_version_cannot_drive_the_terminal(machine: Machine, capsys) -> None:
    site = machine.site()
    metadata = site / "sglang-0.5.16.dist-info" / "METADATA"
    metadata.write_text("Name: sglang\nVersion: 0.5\x1b[2J\n")
    run("status", str(site))
    assert "\x1b" not in capsys.readouterr().out


def test_patches_are_not_looked_for_in_the_target(machine: Machine) -> None:
    """A tree cannot bring a series of its own."""
    root = machine.tree()
    shutil.copytree(machine.world.data / "patches", root / "patches")
    shutil.rmtree(releases.series_dir(machine.release))
    assert run("apply", str(root)) == Exit.PRECONDITION
    assert (root / EAGLE).read_bytes() == RELEASED[EAGLE]
