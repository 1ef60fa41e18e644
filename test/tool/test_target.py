"""The sglang that a Python would import is found without importing it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import factories
import pytest
from machine import RELEASED, Machine, carried, environment

from dspark_patches.errors import Precondition, Usage
from dspark_patches.installs.locate import locate

METADATA = {
    "sglang-0.5.16.dist-info/METADATA": b"Name: sglang\nVersion: 0.5.16\n",
    "sglang-0.5.16.dist-info/RECORD": b"",
}
DIRECT_URL = "sglang-0.5.16.dist-info/direct_url.json"


class Python:
    """An interpreter of its own, with an empty site-packages folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.site = environment(root)
        self.program = root / "bin" / "python"

    def imports(self) -> Path:
        """The package that it really imports."""
        code = "import sglang; print(sglang.__file__)"
        done = subprocess.run(
            [str(self.program), "-B", "-c", code],
            cwd="/",
            capture_output=True,
            check=True,
            text=True,
        )
        return Path(done.stdout.splitlines()[-1]).parent.resolve()

    def found(self) -> Path:
        return locate(None, str(self.program)).package.resolve()


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Python:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return Python(tmp_path / "venv")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    factories.write_files(tmp_path / "tree", RELEASED)
    return tmp_path / "tree"


# What setuptools writes for an editable install, in short.
FINDER = """
import sys
from importlib.util import spec_from_file_location


class Finder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name == "sglang":
            return spec_from_file_location(name, {!r} + "/__init__.py")


def install():
    sys.meta_path.append(Finder)
"""


def install_plain(python: Python, tree: Path) -> None:
    factories.write_files(python.site, carried(RELEASED) | METADATA)


def install_pth(python: Python, tree: Path) -> None:
    line = f"{tree / 'python'}\n".encode()
    factories.write_files(python.site, METADATA | {"__editable__.sglang.pth": line})


def install_finder(python: Python, tree: Path) -> None:
    name = "__editable___sglang_0_5_16_finder"
    facts = {"url": f"file://{tree}/python", "dir_info": {"editable": True}}
    files = {
        f"{name}.py": FINDER.format(str(tree / "python" / "sglang")).encode(),
        "__editable__.sglang-0.5.16.pth": f"import {name}; {name}.install()".encode(),
        DIRECT_URL: json.dumps(facts).encode(),
    }
    factories.write_files(python.site, METADATA | files)


def install_egg_link(python: Python, tree: Path) -> None:
    folder = f"{tree / 'python'}\n".encode()
    factories.write_files(python.site, {"easy-install.pth": folder})
    egg = tree / "python" / "sglang.egg-info"
    factories.write_files(egg, {"PKG-INFO": b"Name: sglang\nVersion: 0.5.16\n"})


@pytest.mark.parametrize(
    ("install", "kind"),
    [
        (install_plain, "package"),
        (install_pth, "tree"),
        (install_finder, "tree"),
        (install_egg_link, "tree"),
    ],
)
def test_it_is_the_one_that_python_imports(
    python: Python, tree: Path, install, kind: str
) -> None:
    install(python, tree)
    assert python.found() == python.imports()
    target = locate(None, str(python.program))
    assert (target.kind, target.version) == (kind, "0.5.16")
    assert bool(target.record) == (kind == "package")
    assert locate(python.root) == target


def test_an_interpreter_may_be_named_from_here(
    python: Python, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_plain(python, tree)
    monkeypatch.chdir(python.root.parent)
    assert locate(Path("venv")).root == python.site
    assert locate(None, "venv/bin/python").root == python.site
    assert locate(None, "./venv/bin/python").root == python.site


def test_an_editable_install_of_a_repository_is_a_checkout(
    python: Python, tree: Path
) -> None:
    install_finder(python, tree)
    factories.make_repository(tree, {})
    assert locate(None, str(python.program)).kind == "checkout"


def test_the_first_on_the_path_wins(
    python: Python, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container that sets PYTHONPATH."""
    install_plain(python, tree)
    monkeypatch.setenv("PYTHONPATH", str(tree / "python"))
    assert python.found() == python.imports() == tree / "python" / "sglang"


def test_a_part_of_a_namespace_is_not_it(
    python: Python, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as the folder of the files that our own series add."""
    install_plain(python, tree)
    # A start-up file may print.
    noise = b"import sys; print('hello'); print('dspark')\n"
    factories.write_files(python.site, {"noise.pth": noise})
    (tmp_path / "ours" / "sglang" / "srt").mkdir(parents=True)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "ours"))
    assert python.found() == python.imports() == python.site / "sglang"


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("/nonexistent/python", "does not start"),
        ("/bin/true", "does not say where its packages are"),
        ("/dev/null", "does not start"),
        ("py\0thon", "does not start"),
    ],
)
def test_an_interpreter_that_is_none(program: str, told: str) -> None:
    with pytest.raises(Precondition, match=told):
        locate(None, program)


