"""A series goes into an installed package whole, or not at all, and out again."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import factories
import pytest
from machine import (
    EAGLE,
    GUARD,
    KIT,
    LATER,
    RECORD,
    RELEASED,
    ROUTER,
    TEST,
    Machine,
    carried,
    contents,
    environment,
    patch_file_of,
    state,
    uninstall,
)

from dspark_patches import cli
from dspark_patches.errors import BadInput, Conflict, Exit, Precondition
from dspark_patches.installs.apply import change
from dspark_patches.installs.confined import Confined
from dspark_patches.installs.locate import locate
from dspark_patches.installs.status import Status
from dspark_patches.model import lock, releases

PLACED = "sglang/srt/router.py"


def package_files(root: Path) -> dict[str, bytes]:
    found = contents(root)
    return {p: c for p, c in found.items() if p.startswith("sglang/")}


apply = partial(change, verb="apply")
revert = partial(change, verb="revert")


@pytest.mark.parametrize("count", range(3))
def test_the_whole_series_goes_in_and_out(machine: Machine, count: int) -> None:
    """From nothing, and from what an earlier, shorter series left."""
    target = machine.package(state(count))
    before = contents(target.root)
    done = apply(target)
    assert done.changed and done.release == "v0.5.16"
    assert set(done.left_out) == {GUARD, TEST}
    assert package_files(target.root) == carried(state(3))
    assert revert(target).changed
    assert package_files(target.root) == carried(RELEASED)
    assert not (target.root / "sglang/test/kits").exists()
    if count == 0:
        assert contents(target.root) == before


def test_a_second_apply_says_so_and_changes_nothing(machine: Machine) -> None:
    target = machine.package()
    apply(target)
    times = {p: p.stat().st_mtime_ns for p in target.root.rglob("*")}
    done = apply(target)
    assert not done.changed and not done.files
    assert {p: p.stat().st_mtime_ns for p in target.root.rglob("*")} == times
    revert(target)
    assert not revert(target).changed


def test_what_an_interruption_left_is_told(machine: Machine, capsys) -> None:
    """The installer's list as well, which no patch names."""
    target = machine.package()
    before = contents(target.root)
    apply(target)
    for place in (PLACED, RECORD):
        (target.root / place).write_bytes(before[place])
        assert cli.main(["apply", str(target.root)]) == Exit.OK
        told = capsys.readouterr().out
        assert "1 file changed" in told and place in told


def test_pip_takes_a_patched_package_out(machine: Machine, tmp_path: Path) -> None:
    """With pip itself, in an environment made for it."""
    site = environment(tmp_path / "venv")
    shutil.copytree(machine.site(), site, dirs_exist_ok=True)
    apply(locate(tmp_path / "venv"))
    uninstall(tmp_path / "venv")
    assert list(site.iterdir()) == []


def test_modes_and_owners_are_kept(machine: Machine) -> None:
    target = machine.package()
    (target.root / PLACED).chmod(0o640)
    (target.root / "sglang/__init__.py").chmod(0o664)
    owner = (12345, 12346) if os.geteuid() == 0 else (os.getuid(), os.getgid())
    for path in target.root.rglob("*"):
        os.chown(path, *owner)
    apply(target)
    modes = {PLACED: 0o640, "sglang/srt/handoff.py": 0o664, RECORD: 0o644}
    modes["sglang/test/kits"] = stat.S_IMODE((target.root / "sglang").stat().st_mode)
    for place, mode in modes.items():
        found = (target.root / place).stat()
        assert stat.S_IMODE(found.st_mode) == mode, place
        assert (found.st_uid, found.st_gid) == owner, place
    revert(target)
    assert stat.S_IMODE((target.root / PLACED).stat().st_mode) == 0o640


