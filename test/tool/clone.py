"""A clone with a series of two patches, beside the released files."""

from __future__ import annotations

from pathlib import Path

from factories import (
    make_edit,
    make_patch_file,
    make_release,
    make_repository,
    write_files,
    write_series,
)

from dspark_patches.git import Git
from dspark_patches.maintain import collect, edit, restack
from dspark_patches.model import diff, patch_file, series

CLOCK = "python/sglang/srt/clock.py"
KIT = "python/sglang/test/kits/clock_kit.py"
GUARD = "test/registered/unit/test_guard.py"
TEST = "test/registered/unit/test_clock.py"
PRISTINE = {CLOCK: b"tick\n", "python/sglang/srt/pool.py": b"pool\n"}
ADDED = {KIT: b"kit\n", TEST: b"test\n"}

HOSTILE_CONFIG = """\
[diff]
    noprefix = true
    mnemonicPrefix = true
    context = 7
    interHunkContext = 9
    external = false
    orderFile = {order}
    algorithm = patience
    renames = copies
    suppressBlankEmpty = true
[diff "shout"]
    textconv = tr a-z A-Z <
    xfuncname = ".*"
[format]
    signature = hostile
    subjectPrefix = HOSTILE
    attach = true
    useAutoBase = true
    notes = true
    numbered = true
    thread = deep
    to = somebody@dspark-patches.invalid
    headers = "X-Hostile: yes"
    from = true
    coverLetter = true
[core]
    autocrlf = true
    quotePath = false
    abbrev = 7
    attributesFile = {attributes}
    hooksPath = {hooks}
[commit]
    gpgSign = true
[apply]
    ignoreWhitespace = change
    whitespace = error-all
[i18n]
    commitEncoding = latin1
    logOutputEncoding = latin1
[user]
    name = Hostile
    email = hostile@dspark-patches.invalid
[log]
    showSignature = true
"""


def two_patch_files() -> tuple[patch_file.PatchFile, patch_file.PatchFile]:
    first = make_patch_file(
        make_edit(CLOCK, b"tick\n", b"tick once\n"),
        diff.render_add(KIT, ADDED[KIT]),
        make_edit(GUARD, b"guard\n", b"guard clock\n"),
        subject="Tick the clock once in every iteration and never skip any of them",
    )
    second = make_patch_file(
        make_edit(CLOCK, b"tick once\n", b"evict\nthen tick\n"),
        diff.render_add(TEST, ADDED[TEST]),
        subject="Evict before the tick",
    )
    return first, second


class Clone:
    """The folders, and what the tool does with them."""

    def __init__(self, root: Path) -> None:
        self.sources = root / "clone"
        self.folder = self.sources / "patches" / "v0.5.16"
        self.released = root / "released"
        self.tree = root / "tree"
        write_files(self.released, PRISTINE)
        write_files(self.sources, ADDED)
        write_series(self.folder, *two_patch_files())

    @property
    def series(self) -> series.Series:
        return series.load(make_release(), self.folder)

    def patch_files(self) -> dict[str, bytes]:
        return {path.stem: path.read_bytes() for path in self.folder.glob("*.patch")}

    def regenerate(self) -> dict[str, bytes]:
        return restack.regenerate(self.series, self.released, self.sources)

    def edit(self) -> Git:
        edit.from_wheel(self.series, self.released, self.tree)
        return Git(self.tree)

    def collect(self, *others: series.Series) -> dict[str, bytes | None]:
        """What would change in the clone, whose other series are these."""
        wanted = collect.changes(self.series, self.tree, self.sources, others)
        return {
            path.relative_to(self.sources).as_posix(): data
            for path, data in wanted.items()
            if restack.content(path) != data
        }


def full_checkout(root: Path, config: str = "") -> Git:
    files = PRISTINE | {GUARD: b"guard\n", ".gitattributes": b"*.py diff=shout\n"}
    git = make_repository(root, files)
    git.run("tag", "v0.5.16")
    with (root / ".git" / "config").open("a") as stream:
        stream.write(config)
    return git
