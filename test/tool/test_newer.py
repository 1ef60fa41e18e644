"""A release that has no place here yet is found, with no harm when pip cannot ask."""

from __future__ import annotations

import pytest
from world import RELEASED, World, make_wheel

from dspark_patches.findings import Finding
from dspark_patches.maintain.newer import newer


@pytest.fixture
def found(world: World):
    release = world.release("v0.5.16", RELEASED)

    def found(*versions: str) -> list[Finding]:
        (world.shelf / release.wheel).unlink()
        for version in versions:
            name = f"sglang-{version}-py3-none-any.whl"
            make_wheel(world.shelf / name, version, RELEASED)
        return list(newer())

    return found


def test_the_newest_release_is_known(found) -> None:
    assert found("0.5.9", "0.5.16", "0.5.17rc1") == []


def test_a_newer_release_is_an_error(found) -> None:
    (finding,) = found("0.5.16", "0.5.100")
    assert finding.what == "sglang 0.5.100 is out, the newest here is 0.5.16"
    assert finding.level == "error"


def test_a_registry_that_cannot_be_asked_is_a_warning(found) -> None:
    (finding,) = found()
    assert "pip does not say which sglang is the newest: ERROR" in finding.what
    assert finding.level == "warning"


def test_without_pip_it_is_a_warning(found, monkeypatch) -> None:
    monkeypatch.setattr("sys.executable", "/nonexistent/python")
    (finding,) = found("0.5.17")
    assert "No such file" in finding.what and finding.level == "warning"