def test_stale_bytecode_is_no_trap(machine: Machine) -> None:
    """Also when Python was told never to compare it with its source."""
    target = machine.package()
    env = {"PYTHONPATH": str(target.root), "PATH": os.environ["PATH"]}
    compile_all = "import compileall; compileall.compile_dir({!r}, quiet=1, {})"
    unchecked = "invalidation_mode=__import__('py_compile').PycInvalidationMode(3)"
    code = compile_all.format(str(target.root), unchecked)
    subprocess.run([sys.executable, "-c", code], env=env, check=True)
    ask = (
        "from sglang.srt import router; b = router.Batch('dflash'); "
        "router.route(b); print(b.clock)"
    )

    def clock() -> str:
        command = [sys.executable, "-B", "-c", ask]
        return subprocess.run(
            command, env=env, capture_output=True, text=True
        ).stdout.strip()

    assert clock() == "0"
    apply(target)
    assert clock() == "1"
    subprocess.run([sys.executable, "-c", code], env=env, check=True)
    revert(target)
    assert clock() == "0"


def test_other_bytecode_is_left_alone(machine: Machine) -> None:
    target = machine.package()
    cache = target.root / "sglang/srt/__pycache__"
    kept = ("dflash.cpython-310.pyc", "router_more.cpython-310.pyc", "router.txt")
    gone = ("router.cpython-310.pyc", "router.cpython-312.opt-1.pyc")
    factories.write_files(cache, dict.fromkeys((*kept, *gone), b"x"))
    apply(target)
    assert sorted(path.name for path in cache.iterdir()) == sorted(kept)


def test_a_hard_linked_cache_keeps_its_bytes(machine: Machine) -> None:
    target = machine.package()
    cache = machine.folder / "cache"
    cache.mkdir()
    for place in carried(RELEASED):
        os.link(target.root / place, cache / place.replace("/", "-"))
    before = contents(cache)
    apply(target)
    assert package_files(target.root) == carried(state(3))
    assert contents(cache) == before
    revert(target)
    assert contents(cache) == before


@pytest.mark.parametrize("place", [PLACED, "sglang/srt"])
def test_a_link_in_the_package_is_refused(machine: Machine, place: str) -> None:
    target = machine.package()
    away = machine.folder / "away"
    (target.root / place).rename(away)
    (target.root / place).symlink_to(away)
    before = contents(target.root)
    with pytest.raises(Precondition, match="cannot be replaced") as caught:
        apply(target)
    assert "symbolic link" in caught.value.cause
    assert contents(target.root) == before


@pytest.mark.parametrize("where", ["", "sglang/srt"])
def test_a_package_that_may_not_be_written(machine: Machine, where: str) -> None:
    """As an ordinary user, in a process of its own when we are root."""
    target = machine.package()
    for folder in (target.root, *target.root.rglob("*/")):
        folder.chmod(0o777 if where else 0o555)
    (target.root / where).chmod(0o555)
    before = contents(target.root)
    said = as_nobody(machine.folder, lambda: apply(target))
    assert "you may not write to it; nothing was changed" in said
    assert contents(target.root) == before


def as_nobody(folder: Path, job) -> str:
    """What a job's failure says when an ordinary user runs it."""
    for above in (folder, *folder.parents[:3]):
        above.chmod(above.stat().st_mode | 0o055)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        told = "it was possible"
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            job()
        except BaseException as failure:
            told = str(failure)
        os.write(write, told.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as stream:
        told = stream.read()
    os.waitpid(child, 0)
    return told


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch):
    """Let something happen around every move of a file to its place."""

    @contextmanager
    def moved(before=lambda place: None, after=lambda place: None):
        move = Confined.move

        def around(self, source, place):
            before(place)
            move(self, source, place)
            after(place)

        with monkeypatch.context() as patch:
            patch.setattr(Confined, "move", around)
            yield

    return moved


