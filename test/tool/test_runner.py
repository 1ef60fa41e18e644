"""Every way in which a test can end is told apart, and none is lost."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import factories
import pytest
from world import RELEASED, text

from dspark_patches.errors import Precondition
from dspark_patches.proof import runner

FILE = "test/test_it.py"
HEAD = "import os, signal, sys, time, unittest\n"
OTHER = b"import unittest\nclass O(unittest.TestCase):\n    def test_o(self): pass\n"
TWO = """
    class T(unittest.TestCase):
        def test_a(self):
            pass

        def test_ab(self):
            pass

    class TT(T):
        pass
    """


@pytest.fixture
def run(world):
    """Run one file's tests; outcomes by what follows the path in their id."""

    def run(source, *selectors, files=None, **options):
        tests = {FILE: HEAD.encode() + text(source), **(files or {})}
        tree = world.tree("tree", tests)
        found = runner.run(tree, selectors or (FILE,), **options)
        return {outcome.id.removeprefix(f"{FILE}::"): outcome for outcome in found}

    return run


@pytest.fixture
def run_one(run):
    """Run the body of one test; its outcome."""

    def run_one(body, before="", **options):
        lines = [f"        {line}" for line in text(body).decode().splitlines()]
        case = ["class T(unittest.TestCase):", "    def test_it(self):", *lines]
        source = text(before).decode() + "\n".join(case)
        return run(source, **options)["T.test_it"]

    return run_one


def test_the_four_outcomes(run):
    found = run("""
        class T(unittest.TestCase):
            def test_passes(self):
                pass

            def test_fails(self):
                self.assertEqual(1, 2, "why")

            def test_errs(self):
                raise KeyError("name")

            @unittest.skip("not here")
            def test_skips(self):
                pass

            @unittest.expectedFailure
            def test_xfails(self):
                self.assertEqual(1, 2)

            @unittest.expectedFailure
            def test_xpasses(self):
                pass
        """)
    assert {name: outcome.status for name, outcome in found.items()} == {
        "T.test_passes": "passed",
        "T.test_fails": "failed",
        "T.test_errs": "error",
        "T.test_skips": "skipped",
        "T.test_xfails": "skipped",
        "T.test_xpasses": "failed",
    }
    assert str(found["T.test_fails"]) == "AssertionError: 1 != 2 : why"
    assert found["T.test_skips"].skipped == "not here"
    (fault,) = found["T.test_errs"].faults
    assert (fault.type, fault.message, fault.frame) == ("KeyError", "'name'", FILE)
    assert "LookupError" in fault.bases
    assert "in test_errs" in fault.traceback


def test_the_innermost_frame_names_released_code(run_one):
    files = {"python/sglang/srt/pool.py": b"def size(rows):\n    return max(rows)\n"}
    found = run_one(
        "from sglang.srt.pool import size; size(None)",
        files=files,
    )
    (fault,) = found.faults
    assert (fault.type, fault.frame) == ("TypeError", "python/sglang/srt/pool.py")
    assert run_one('import json; json.loads("{")').faults[0].frame == ""


def test_upstreams_retry_wrapper_is_seen_through(run):
    files = {
        "python/sglang/srt/utils/__init__.py": b"",
        "python/sglang/srt/utils/common.py": text("""
            def retry(fn):
                try:
                    return fn()
                except Exception as e:
                    raise Exception("retry() exceed maximum number of retries.")
            """),
    }
    found = run(
        """
        from sglang.srt.utils.common import retry

        class T(unittest.TestCase):
            def _callTestMethod(self, method):
                retry(lambda: super(T, self)._callTestMethod(method))

            def test_fails(self):
                self.assertTrue(False)
        """,
        files=files,
    )
    assert found["T.test_fails"].status == "failed"
    assert found["T.test_fails"].faults[0].type == "AssertionError"


def test_every_fault_of_a_test_counts(run_one):
    found = run_one("""
        for page in (1, 64, 256):
            with self.subTest(page=page):
                self.assertEqual(page, 64)
        """)
    assert found.status == "failed"
    assert [fault.message for fault in found.faults] == [
        "(page=1) 1 != 64",
        "(page=256) 256 != 64",
    ]
    found = run_one("""
        self.addCleanup(os.remove, "no such file")
        self.assertEqual(1, 2)
        """)
    types = [fault.type for fault in found.faults]
    assert types == ["AssertionError", "FileNotFoundError"]
    assert found.status == "error"


@pytest.mark.parametrize(
    "body", ["import nothing_like_this", "def (", "raise SystemExit"]
)
def test_a_file_that_does_not_load_is_an_error(run, body):
    files = {"test/test_other.py": OTHER}
    found = run(body, FILE, f"{FILE}::T", "test/test_other.py", files=files)
    assert found[FILE].status == "error"
    assert found[FILE].faults[0].fixture == "collection"
    assert found["test/test_other.py::O.test_o"].status == "passed"
    assert len(found) == 2


