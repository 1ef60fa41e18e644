"""Factories with defaults, so that a test states only what matters to it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dspark_patches.git import Git
from dspark_patches.model import diff, patch_file
from dspark_patches.model.releases import Release

DATE = "Tue, 1 Sep 2026 12:00:00 +0000"
TRAILERS = (
    ("Upstream-Status", "Pending [not sent]"),
    ("Fixes", "sgl-project/sglang#1"),
    ("Regression-Test", "test/registered/unit/spec/test_clock.py::TestClock"),
)

REFERENCES = b"""\
["sgl-project/sglang#1"]
kind = "issue"
title = "The clock ticks twice"
source = "seen"

["sgl-project/sglang#2"]
kind = "pull request"
title = "Tick once"
source = "reports"
"""


def make_release(name: str = "v0.5.16") -> Release:
    version = name.removeprefix("v")
    return Release(
        tag=name,
        version=version,
        wheel=f"sglang-{version}-py3-none-any.whl",
        requires_python=">=3.10",
    )


def make_edit(path: str, old: bytes, new: bytes, mode: str = "100644") -> diff.Section:
    """A section that replaces every line of a file."""
    before, after = _side(b"-", old), _side(b"+", new)
    head = f"diff --git a/{path} b/{path}\n"
    head += f"index {diff.blob_id(old)}..{diff.blob_id(new)} {mode}\n"
    head += f"--- a/{path}\n+++ b/{path}\n"
    hunk = b"@@ -%s +%s @@\n" % (_range(before), _range(after))
    text = head.encode() + hunk + b"".join(before) + b"".join(after)
    (section,) = diff.parse(text, path)
    return section


def make_delete(path: str, content: bytes) -> diff.Section:
    """A section that deletes a file."""
    blob = diff.blob_id(content)
    head = f"diff --git a/{path} b/{path}\ndeleted file mode 100644\n"
    head += f"index {blob}..{diff.ZEROS}\n"
    lines = _side(b"-", content)
    text = head.encode()
    if content:
        text += f"--- a/{path}\n+++ /dev/null\n".encode()
        text += b"@@ -%s +0,0 @@\n" % _range(lines) + b"".join(lines)
    (section,) = diff.parse(text, path)
    return section


def make_patch_file(
    *sections: diff.Section,
    subject: str = "Tick the clock once",
    date: str = DATE,
    author: str = patch_file.AUTHOR,
    body: str = "The clock ticked twice. Each tick frees a page.",
    trailers: tuple[tuple[str, str], ...] = TRAILERS,
) -> patch_file.PatchFile:
    return patch_file.PatchFile(
        subject=subject,
        date=date,
        author=author,
        body=body,
        trailers=trailers,
        sections=sections or (diff.render_add("new.py", b"x = 1\n"),),
    )


def make_repository(root: Path, files: Mapping[str, bytes]) -> Git:
    """A repository at ``root`` with one commit that holds ``files``."""
    root.mkdir(parents=True, exist_ok=True)
    git = Git(root)
    git.run("init", "-q", "-b", "main")
    write_files(root, files)
    git.run("add", "-A")
    git.run("commit", "-q", "-m", "release")
    return git


def write_files(root: Path, files: Mapping[str, bytes]) -> None:
    for path, content in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def write_series(
    folder: Path, *patch_files: patch_file.PatchFile, slug: str = "patch"
) -> Path:
    """A release's folder that holds ``patches`` in this order."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, value in enumerate(patch_files, 1):
        path = folder / f"{number:04}-{slug}.patch"
        path.write_bytes(patch_file.render(value))
    return folder


def _side(marker: bytes, content: bytes) -> list[bytes]:
    lines = content.removesuffix(b"\n").split(b"\n") if content else []
    side = [marker + line + b"\n" for line in lines]
    if content and not content.endswith(b"\n"):
        side[-1] += diff.NO_NEWLINE + b"\n"
    return side


def _range(side: list[bytes]) -> bytes:
    if not side:
        return b"0,0"
    return b"1" if len(side) == 1 else b"1,%d" % len(side)