def test_a_file_that_is_scribbled_on_is_no_success(machine: Machine, moved) -> None:
    """By somebody else, between the moment it was moved and the end."""
    target = machine.package()

    def scribble(place: str) -> None:
        if place == PLACED:
            (target.root / PLACED).write_bytes(b"scribble\n")

    with moved(after=scribble):
        with pytest.raises(Precondition, match="could not be taken back") as caught:
            apply(target)
    assert "router.py changed meanwhile" in caught.value.cause
    assert (target.root / PLACED).read_bytes() == b"scribble\n"


def test_two_at_once_are_refused(machine: Machine) -> None:
    target = machine.package()
    before = contents(target.root)
    descriptor = os.open(target.package, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(Precondition, match="another apply or revert is changing"):
        apply(target)
    assert contents(target.root) == before
    os.close(descriptor)
    assert apply(target).changed


def test_a_full_disk_changes_nothing(machine: Machine, monkeypatch) -> None:
    """At every file that is written beside its place."""
    target = machine.package()
    before = contents(target.root)
    write = Confined.write
    for allowed in range(100):
        calls = iter(range(allowed))

        def full(*arguments, calls=calls):
            if next(calls, None) is None:
                raise OSError(28, "No space left on device")
            return write(*arguments)

        monkeypatch.setattr(Confined, "write", full)
        try:
            apply(target)
            break
        except Precondition as failure:
            assert "the disk is full; nothing was changed" in failure.message
            assert contents(target.root) == before
    assert allowed == len(carried(state(3))) - len(carried(RELEASED)) + 3
    assert package_files(target.root) == carried(state(3))


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (16, "a file is mounted over"),
        (18, "another file system"),
        (30, "read-only file system"),
        (5, "written"),
    ],
)
def test_a_file_that_cannot_be_replaced_takes_all_back(
    machine: Machine, moved, number: int, told: str
) -> None:
    target = machine.package()
    before = contents(target.root)

    def stuck(place: str) -> None:
        if place == "sglang/srt/handoff.py":
            raise OSError(number, "stuck")

    with moved(before=stuck), pytest.raises(Precondition, match=told):
        apply(target)
    assert contents(target.root) == before


def test_what_cannot_be_taken_back_is_named(machine: Machine, moved) -> None:
    target = machine.package()
    places = []

    def stuck(place: str) -> None:
        places.append(place)
        if "handoff" in place or (places.count(place) > 1 and "srt" in place):
            raise OSError(5, "stuck")

    with moved(before=stuck):
        with pytest.raises(Precondition, match="could not be taken back") as caught:
            apply(target)
    assert "dspark-patches revert" in caught.value.next_step
    assert Status(target).mixed
    assert revert(target).changed
    assert package_files(target.root) == carried(RELEASED)


@pytest.mark.parametrize(
    ("place", "content"),
    [
        (PLACED, RELEASED[ROUTER] + b"# mine\n"),
        (PLACED, b""),
        ("sglang/srt/handoff.py", b"# another file\n"),
        ("sglang/srt/eagle.py", None),
    ],
)
def test_a_file_in_no_known_state_is_never_written(
    machine: Machine, place: str, content: bytes | None
) -> None:
    target = machine.package()
    if content is None:
        (target.root / place).unlink()
    else:
        (target.root / place).write_bytes(content)
    before = contents(target.root)
    for verb in ("apply", "revert"):
        with pytest.raises(Conflict, match=f"does not fit python/{place}") as caught:
            change(target, verb)
        assert "reinstall sglang==0.5.16" in caught.value.next_step
        assert "dspark-patches port " in caught.value.next_step
    assert contents(target.root) == before


def test_what_another_series_has_left_is_replaced(machine: Machine) -> None:
    """As by an uninstall in the middle of an `apply`, without a list of files."""
    kit = {KIT: b"ALGORITHMS = []\n"}
    patch_files = (patch_file_of(LATER, LATER | kit, "Add another kit"),)
    machine.write(machine.later, patch_files, LATER)
    target = machine.package(RELEASED | kit)
    assert not Status(target).strange
    assert revert(target).files == ("sglang/test/kits/kit.py",)
    factories.write_files(target.root, carried(kit))
    apply(target)
    assert package_files(target.root) == carried(state(3))


