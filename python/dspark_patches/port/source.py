"""A release to take patches from, and which of them a fork has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ..installs.locate import Target
from ..model import lock, releases, series, states
from ..model.diff import blob_id
from ..model.series import Patch, is_test
from ..model.states import Content, Step
from ..trees import make
from . import section as sections
from .fork import Fork

_DEFINED = re.compile(rb"^\s*(?:async )?(?:def|class) (\w+)", re.MULTILINE)


class Source:
    """One release beside a fork.

    Attributes:
        tests: the blob ids of the tests and the kit that its patches add.
        inside: the names of the patches that the fork has.

    Raises:
        Usage: there is no such release, or it has no series.
        Precondition: the release's files cannot be had.
        BadInput: the series and its lock do not agree.
    """

    def __init__(self, tag: str, fork: Fork, notify: Callable[[str], None]) -> None:
        release = releases.find(tag)
        self.fork = fork
        self.series = series.load(release)
        lock.agreed(release, self.series)
        root = make.released(release, notify).root
        self.released = Fork(Target(kind="tree", root=root))
        self.steps = states.steps(self.series, self._also_here(states.in_folder(root)))
        every = [s for p in self.series.patches for s in p.file.sections]
        self.tests = {section.new for section in every if is_test(section.path)}
        self.inside = frozenset(self._inside())

    def here(self, patch: Patch) -> list[Step]:
        """A patch's parts that have a place in the fork; a test that it has has none."""
        return [
            step
            for step in self.steps[patch.name]
            if self.fork.carries(step.section.path)
            and not (step.section.kind == "add" and self._has(step.section.path))
        ]

    def place(self, step: Step) -> str:
        """Where the fork has a part's file."""
        path = step.section.path
        if step.section.kind != "edit" or step.before is None:
            return path
        return self.fork.where(path, step.before)

    def texts(self) -> Iterator[bytes]:
        """The release's runtime, and the names that its patches define."""
        for steps in self.steps.values():
            for step in steps:
                if step.after and not is_test(step.section.path):
                    yield b" ".join(_DEFINED.findall(step.after))
        yield from self.released.texts()

    def _has(self, path: str) -> bool:
        found = self.fork.read(path)
        return found is not None and is_test(path) and blob_id(found) in self.tests

    def _also_here(self, released: states.Find) -> states.Find:
        """Find a release's file that wheels lack in the fork: as it stands, or past."""

        def find(path: str, blob: str) -> bytes | None:
            content = released(path, blob)
            if content is None and self.fork.carries(path):
                content = self.fork.read(path)
                if content is None or blob_id(content) != blob:
                    content = self.fork.past(blob)
            return content

        return find

    def _inside(self) -> set[str]:
        """The patches that the fork has, from the last one back.

        A later patch may have changed an earlier one's lines, so each is looked
        for where the ones after it are taken out.
        """
        bare: dict[str, Content] = {}
        found = set()
        for patch in reversed(self.series.patches):
            undone: dict[str, Content] = {}
            steps = self.here(patch)
            for step in steps:
                place = self.place(step)
                content = bare[place] if place in bare else self.fork.read(place)
                without = sections.undone(step, content)
                if without is False:
                    break
                undone[place] = without
            else:
                if steps or any(self._has(s.path) for s in patch.file.sections):
                    bare |= undone
                    found.add(patch.name)
        return found
