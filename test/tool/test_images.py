"""SGLang's published images: clones of a tag that their builds edit and install."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import factories
import pytest
from machine import Machine, contents, environment, state

from dspark_patches import cli
from dspark_patches.errors import Exit
from dspark_patches.git import Git

PROJECT = "python/pyproject.toml"
OTHER = "python/pyproject_other.toml"
CONFIG = "python/sglang/srt/configs/MI300X.json"
SOURCES = state(0) | {PROJECT: b"cuda 13\n", OTHER: b"other\n", CONFIG: b"{}\n"}
ASK = (
    "from sglang.srt import router; batch = router.Batch('dflash'); "
    "router.route(batch); print(batch.clock)"
)


def as_is(root: Path) -> None:
    pass


def edit(root: Path) -> None:
    factories.write_files(root, {PROJECT: b"cuda 12\n"})


def move(root: Path) -> None:
    (root / OTHER).replace(root / PROJECT)
    shutil.copy(root / CONFIG, root / CONFIG.replace("MI300X", "MI300X_VF"))


def copy(root: Path) -> None:
    shutil.copy(root / OTHER, root / PROJECT)


def editable(machine: Machine, site: Path, sources: Path) -> None:
    facts = {"url": f"file://{sources}/python", "dir_info": {"editable": True}}
    info = "sglang-0.5.16.dist-info"
    files = {
        f"{info}/METADATA": b"Name: sglang\nVersion: 0.5.16\n",
        f"{info}/direct_url.json": json.dumps(facts).encode(),
        f"{info}/RECORD": b"__editable__.sglang-0.5.16.pth,,\n",
        "__editable__.sglang-0.5.16.pth": f"{sources}/python\n".encode(),
    }
    factories.write_files(site, files)


def built(machine: Machine, site: Path, sources: Path) -> None:
    shutil.copytree(machine.site(), site, dirs_exist_ok=True)


@pytest.mark.parametrize(
    ("depth", "build", "install"),
    [
        pytest.param(["--depth=1"], as_is, editable, id="cuda13"),
        pytest.param(["--depth=1"], edit, editable, id="cuda12"),
        pytest.param([], move, editable, id="rocm-npu"),
        pytest.param([], copy, built, id="xpu-cpu"),
    ],
)
def test_an_image_runs_the_patches(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, depth, build, install
) -> None:
    """What its interpreter imports is patched, and every byte comes back."""
    upstream = machine.checkout(SOURCES)
    sources, home = machine.folder / "sglang", machine.folder / "venv"
    upstream.run("clone", "-q", *depth, f"file://{upstream.directory}", str(sources))
    build(sources)
    install(machine, environment(home), sources)
    monkeypatch.chdir(sources)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    python = str(home / "bin" / "python")

    def run(verb: str, *options: str) -> int:
        return cli.main([verb, "--python", python, *options])

    def seen() -> tuple:
        ticks = subprocess.check_output([python, "-B", "-c", ASK], text=True)
        edits = Git(sources).text("status", "--porcelain")
        return int(ticks), edits, contents(sources), contents(home / "lib")

    before = seen()
    assert before[0] == 0
    assert run("status", "--require") == Exit.FINDINGS
    assert run("apply") == Exit.OK
    assert run("status", "--require") == Exit.OK
    assert seen()[:2] == (1, before[1])
    assert run("revert") == Exit.OK
    assert seen() == before