def test_an_unknown_release_is_refused(machine: Machine) -> None:
    target = locate(machine.site({**RELEASED, ROUTER: b"#\n", EAGLE: b"#\n"}, "0.6.0"))
    with pytest.raises(Precondition, match="no release that we know") as caught:
        apply(target)
    assert "dspark-patches port" in caught.value.next_step


def test_a_series_that_its_lock_does_not_know_is_refused(machine: Machine) -> None:
    target = machine.package()
    path = lock.path_of(machine.release)
    result = lock.load(machine.release).edited[EAGLE].result
    path.write_text(path.read_text().replace(result, "1" * 40))
    before = contents(target.root)
    with pytest.raises(BadInput, match="do not make what its lock says"):
        apply(target)
    assert contents(target.root) == before


def test_a_tampered_patch_changes_nothing(machine: Machine) -> None:
    target = machine.package()
    path = releases.series_dir(machine.release) / "0003-hand-a-batch-over.patch"
    path.write_bytes(path.read_bytes().replace(b"+def build", b"+def wreck"))
    before = contents(target.root)
    for attempt in (apply, Status):
        with pytest.raises(BadInput, match="0003-hand-a-batch-over.patch"):
            attempt(target)
    assert contents(target.root) == before


def by_itself(machine: Machine, tree: Path) -> Path:
    return tree


def by_a_link(machine: Machine, tree: Path) -> Path:
    """The link in site-packages is the user's own word for the place."""
    (machine.folder / "sglang").symlink_to(tree / "python" / "sglang")
    return machine.folder


def by_an_editable_install(machine: Machine, tree: Path) -> Path:
    info = "sglang-0.5.16.dist-info"
    files = {
        f"{info}/METADATA": b"Name: sglang\nVersion: 0.5.16\n",
        f"{info}/RECORD": f"{info}/RECORD,,\n".encode(),
        "sglang.pth": f"{tree / 'python'}\n".encode(),
    }
    factories.write_files(environment(machine.folder / "venv"), files)
    return machine.folder / "venv"


@pytest.mark.parametrize("reach", [by_itself, by_a_link, by_an_editable_install])
def test_a_tree_is_changed_where_it_is(machine: Machine, reach) -> None:
    """Tests included, and nothing beside it."""
    tree = machine.tree()
    place = reach(machine, tree)
    before = contents(place)
    target = locate(place)
    assert (target.kind, target.root, target.record) == ("tree", tree, "")
    apply(target)
    assert contents(tree) == state(3)
    revert(target)
    assert contents(place) == before


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_full_output_is_no_failure(machine: Machine, monkeypatch, capsys, form):
    """What was done stays done, and is told on standard error."""
    site = machine.site()
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert cli.main(["apply", str(site), "--format", form]) == Exit.OK
    assert "is patched; 5 files changed; it could not" in capsys.readouterr().err
    assert not Status(locate(site)).lacking


@pytest.mark.parametrize("form", ["text", "json", "github"])
def test_the_command_tells_what_it_did(machine: Machine, capsys, form: str) -> None:
    site = str(machine.site())
    # Only a checkout has branches.
    assert cli.main(["apply", site, "--branch", "new"]) == Exit.USAGE
    capsys.readouterr()
    assert cli.main(["apply", site, "--format", form]) == Exit.OK
    assert PLACED in capsys.readouterr().out
    assert cli.main(["status", site, "--require"]) == Exit.OK
    assert cli.main(["apply", site, "--format", form]) == Exit.OK
    told = capsys.readouterr().out
    assert "nothing to do" in told or '"changed": false' in told
    assert cli.main(["revert", site]) == Exit.OK
    assert cli.main(["status", site, "--require"]) == Exit.FINDINGS
