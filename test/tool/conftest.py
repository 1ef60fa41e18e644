"""A clone with a series, the base's released files, and a hostile user."""

from __future__ import annotations

from pathlib import Path

import pytest
from clone import HOSTILE_CONFIG, Clone
from factories import write_files


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
