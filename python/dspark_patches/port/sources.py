"""The files that a series touches, of its base and of a target."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from ..confined import Confined
from ..diff import ZEROS, Section, blob_id
from ..errors import Failure, Precondition
from ..installs.locate import Target
from ..installs.repository import Repository
from ..patching import forward
from ..series import Series


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What one section does to the base's file; None stands for no file.

    ``known`` is false where the base's file is not at hand: wheels do not
    carry all of the repository, and a shallow clone not all of its past.
    """

    section: Section
    known: bool
    before: bytes | None = None
    after: bytes | None = None


Steps = dict[str, tuple[Step, ...]]


def base_steps(series: Series, released: Path, target: Target) -> Steps:
    """Every patch's steps on the base, by the patch's name.

    Args:
        series: the series.
        released: the folder that holds the base's released ``python/sglang``.
        target: where a base's file that wheels do not carry may be found.

    Raises:
        Conflict: a released file is not what the series was written for.
    """
    now: dict[str, bytes | None] = {}
    lost: set[str] = set()
    found: Steps = {}
    elsewhere = _elsewhere(target)
    for patch in series.patches:
        steps = []
        for section in patch.mail.sections:
            path = section.path
            if path not in now:
                now[path] = _base_file(section, released, elsewhere)
                if now[path] is None and section.old != ZEROS:
                    lost.add(path)
            if path in lost:
                steps.append(Step(section=section, known=False))
                continue
            before, now[path] = now[path], forward(now[path], section)
            steps.append(
                Step(section=section, known=True, before=before, after=now[path])
            )
        found[patch.name] = tuple(steps)
    return found


def target_file(target: Target, path: str) -> bytes | None:
    """A target's file; None where there is none.

    Raises:
        Precondition: something else stands there.
    """
    place = target.place(path)
    with Confined(target.root) as files:
        look = files.look(place)
        if look.blob == ZEROS:
            return None
        if look.why:
            raise Precondition(f"{target.root / place}: {look.why}")
        return files.read(place)


def _base_file(
    section: Section, released: Path, elsewhere: Callable[[str, str], bytes | None]
) -> bytes | None:
    if section.old == ZEROS:
        return None
    file = released / section.path
    return file.read_bytes() if file.is_file() else elsewhere(section.path, section.old)


def _elsewhere(target: Target) -> Callable[[str, str], bytes | None]:
    """Look for a base's file in the target: as it stands there, or in its past."""
    repository: Repository | None = None
    if target.kind == "checkout":
        try:
            repository = Repository(target.root)
        except Failure:
            pass

    def find(path: str, blob: str) -> bytes | None:
        content = target_file(target, path) if target.place(path) else None
        if content is not None and blob_id(content) == blob:
            return content
        return repository.find(blob) if repository else None

    return find