@pytest.mark.parametrize("selector", [f"{FILE}::T.test_b", f"{FILE}::U", "test/no.py"])
def test_a_selector_that_names_nothing_is_an_error(run, selector):
    found = run(TWO, f"{FILE}::T.test_a", selector)
    assert found.pop("T.test_a").status == "passed"
    (missing,) = found.values()
    assert (missing.id, missing.status) == (selector, "error")


def test_a_selector_does_not_match_a_longer_name(run):
    assert list(run(TWO, f"{FILE}::T.test_a")) == ["T.test_a"]
    assert list(run(TWO, f"{FILE}::T")) == ["T.test_a", "T.test_ab"]


def test_fixtures_of_a_class_count_for_its_tests(run):
    found = run("""
        class Setup(unittest.TestCase):
            @classmethod
            def setUpClass(cls):
                raise ValueError("no pool")

            def test_a(self):
                pass

        class Teardown(unittest.TestCase):
            @classmethod
            def tearDownClass(cls):
                raise ValueError("leak")

            def test_a(self):
                pass

        class Skipped(unittest.TestCase):
            @classmethod
            def setUpClass(cls):
                raise unittest.SkipTest("no GPU")

            def test_a(self):
                pass
        """)
    assert {name: (each.status, str(each)) for name, each in found.items()} == {
        "Setup.test_a": ("error", "ValueError in setUpClass: no pool"),
        "Teardown.test_a": ("error", "ValueError in tearDownClass: leak"),
        "Skipped.test_a": ("skipped", "skipped: no GPU"),
    }


def test_a_modules_setup_counts_for_all_its_tests(run):
    found = run("""
        def setUpModule():
            raise ValueError("no pool")

        class T(unittest.TestCase):
            def test_a(self):
                pass

        class U(unittest.TestCase):
            def test_b(self):
                pass
        """)
    said = "ValueError in setUpModule: no pool"
    assert [str(outcome) for outcome in found.values()] == [said, said]


def test_a_crash_costs_only_what_had_not_ended(run):
    found = run("""
        class T(unittest.TestCase):
            def test_1_before(self):
                pass

            def test_2_crashes(self):
                print("last words", flush=True)
                os.kill(os.getpid(), signal.SIGSEGV)

            def test_3_after(self):
                pass
        """)
    assert found["T.test_1_before"].status == "passed"
    assert "killed by SIGSEGV" in str(found["T.test_2_crashes"])
    assert found["T.test_2_crashes"].output.startswith("last words")
    assert "in test_2_crashes" in found["T.test_2_crashes"].output
    after = found["T.test_3_after"]
    assert after.status == "error"
    assert f"during {FILE}::T.test_2_crashes" in str(after)


@pytest.mark.parametrize("status", [0, 3])
def test_a_test_that_ends_the_process_does_not_pass(run_one, status):
    found = run_one(f"os._exit({status})")
    said = f"Died in process: the tests' process ended with status {status}"
    assert (found.status, str(found)) == ("error", said)


def test_a_file_that_ends_the_process_is_an_error(run):
    (found,) = run("print('bye', flush=True); os._exit(0)").values()
    assert (found.id, found.status, found.output) == (FILE, "error", "bye\n")


def test_a_hang_is_ended_and_shows_where_it_stood(run):
    found = run("""
        import faulthandler

        class T(unittest.TestCase):
            def test_1_before(self):
                pass

            def test_2_hangs(self):
                self.wait_for_ever()

            def wait_for_ever(self):
                # Let time be up now.
                faulthandler.dump_traceback_later(0.01, exit=True)
                time.sleep(600)
        """)
    assert found["T.test_1_before"].status == "passed"
    assert "hung: no end after 900 seconds" in str(found["T.test_2_hangs"])
    assert "in wait_for_ever" in found["T.test_2_hangs"].output


def test_time_is_up_when_told(run):
    (found,) = run("time.sleep(600)", timeout=0.1).values()
    assert "hung: no end after 0.1 seconds" in str(found)


def test_what_a_test_prints_is_kept_apart(run):
    found = run("""
        class T(unittest.TestCase):
            def test_1_lies(self):
                print('{"kind": "plan", "ids": []}')
                os.write(1, b'\\xff{"kind": "outcome", "id": "x"}')
                print("beside", file=sys.stderr)
                self.assertEqual(1, 2)

            def test_2_quiet(self):
                pass

            def test_3_closes(self):
                os.close(1)
                os.close(2)
                sys.stdout = sys.stderr = None

            def test_4_after(self):
                pass
        """)
    lies = found["T.test_1_lies"]
    assert lies.status == "failed"
    for part in ('{"kind": "plan"', "\ufffd", "beside"):
        assert part in lies.output
    assert found["T.test_2_quiet"].output == ""
    assert found["T.test_3_closes"].status == "passed"
    assert found["T.test_4_after"].status == "passed"


