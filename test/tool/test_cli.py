"""One way to end for everything: exit codes, three formats, no traceback."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from world import FIXED_CLOCK, TEST, TEST_SOURCE, fix_patch_file, mend_clock, text

from dspark_patches import __version__, cli, report
from dspark_patches.errors import BadInput, Conflict, Exit, Failure, Precondition
from dspark_patches.model import diff


@pytest.fixture
def run(start):
    """Run the command line; its exit status, output and error output."""

    def run(*arguments):
        process = start(*arguments)
        output, errors = process.communicate()
        return process.returncode, output, errors

    return run


@pytest.fixture
def verb(monkeypatch):
    """Let every verb be one that raises what it is given."""

    def verb(error):
        @click.command(name="raise")
        @click.option("--format", "form", default="text")
        def command(form):
            raise error

        monkeypatch.setattr(cli.group, "get_command", lambda context, name: command)
        return cli.main

    return verb


def release_with_series(world, assertion="self.assertEqual(tick(1), 2)"):
    """A release whose one patch has this test."""
    release = world.release()
    source = TEST_SOURCE.replace(b"self.assertEqual(tick(1), 2)", assertion.encode())
    world.series(release, fix_patch_file(mend_clock(), diff.render_add(TEST, source)))
    return release


UNPROVEN = "self.assertEqual(tick(1), 3)"


def test_verify_ends_with_0_and_a_table(world, run):
    release_with_series(world)
    status, output, errors = run("verify")
    assert status == Exit.OK, errors
    assert re.search(r"0001-patch\s+fix\s+yes\s+yes\s+1\b", output)
    assert "ok: 1 of 1 patches red, then green (v0.5.16; " in output
    assert "v0.5.16: pristine: 1 failed" in errors
    assert "v0.5.16: patched: 1 passed" in errors


def test_verify_ends_with_1_and_what_the_test_said(world, run):
    release_with_series(world, UNPROVEN)
    status, output, _ = run("verify", "v0.5.16")
    assert status == Exit.FINDINGS
    assert re.search(r"0001-patch\s+fix\s+yes\s+NO\s+1\b", output)
    assert "AssertionError: 2 != 3" in output
    assert "in test_tick" in output


def test_json_is_one_object_of_the_documented_form(world, run):
    release = release_with_series(world, UNPROVEN)
    status, output, _ = run("verify", "--format", "json")
    assert status == Exit.FINDINGS
    seen = json.loads(output)
    assert (seen["ok"], len(seen["findings"])) == (False, 1)
    (result,) = seen["results"]
    assert result == {
        "release": "v0.5.16",
        "patch": "0001-patch",
        "kind": "fix",
        "red": True,
        "green": False,
        "tests": [
            {
                "id": f"{TEST}::TestClock.test_tick",
                "red": True,
                "red_on": ["pristine"],
                "reason": "AssertionError: 1 != 3",
                "green": False,
            }
        ],
        "left_out": [],
    }
    (world.shelf / release.wheel).unlink()
    status, output, _ = run("verify", "--format=json")
    assert status == Exit.PRECONDITION
    seen = json.loads(output)
    assert seen["ok"] is False
    assert seen["error"]["message"] == f"{release.wheel} could not be downloaded"
    assert "PIP_FIND_LINKS" in seen["error"]["next_step"]


def test_github_gets_an_annotation_for_the_patch(world, run):
    release_with_series(world, UNPROVEN)
    status, output, _ = run("verify", "--format=github")
    assert status == Exit.FINDINGS
    (line,) = [line for line in output.splitlines() if line.startswith("::error")]
    assert "file=patches/v0.5.16/0001-patch.patch" in line
    assert "AssertionError: 2 != 3" in line


def test_a_test_cannot_drive_the_terminal(world, run):
    release_with_series(world, 'self.fail("\\x1b[2J[bold]")')
    status, output, errors = run("verify")
    assert status == Exit.FINDINGS
    assert "\x1b" not in output + errors
    assert "[2J[bold]" in output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["verify", "v0.5.61"], "no release is called 'v0.5.61'"),
        (["verify"], "no release has a series yet"),
        (["verify", "--nope"], "No such option"),
        (["nope"], "No such command"),
        (["verify", "--jobs", "0"], "Invalid value for '--jobs'"),
        (["exec", "/no/such/tree", "x.py"], "does not exist"),
        (["exec", "/", "-c", "0"], "holds no python/sglang"),
    ],
)
def test_a_request_that_makes_no_sense_ends_with_2(run, arguments, expected):
    status, output, errors = run(*arguments)
    assert (status, output) == (Exit.USAGE, "")
    assert expected in errors
    assert "Traceback" not in errors


def test_a_failure_tells_cause_and_next_step(world, run):
    release = release_with_series(world)
    (world.shelf / release.wheel).unlink()
    status, output, errors = run("verify")
    assert (status, output) == (Exit.PRECONDITION, "")
    assert f"error: {release.wheel} could not be downloaded" in errors
    assert "cause: ERROR: Could not find a version" in errors
    assert "next: check the network" in errors


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (Failure("f"), 3),
        (Precondition("f"), 3),
        (BadInput("f"), 3),
        (Conflict("f"), 4),
        (OSError(errno.ENOSPC, "No space left on device"), 3),
        (KeyboardInterrupt(), 130),
    ],
)
def test_each_failure_has_its_exit_code(verb, capsys, failure, status):
    assert verb(failure)(["raise"]) == status
    assert "Traceback" not in capsys.readouterr().err


def test_a_bug_ends_with_70_and_is_told(verb, capsys):
    assert verb(ZeroDivisionError("oops"))(["raise", "--format", "json"]) == Exit.BUG
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["message"] == "a bug of dspark-patches: ZeroDivisionError: oops"
    for part in ("Traceback", f"dspark-patches {__version__}", "'raise', '--format'"):
        assert part in error["next_step"]


def test_a_reader_that_goes_away_is_no_bug(start):
    process = start("--help")
    process.stdout.close()
    errors = process.stderr.read()
    assert process.wait() != Exit.BUG
    assert "Traceback" not in errors


def test_a_reader_that_goes_away_is_no_finding(monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        with pytest.raises(BrokenPipeError):
            report.line("text" * 100_000)
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def redirected(form: str, where: str) -> subprocess.CompletedProcess[str]:
    """A verb with its output redirected by a shell: JSON is written at once where it
    is long, and text at the end."""
    shell = f'exec "$0" -m dspark_patches check --format {form} {where}'
    command = ["sh", "-c", shell, sys.executable]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("form", ["text", "json", "github"])
def test_an_output_that_is_full_ends_with_3(form):
    done = redirected(form, ">/dev/full")
    assert done.returncode == Exit.PRECONDITION
    assert "error: the disk is full" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_closed_output_is_no_bug():
    done = redirected("json", ">&-")
    assert (done.returncode, done.stderr) == (Exit.OK, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interruption_ends_with_130_and_leaves_nothing(
    world, start, await_end, tmp_path, number
):
    marker = tmp_path / "pid"
    source = text(f"""
        import os
        import time
        import unittest


        class TestClock(unittest.TestCase):
            def test_tick(self):
                with open({str(marker)!r} + "~", "w") as stream:
                    stream.write(str(os.getpid()))
                os.replace({str(marker)!r} + "~", {str(marker)!r})
                time.sleep(600)
        """)
    release = world.release()
    world.series(release, fix_patch_file(mend_clock(), diff.render_add(TEST, source)))
    process = start("verify")
    while not marker.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(number)
    _, errors = process.communicate()
    assert process.returncode == Exit.INTERRUPTED
    assert "error: interrupted" in errors
    assert "Traceback" not in errors
    assert not list(start.scratch.iterdir())
    await_end(int(marker.read_text()))


def test_exec_runs_a_test_file_alone_as_upstream_does(world, run):
    source = TEST_SOURCE + b'\n\nif __name__ == "__main__":\n    unittest.main()\n'
    files = {"python/sglang/srt/clock.py": FIXED_CLOCK, TEST: source}
    tree = world.tree("patched", files)
    status, _, errors = run("exec", str(tree), TEST, "-f")
    assert status == 0
    assert "Ran 1 test" in errors
    tree = world.tree("pristine", {TEST: source})
    status, _, errors = run("exec", str(tree), TEST, "-f")
    assert status == 1
    assert "AssertionError: 1 != 2" in errors


def test_exec_offers_the_stand_in_for_torchvision(world, run):
    probe = text("""
        import torchvision
        from torchvision.io import decode_jpeg
        from torchvision.transforms import InterpolationMode
        from torchvision.transforms.v2 import functional

        print(torchvision.__version__, InterpolationMode.BICUBIC.value)
        for absent in (decode_jpeg, functional.resize):
            try:
                absent()
            except NotImplementedError as error:
                print(str(error).split()[0])
        print(hasattr(functional, "__wrapped__"))
        """)
    status, output, errors = run(
        "exec", str(world.tree("tree", {})), "-c", probe.decode()
    )
    assert status == 0, errors
    assert output.split() == [
        "0.0.0+standin",
        "bicubic",
        "torchvision.io.decode_jpeg",
        "torchvision.transforms.v2.functional.resize",
        "False",
    ]


def test_help_teaches_by_example(run):
    for arguments in ((), ("--help",), ("verify", "--help"), ("exec", "--help")):
        status, output, _ = run(*arguments)
        assert status == 0
        assert "Examples:" in output
    assert run("--version")[1].split()[-1] == __version__
    ours = run("--help")[1].partition("To maintain the series:")[2]
    listed = [line.split()[0] for line in ours.splitlines() if line]
    assert listed == ["check", "edit", "export", "carry", "lock", "readme"]


def test_the_module_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "dspark_patches", "--version"],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parent,
    )
    assert done.stdout.split()[-1] == __version__
