"""Measure one release: every mutant, and what the tests say of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import extra
import msgspec

from dspark_patches.model import releases, series
from dspark_patches.trees import make

from .mutant import Mutant
from .process import Disk, Preloaded
from .trace import Traced


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured.

    Attributes:
        name: the release.
        build: makes the patched tree at a path.
        tests: by patch, what its ``Regression-Test`` trailers name.
        extra: by patch, its test files that are kept out of the patches.
        mutants: what to test.
        gone: hunks that cannot be taken out, and why.
    """

    name: str
    build: Callable[[Path], None]
    tests: dict[str, tuple[str, ...]]
    extra: dict[str, tuple[str, ...]] = {}
    mutants: tuple[Mutant, ...]
    gone: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """The test files of the whole series."""
        named = (test for tests in self.tests.values() for test in tests)
        return tuple(dict.fromkeys(test.split("::")[0] for test in named))


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a mutant.

    Attributes:
        verdict: ``killed``, ``timeout`` (killed as well), ``alive``, or ``same``,
            when it compiles to what another one or the original does.
        by: the test that failed; of one alive, the classes of tests that ran it.
        where: ``swapped`` into the preloaded process, or from ``disk``.
    """

    mutant: Mutant
    verdict: str
    by: str = ""
    reason: str = ""
    where: str = "swapped"
    seconds: float = 0.0


def release(tag: str) -> Subject:
    """A release and its series."""
    release = releases.find(tag)
    loaded, found = series.load(release), make.released(release)
    joined = extra.load(release)
    files = make.recipes(joined, found.root)[make.PATCHED]
    traced = Traced(loaded, found.root)
    for path in traced.files:
        assert traced.content(path) == (files[path] or b""), path
    hunks, gone = traced.ablations()
    return Subject(
        name=tag,
        build=lambda root: make.build(root, found.package, files),
        tests={patch.name: patch.tests for patch in loaded.patches},
        extra={
            patch.name: joined_patch.tests[len(patch.tests) :]
            for patch, joined_patch in zip(loaded.patches, joined.patches)
        },
        mutants=(*hunks, *traced.mutants()),
        gone=tuple(gone),
    )


def measure(
    subject: Subject,
    mutants: Sequence[Mutant],
    notify: Callable[[str], None] = lambda message: None,
) -> Iterator[Result]:
    """Test the mutants of a subject.

    Args:
        subject: what is measured.
        mutants: those of its mutants to test.
        notify: told of each that must be tested from disk, once the rest are done.
    """
    paths = tuple(dict.fromkeys(one.path for one in mutants))
    left: list[tuple[Mutant, str, tuple[str, ...]]] = []
    with Disk(subject.build) as disk:
        with Preloaded(disk.tree, paths, subject.files) as preloaded:
            for one in mutants:
                own = subject.tests.get(one.patch, ())
                found = preloaded.judge(one, own)
                if found["verdict"] not in ("alive", "disk"):
                    yield _result(one, found)
                    continue
                left.append((one, found["verdict"], tuple(found.get("reached", ()))))
                notify(f"{found['verdict']}: {one}")
        for one, verdict, reached in left:
            own, started = subject.tests.get(one.patch, ()), time.monotonic()
            # What cannot be swapped in mostly fails at once; what lives, nowhere. A
            # line outside of functions runs before a test is watched.
            unseen = verdict == "disk" or not reached
            own_first = (own, subject.files) if unseen else (own + reached,)
            extra_tests = subject.extra.get(one.patch, ())
            found = disk.judge(one, (*own_first, extra_tests))
            found.setdefault("by", " ".join(test.split("/")[-1] for test in reached))
            found["seconds"] = round(time.monotonic() - started, 2)
            yield _result(one, found, where="disk")


def _result(one: Mutant, found: dict[str, Any], where: str = "swapped") -> Result:
    return Result(
        mutant=one,
        verdict=found["verdict"],
        by=found.get("by", ""),
        reason=found.get("reason", ""),
        where=where,
        seconds=found["seconds"],
    )
