"""The scripts set up their environment once, and again when it is stale."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CLONE = Path(__file__).resolve().parents[2]

# Stands in for the environment's Python: pip is only noted down.
PYTHON = """#!/bin/sh
if [ "$1 $2" = "-m pip" ]; then
    echo "$@" >>"{log}"
    exit "${{PIP_STATUS:-0}}"
fi
exec "{python}" "$@"
"""

# Tells its arguments, each apart.
TOOL = """#!/bin/sh
printf 'told:'
printf ' <%s>' "$@"
echo
"""


class Clone:
    """A clone's scripts, with an environment that only notes what is asked."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = root / "pip.log"
        self.venv = root / "some" / "venv"
        shutil.copytree(CLONE / "scripts", root / "scripts")
        shutil.copy(CLONE / "pyproject.toml", root)
        tools = self.venv / "bin"
        tools.mkdir(parents=True)
        self._tool("python", PYTHON.format(log=self.log, python=sys.executable))
        self._tool("pip", "#!/bin/sh\n")
        self._tool("dspark-patches", TOOL)

    def _tool(self, name: str, text: str) -> None:
        path = self.venv / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def verify(self, *arguments: str, cwd: Path | None = None, **env: str):
        """Run scripts/verify; the finished process."""
        return self.run("verify", *arguments, cwd=cwd, **env)

    def run(self, script: str, *arguments: str, cwd: Path | None = None, **env: str):
        """Run a script; the finished process."""
        return subprocess.run(
            [str(self.root / "scripts" / script), *arguments],
            env={**os.environ, "DSPARK_VENV": str(self.venv), **env},
            cwd=cwd,
            capture_output=True,
            text=True,
            check=False,
        )

    def installed(self) -> int:
        """How often pip was asked to install."""
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0


@pytest.fixture
def scripts(tmp_path):
    return Clone(tmp_path)


def test_arguments_reach_the_tool_whole(scripts):
    done = scripts.verify("v0.5.16", "--keep", "a folder")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "told: <verify> <v0.5.16> <--keep> <a folder>\n"


def test_the_bench_is_run_in_the_clone(scripts):
    package = scripts.root / "bench"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text("import sys; print(sys.argv)")
    done = scripts.run("bench", "v0.5.16", "a b", cwd=scripts.root / "some")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("'v0.5.16', 'a b']\n")


def test_the_environment_is_installed_once_and_when_it_changed(scripts):
    first, second = scripts.verify(), scripts.verify()
    assert "installing the project" in first.stderr
    assert second.stderr == ""
    assert scripts.installed() == 1
    assert f"--editable {scripts.root}[bench,cpu,dev]" in scripts.log.read_text()
    with (scripts.root / "pyproject.toml").open("a") as project:
        project.write("# another pin\n")
    scripts.verify()
    assert scripts.installed() == 2


def test_an_installation_that_failed_is_done_again(scripts):
    failed = scripts.verify(PIP_STATUS="1")
    assert failed.returncode != 0
    assert "told:" not in failed.stdout
    assert scripts.verify().returncode == 0
    assert scripts.installed() == 2
    # An update that failed does not leave the old stamp.
    project = scripts.root / "pyproject.toml"
    before = project.read_text()
    project.write_text(before + "# another pin\n")
    scripts.verify(PIP_STATUS="1")
    project.write_text(before)
    scripts.verify()
    assert scripts.installed() == 4


def test_a_relative_environment_is_meant_from_where_one_stands(scripts):
    done = scripts.verify(cwd=scripts.root / "some", DSPARK_VENV="venv")
    assert done.stdout == "told: <verify>\n", done.stderr


def test_an_old_python_is_refused(scripts, tmp_path):
    old = tmp_path / "old-python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = scripts.verify(PYTHON=str(old))
    assert done.returncode == 3
    assert "is not Python 3.10 or newer" in done.stderr


def test_the_linters_do_not_care_what_the_clone_is_called(tmp_path):
    """One of the folder's modules has the same name."""
    root = tmp_path / "clone"
    shutil.copytree(CLONE / "test" / "tool", root / "test" / "tool")
    shutil.copy(CLONE / "pyproject.toml", root)
    command = [sys.executable, "-m", "isort", "--check", "--quiet", "test"]
    assert subprocess.run(command, cwd=root).returncode == 0


def test_the_readme_begins_with_the_two_commands():
    text = (CLONE / "README.md").read_text()
    block = text.split("```")[1]
    assert [line.split()[0] for line in block.strip().splitlines()] == [
        "scripts/verify",
        "scripts/test",
    ]
