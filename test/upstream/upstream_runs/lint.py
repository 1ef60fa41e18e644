"""A tree's pre-commit hooks, as far as they are installed here."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import yaml

from .tree import Results, environment

_LINTERS = {
    "black": "-m black --check --workers=1",
    "codespell": "-m codespell_lib",
    "isort": "-m isort --check-only",
    "ruff": "-m ruff check --output-format=concise --no-cache",
}


def lint(tree: Path, files: list[str]) -> tuple[Results, dict[str, str]]:
    """What the hooks that look at Python files say of some, and which do not run."""
    files = [f for f in files if f.endswith(".py")]
    results: Results = {}
    left_out: dict[str, str] = {}
    config = yaml.safe_load((tree / ".pre-commit-config.yaml").read_text())
    for repo in config["repos"]:
        for hook in repo["hooks"]:
            name = hook["id"]
            chosen = [f for f in files if _looks_at(config, f) and _looks_at(hook, f)]
            if not chosen or "manual" in hook.get("stages", ()):
                continue
            command, why = _command(hook, repo.get("rev", ""))
            if why:
                left_out[name] = why
            elif not hook.get("pass_filenames", True):
                said = _said(tree, command)
                results[name] = ["failed" if said else "passed", said]
            elif had := [f for f in chosen if (tree / f).is_file()]:
                said = _said(tree, command + had)
                wrong = [f for f in had if f in said] or had if said else []
                for f in had:
                    verdict = ["failed", said] if f in wrong else ["passed", ""]
                    results[f"{name}: {f}"] = verdict
    return results, left_out


def _looks_at(chooser: dict, file: str) -> bool:
    wanted = re.search(chooser.get("files", ""), file)
    types = chooser.get("types_or", ["python"])
    excluded = re.search(chooser.get("exclude", "^$"), file)
    return bool(wanted and "python" in types and not excluded)


def _command(hook: dict, revision: str) -> tuple[list[str], str]:
    """A hook as a command, or why there is none."""
    entry = shlex.split(hook.get("entry", ""))
    if entry[:1] == ["python3"]:
        return [sys.executable, *entry[1:]], ""
    name, pinned = hook["id"].removesuffix("-jupyter"), revision.lstrip("v")
    if name not in _LINTERS:
        return [], "not known here"
    try:
        found = metadata.version(name)
    except metadata.PackageNotFoundError:
        found = "none"
    if found != pinned:
        return [], f"{pinned} is pinned, {found} is installed"
    args = [word for word in hook.get("args", ()) if word != "--fix"]
    return [sys.executable, *shlex.split(_LINTERS[name]), *args], ""


def _said(tree: Path, command: list[str]) -> str:
    """What a command that finds something wrong says."""
    env = environment(tree)
    done = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True)
    said = (done.stdout + done.stderr).strip()
    return (said or f"status {done.returncode}") if done.returncode else ""