@pytest.mark.parametrize("facts", [b"{", b"[" * 100_000, b'{"url": 3}', b"\0", b""])
def test_no_sglang_names_what_helps(python: Python, facts: bytes) -> None:
    factories.write_files(python.site, METADATA | {DIRECT_URL: facts})
    for target, program in ((None, str(python.program)), (python.root, None)):
        with pytest.raises(Precondition, match="has no sglang") as caught:
            locate(target, program)
        assert "--python" in caught.value.next_step
        assert "its metadata say 0.5.16" in caught.value.cause


def test_an_environment_runs_nothing(python: Python, tree: Path) -> None:
    """Neither its interpreter nor what its start-up files name."""
    trap = python.root / "trap"
    install_plain(python, tree)
    python.program.unlink()
    python.program.write_text(f"#!/bin/sh\ntouch {trap}\n")
    python.program.chmod(0o755)
    code = f"import os; os.mkdir({str(trap)!r})\n".encode()
    factories.write_files(python.site, {"start.pth": code})
    assert locate(python.root).root == python.site
    assert not trap.exists()


def test_a_tree_that_holds_an_environment_is_a_tree(python: Python) -> None:
    factories.write_files(python.root, RELEASED)
    factories.write_files(python.site, carried(RELEASED) | METADATA)
    assert locate(python.root).kind == "tree"


def test_metadata_of_an_older_version_are_left_aside(machine: Machine) -> None:
    site = machine.site()
    older = "sglang-0.5.15.dist-info"
    files = {f"{older}/RECORD": b"", f"{older}/METADATA": b"Version: 0.5.15\n"}
    factories.write_files(site, files)
    target = locate(site)
    assert target.version == "0.5.16"
    assert target.record == "sglang-0.5.16.dist-info/RECORD"


def test_our_own_interpreter_is_asked_by_default(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", ["", str(tree / "python")])
    assert locate(None).package == tree / "python" / "sglang"


@pytest.mark.parametrize("inside", ["", "python", "python/sglang"])
def test_a_tree_is_known_from_its_folders(tree: Path, inside: str) -> None:
    target = locate(tree / inside)
    assert (target.kind, target.root) == ("tree", tree)


def test_a_package_is_known_from_its_folders(machine: Machine) -> None:
    site = machine.site()
    for target in (locate(site), locate(site / "sglang")):
        assert (target.kind, target.package) == ("package", site / "sglang")
    # As `pip install --target python` makes it.
    assert locate(site.rename(machine.folder / "python")).kind == "package"


def test_a_folder_without_sglang_is_refused(tmp_path: Path) -> None:
    expected = "expected python/sglang or sglang in it"
    for place, why in ((".", expected), ("none", "there is no such folder")):
        with pytest.raises(Usage, match="holds no SGLang") as caught:
            locate(tmp_path / place)
        assert caught.value.cause == why


def test_a_built_tree_says_its_version(tree: Path) -> None:
    text = b"__version__: str\n__version__ = version = '0.5.16'\n"
    factories.write_files(tree / "python" / "sglang", {"_version.py": text})
    assert locate(tree).version == "0.5.16"


def test_places(machine: Machine, tree: Path) -> None:
    package, plain = locate(machine.site()), locate(tree)
    srt, test = "python/sglang/srt/x.py", "test/registered/x.py"
    assert package.place(srt) == "sglang/srt/x.py"
    assert package.place(test) == package.place("python/pyproject.toml") == ""
    assert (plain.place(srt), plain.place(test)) == (srt, "")
    (tree / "test").mkdir()
    assert plain.place(test) == test
