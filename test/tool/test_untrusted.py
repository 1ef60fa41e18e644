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
    ours = sorted(path for path in patches.rglob("*") if path.is_file())
    victim = data.draw(st.sampled_from(ours))
    content = victim.read_bytes()
    at = data.draw(st.integers(0, len(content)))
    cut = data.draw(st.integers(0, 6) | st.just(len(content)))
    victim.write_bytes(content[:at] + data.draw(NOISE) + content[at + cut :])
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
    count = data.draw(st.sampled_from([0, 3]))
    shutil.rmtree(machine.folder / "site-packages", ignore_errors=True)
    site = machine.site(state(count))
    files = sorted(path for path in site.rglob("*") if path.is_file())
    victim = data.draw(st.sampled_from(files))
    content = victim.read_bytes()
    at = data.draw(st.integers(0, len(content)))
    cut = data.draw(st.integers(0, 6) | st.just(len(content)))
    spoiled = content[:at] + data.draw(NOISE) + content[at + cut :]
    victim.write_bytes(spoiled)
    before = contents(site)
    place = victim.relative_to(site).as_posix()
    touched = {
        p
        for p in carried(state(3))
        if state(3).get(f"python/{p}") != RELEASED.get(f"python/{p}")
    }
    run("status", str(site))
    for verb in ("apply", "revert"):
        code = run(verb, str(site))
        if code != Exit.OK:
            assert contents(site) == before
            continue
        assert place not in touched or spoiled == content
        before = contents(site)


def twist_link_out(site: Path, outside: Path) -> None:
    (site / "sglang/srt/router.py").unlink()
    (site / "sglang/srt/router.py").symlink_to(outside / "victim.py")


def twist_folder_out(site: Path, outside: Path) -> None:
    shutil.rmtree(site / "sglang/srt")
    (site / "sglang/srt").symlink_to(outside)


def twist_cache_out(site: Path, outside: Path) -> None:
    (site / "sglang/srt/__pycache__").symlink_to(outside)


def twist_new_folder_out(site: Path, outside: Path) -> None:
    (site / "sglang/test/kits").symlink_to(outside)


def twist_record_out(site: Path, outside: Path) -> None:
    record = site / "sglang-0.5.16.dist-info" / "RECORD"
    (outside / "RECORD").write_bytes(record.read_bytes())
    record.unlink()
    record.symlink_to(outside / "RECORD")


def twist_loop(site: Path, outside: Path) -> None:
    (site / "sglang/srt/loop").symlink_to("..")
    (site / "sglang/srt/router.py").unlink()
    (site / "sglang/srt/router.py").symlink_to("router.py")


def twist_pipe(site: Path, outside: Path) -> None:
    (site / "sglang/srt/eagle.py").unlink()
    os.mkfifo(site / "sglang/srt/eagle.py")


def twist_folder(site: Path, outside: Path) -> None:
    (site / "sglang/srt/handoff.py").mkdir()


def twist_huge(site: Path, outside: Path) -> None:
    with (site / "sglang/srt/router.py").open("wb") as stream:
        stream.truncate(100 << 20)


TWISTS = [
    twist_link_out,
    twist_folder_out,
    twist_cache_out,
    twist_new_folder_out,
    twist_record_out,
    twist_loop,
    twist_pipe,
    twist_folder,
    twist_huge,
]


@pytest.mark.parametrize("twist", TWISTS)
def test_a_twisted_tree_leads_nothing_out(machine: Machine, twist, capsys) -> None:
    outside = machine.folder / "outside"
    outside.mkdir()
    for name in ("victim.py", "router.py", "eagle.py", "router.cpython-310.pyc"):
        (outside / name).write_bytes(RELEASED.get(f"python/sglang/srt/{name}", b"#"))
    (outside / "victim.py").write_bytes(RELEASED[ROUTER])
    site = machine.site()
    twist(site, outside)
    before = contents(outside)
    for verb in ("status", "apply", "status", "revert"):
        run(verb, str(site))
    run("port", "v0.5.16", str(site))
    assert contents(outside) == before
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("twist", [t for t in TWISTS if t is not twist_cache_out])
def test_a_twisted_tree_is_not_called_patched(machine: Machine, twist) -> None:
    outside = machine.folder / "outside"
    outside.mkdir()
    site = machine.site()
    twist(site, outside)
    assert run("apply", str(site)) != Exit.OK
    assert run("status", str(site), "--require") != Exit.OK


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