def test_an_exception_that_cannot_be_printed_is_told(run_one):
    found = run_one(
        "raise Mute",
        before="""
        class Mute(Exception):
            def __str__(self):
                raise ValueError

        """,
    )
    assert str(found).startswith("Mute: <")


@pytest.mark.parametrize("elsewhere", [True, False])
def test_an_sglang_that_is_not_the_trees_is_refused(world, tmp_path, elsewhere):
    tree = world.tree("tree", {FILE: b""})
    if elsewhere:
        (tree / "python/sglang").rename(tree / "python/away")
        factories.write_files(tmp_path, {"there/sglang/__init__.py": b""})
        (tree / "python/sglang").symlink_to(tmp_path / "there" / "sglang")
    else:
        (tree / "python/sglang/__init__.py").unlink()
    with pytest.raises(Precondition, match="would run against") as caught:
        runner.run(tree, (FILE,))
    found = tmp_path / "there" if elsewhere else tree
    assert str(found) in caught.value.message


def test_an_sglang_that_does_not_import_fails_every_test(world):
    tree = world.tree("tree", {"python/sglang/__init__.py": b"import nothing\n"})
    (found,) = runner.run(tree, (f"{FILE}::T",))
    assert (found.id, found.status) == (f"{FILE}::T", "error")
    assert found.faults[0].type == "ModuleNotFoundError"


def test_settings_of_the_user_do_not_reach_the_tests(run_one, monkeypatch, tmp_path):
    monkeypatch.setenv("SGLANG_TEST_MAX_RETRY", "3")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONOPTIMIZE", "2")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    found = run_one("""
        self.assertNotIn("SGLANG_TEST_MAX_RETRY", os.environ)
        self.assertEqual(sys.flags.optimize, 0)
        self.assertEqual(os.environ["CUDA_VISIBLE_DEVICES"], "99")
        self.assertEqual(os.environ["OMP_NUM_THREADS"], "1")
        self.assertEqual(os.getcwd(), sys.path[0].removesuffix("/python"))
        """)
    assert str(found) == "passed"


def test_our_own_modules_are_not_in_the_tests_way(run_one):
    found = run_one("""
        for name in ("releases", "patch", "runner", "runner_child", "series", "trees"):
            with self.assertRaises(ImportError):
                __import__(name)
        """)
    assert str(found) == "passed"


def test_tests_leave_no_bytecode_and_no_temporary_files(run_one, world, tmp_path):
    marker = tmp_path / "where"
    found = run_one(f"""
        import tempfile
        with open({str(marker)!r}, "w") as stream:
            stream.write(tempfile.mkdtemp())
        """)
    assert str(found) == "passed"
    assert not os.path.exists(marker.read_text())
    assert not list(world.data.parent.rglob("tree/**/__pycache__"))


def test_a_run_that_is_called_off_ends_all(run_one, await_end, tmp_path):
    marker = tmp_path / "pid"
    with runner.Server() as server:

        def call_off():
            while not marker.exists():
                time.sleep(0.05)
            server.kill()

        thread = threading.Thread(target=call_off, daemon=True)
        thread.start()
        found = run_one(
            f"""
            import subprocess
            child = subprocess.Popen(["sleep", "600"])
            with open({str(marker)!r} + "~", "w") as stream:
                stream.write(str(child.pid))
            os.rename({str(marker)!r} + "~", {str(marker)!r})
            child.wait()
            """,
            server=server,
        )
        thread.join()
    assert "Died in process: the " in str(found)
    await_end(int(marker.read_text()))


def test_a_server_that_died_costs_its_runs(run):
    with runner.Server() as server:
        os.kill(server.pid, signal.SIGKILL)
        (found,) = run("class T(unittest.TestCase): pass", server=server).values()
    assert "the process to fork from ended with status -9" in str(found)


def test_runs_of_one_server_do_not_see_each_other(run_one):
    with runner.Server(preload=("fractions", "not.there")) as server:
        for _ in range(2):
            found = run_one(
                """
                self.assertTrue(loaded)
                self.assertFalse(hasattr(fractions, "mark"))
                fractions.mark = 1
                """,
                before="loaded = 'fractions' in sys.modules\nimport fractions\n",
                server=server,
            )
            assert str(found) == "passed"


def test_an_interpreter_that_does_not_start(world):
    with pytest.raises(Precondition, match="does not start"):
        runner.run(world.tree("tree", {}), (FILE,), python="/no/such/python")


def test_the_stand_in_steps_back_for_a_real_torchvision(world, tmp_path):
    tree = world.tree("tree", RELEASED)
    site = tmp_path / "site"
    factories.write_files(site, {"torchvision/__init__.py": b""})
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{site}" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    assert runner.environment(tree, str(python))["PYTHONPATH"] == str(tree / "python")
