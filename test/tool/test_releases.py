"""The table of releases, in the clone and in an installed distribution."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.utils import parse_wheel_filename

from dspark_patches.errors import BadInput, Usage
from dspark_patches.model import releases

CLONE = Path(__file__).resolve().parents[2]


def test_every_release_pins_a_wheel_of_its_own_version():
    known = releases.load()
    assert list(known) == [f"v0.5.{minor}" for minor in range(16, 24)]
    for tag, release in known.items():
        name, version, _, _ = parse_wheel_filename(release.wheel)
        assert (release.tag, name, str(version)) == (tag, "sglang", release.version)
        assert tag == f"v{release.version}"


@pytest.mark.parametrize(
    ("name", "offer"),
    [("0.5.16", "v0.5.16"), ("v0.5.16 ", "v0.5.16"), ("V0.5.16", "v0.5.16"), ("x", "")],
)
def test_an_unknown_release_is_answered_with_the_nearest(name, offer):
    with pytest.raises(Usage) as caught:
        releases.find(name)
    assert caught.value.cause == (offer and f"did you mean {offer}?")
    assert "v0.5.23" in caught.value.next_step


@pytest.mark.parametrize(
    "table",
    [
        "",
        'version = "1"\nwheel = "w"\n',
        'version = "1"\nwheel = "w"\nrequires_python = ">=3"\nwhat = "else"\n',
        "version = 1\n",
        "= broken",
    ],
)
def test_a_broken_table_is_refused(tmp_path, table):
    path = tmp_path / "releases.toml"
    path.write_text(f'["v1"]\n{table}')
    with pytest.raises(BadInput, match="releases.toml"):
        releases.load(path)


def test_only_releases_with_a_patch_have_a_series(world):
    with_patch_file, without = world.release("v0.5.16"), world.release("v0.5.17")
    for release in (with_patch_file, without):
        releases.series_dir(release).mkdir()
    (releases.series_dir(with_patch_file) / "0001-x.patch").touch()
    (releases.series_dir(without) / "lock.toml").touch()
    assert releases.with_series() == (with_patch_file,)


def test_an_installed_distribution_finds_its_own_data(tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d"]
    subprocess.run([*command, str(tmp_path)], cwd=CLONE, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    probe = "from dspark_patches.model import releases as r; print(r.data_root(), *r.load())"
    done = subprocess.run(
        [sys.executable, "-c", probe],
        cwd=tmp_path,
        env={"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=True,
    )
    root, *tags = done.stdout.split()
    assert Path(root) == site / "dspark_patches" / "data"
    assert tags == list(releases.load())
    shipped = {str(p.relative_to(root)) for p in Path(root).rglob("*") if p.is_file()}
    folders = ("patches", "python/sglang", "test/registered")
    listed = subprocess.run(
        ["git", "ls-files", *folders], cwd=CLONE, capture_output=True, text=True
    )
    assert set(listed.stdout.split()) <= shipped
