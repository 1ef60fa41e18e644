"""``port``: a verdict per patch on a tree that is no known release."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from ..errors import Failure, Precondition
from ..installs.confined import Confined
from ..installs.locate import Target
from ..installs.repository import Repository
from ..model import lock
from ..model import patch_file as patch_files
from ..model import series as all_series
from ..model import states
from ..model.diff import ZEROS, Section, blob_id
from ..model.releases import Release
from ..model.series import Patch
from ..model.states import Find, Step
from ..trees import make, workshop
from . import section as sections
from .section import Fit, Verdict

GOOD = (Verdict.CLEAN, Verdict.MOVED)

_SHOWN = 6


class PatchVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What one patch would do; ``sections`` are right when it fits."""

    patch: Patch
    verdict: Verdict
    evidence: tuple[str, ...]
    sections: tuple[Section, ...]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a series would do on a target.

    Attributes:
        left_out: files of the series that the target does not carry.
        merged: the target's files with the patches that fit; None for no file.
        tested: whether the series' own tests ran on the merged tree.
    """

    release: str
    target: str
    patches: tuple[PatchVerdict, ...]
    left_out: tuple[str, ...]
    merged: dict[str, bytes | None]
    tested: bool = False

    @property
    def fits(self) -> bool:
        """Whether every patch is clean or moved."""
        return all(one.verdict in GOOD for one in self.patches)

    @property
    def good(self) -> bool:
        """Whether every patch fits or is in already."""
        return all(one.verdict in (*GOOD, Verdict.UPSTREAMED) for one in self.patches)

    def patch_files(self) -> dict[str, bytes]:
        """The ported patches by file stem; right when the series fits."""
        return {
            one.patch.name: patch_files.render(
                msgspec.structs.replace(one.patch.file, sections=one.sections)
            )
            for one in self.patches
        }


def port(release: Release, target: Target, notify: Callable[[str], None]) -> Report:
    """Judge what each patch of a release's series would do on a target.

    Args:
        release: the release.
        target: the target; it is only read.
        notify: told before something slow begins.

    Raises:
        Usage: the release has no series.
        Precondition: the release's files cannot be had, or the target's not read.
        BadInput: the series and its lock do not agree.
    """
    series = all_series.load(release)
    lock.agreed(release, series)
    released = states.in_folder(make.released(release, notify).root)
    steps = states.steps(series, _also_in(target, released))
    paths = {step.section.path for made in steps.values() for step in made}
    left_out = sorted(path for path in paths if not target.place(path))
    now = {path: _file(target, path) for path in paths.difference(left_out)}
    verdicts = []
    for patch in series.patches:
        here = [step for step in steps[patch.name] if step.section.path in now]
        verdicts.append(_judge(patch, here, now))
    return Report(
        release=series.release,
        target=str(target.root),
        patches=tuple(verdicts),
        left_out=tuple(left_out),
        merged=now,
    )


def _judge(
    patch: Patch, steps: Sequence[Step], now: dict[str, bytes | None]
) -> PatchVerdict:
    """The verdict on a patch; ``now`` follows where it fits."""
    fits = {
        step.section.path: sections.fit(step, now[step.section.path]) for step in steps
    }
    made = _made(steps, now, fits)
    for step in steps:
        path = step.section.path
        if path in made:
            target, content = now[path] or b"", fits[path].content or b""
            fits[path] = sections.compare(step, target, made[path], content)
    found = {fit.verdict for fit in fits.values()}
    verdict = max(found, default=Verdict.CLEAN)
    if verdict == Verdict.UPSTREAMED and len(found) > 1:
        verdict = Verdict.PARTLY_UPSTREAMED
    if verdict in (*GOOD, Verdict.UPSTREAMED):
        now |= {path: fit.content for path, fit in fits.items()}
    mixed = verdict in (Verdict.MOVED, Verdict.PARTLY_UPSTREAMED)
    shown = [fit for fit in fits.values() if mixed or fit.verdict == verdict]
    return PatchVerdict(
        patch=patch,
        verdict=verdict,
        evidence=tuple(text for fit in shown for text in fit.evidence)[:_SHOWN],
        sections=tuple(made.get(s.section.path, s.section) for s in steps),
    )


def _made(
    steps: Iterable[Step], now: Mapping[str, bytes | None], fits: Mapping[str, Fit]
) -> dict[str, Section]:
    """git's difference between each target file and the merged one."""
    modes = {
        step.section.path: step.section.mode
        for step in steps
        if step.section.kind == "edit"
        and fits[step.section.path].verdict == Verdict.MOVED
    }
    after = {path: fits[path].content for path in modes}
    made = workshop.difference({path: now[path] for path in modes}, after, modes)
    return {one.path: one for one in made}


def _file(target: Target, path: str) -> bytes | None:
    """A target's file; None where there is none."""
    place = target.place(path)
    with Confined(target.root) as files:
        look = files.look(place)
        if look.blob == ZEROS:
            return None
        if look.why:
            raise Precondition(f"{target.root / place}: {look.why}")
        return files.read(place)


def _also_in(target: Target, released: Find) -> Find:
    """Find a release's file that wheels lack in the target: as it stands, or its past."""
    repository: Repository | None = None
    if target.kind == "checkout":
        try:
            repository = Repository(target.root)
        except Failure:
            pass

    def find(path: str, blob: str) -> bytes | None:
        content = released(path, blob)
        if content is None and target.place(path):
            content = _file(target, path)
            if content is None or blob_id(content) != blob:
                content = repository.find(blob) if repository else None
        return content

    return find
