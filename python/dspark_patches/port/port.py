"""``port``: a verdict per patch on a tree that is no known base."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from .. import lock
from .. import mail as mails
from .. import series as all_series
from .. import trees, workshop
from ..bases import Base
from ..diff import Section, blob_id
from ..guard import effects, guards
from ..guard.effects import Effect
from ..installs.locate import Target
from ..mail import Mail
from ..series import Patch
from . import section as sections
from .section import Fit, Verdict, Versions
from .sources import Step, base_steps, target_file

_SHOWN = 6
_TWICE = "it fits, but what it does would be done twice, or be missed:"
_MIXED = (Verdict.MOVED, Verdict.PARTLY_UPSTREAMED)
_GOOD = (Verdict.CLEAN, Verdict.MOVED)


class PatchVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What one patch would do."""

    patch: str
    kind: Literal["fix", "test"]
    verdict: str
    evidence: tuple[str, ...]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a series would do on a target.

    Attributes:
        fits: whether every patch is clean or moved.
        mails: the ported mails by file stem, when it fits.
    """

    base: str
    target: str
    fits: bool
    patches: tuple[PatchVerdict, ...]
    left_out: tuple[str, ...]
    mails: dict[str, bytes]


class Ported(msgspec.Struct, frozen=True, kw_only=True):
    """One patch carried over; ``sections`` are right when it fits."""

    verdict: Verdict
    evidence: tuple[str, ...]
    sections: tuple[Section, ...]


def port(base: Base, target: Target, notify: Callable[[str], None]) -> Report:
    """Judge what each patch of a base's series would do on a target.

    Args:
        base: the base.
        target: the target; it is only read.
        notify: told before something slow begins.

    Raises:
        Usage: the base has no series.
        Precondition: the base's files cannot be had, or the target's not read.
        BadInput: the series and its lock do not agree.
    """
    return _Porting(base, target, notify).report()


class _Porting:
    def __init__(
        self, base: Base, target: Target, notify: Callable[[str], None]
    ) -> None:
        self._series = all_series.load(base)
        self._target = target
        self._locked = lock.agreed(base, self._series)
        released = trees.released(base, notify).root
        self._steps = base_steps(self._series, released, target)
        wanted = guards.wanted(self._locked)
        self._sites = effects.sites(effects.sources(target.runtime), wanted)
        self._also: dict[Effect, Counter[str]] = {e: Counter() for e in wanted}
        paths = {s.section.path for steps in self._steps.values() for s in steps}
        self._left_out = sorted(path for path in paths if not target.place(path))
        self._now = {
            path: target_file(target, path) for path in paths.difference(self._left_out)
        }

    def report(self) -> Report:
        found = [(patch, self._patch(patch)) for patch in self._series.patches]
        fits = all(ported.verdict in _GOOD for _, ported in found)
        return Report(
            base=self._series.base,
            target=str(self._target.root),
            fits=fits,
            patches=tuple(
                PatchVerdict(
                    patch=patch.name,
                    kind=patch.kind,
                    verdict=str(ported.verdict),
                    evidence=ported.evidence,
                )
                for patch, ported in found
            ),
            left_out=tuple(self._left_out),
            mails=_mails(found) if fits else {},
        )

    def _patch(self, patch: Patch) -> Ported:
        steps = [s for s in self._steps[patch.name] if s.section.path in self._now]
        fits = {s.section.path: self._merge(s) for s in steps}
        made = self._made(patch.mail, steps, fits)
        for step in steps:
            path = step.section.path
            if path in made:
                versions = self._versions(step)
                content = fits[path].content or b""
                fits[path] = sections.compare(
                    step.section, versions, made[path], content
                )
        verdict, evidence = self._guarded(patch, tuple(fits.values()))
        if verdict in (*_GOOD, Verdict.UPSTREAMED):
            self._now |= {path: fit.content for path, fit in fits.items()}
        if verdict == Verdict.UPSTREAMED:
            self._learn(steps)
        kept = (made.get(s.section.path, s.section) for s in steps)
        return Ported(verdict=verdict, evidence=evidence, sections=tuple(kept))

    def _guarded(
        self, patch: Patch, fits: Sequence[Fit]
    ) -> tuple[Verdict, tuple[str, ...]]:
        """The verdict on a patch, and what it rests on."""
        verdict = _whole(fit.verdict for fit in fits)
        shown = [f for f in fits if f.verdict == verdict or verdict in _MIXED]
        evidence = tuple(text for fit in shown for text in fit.evidence)[:_SHOWN]
        surprises = guards.surprises(self._locked, self._sites, self._also)
        done = surprises.get(patch.name, ())[:_SHOWN]
        if verdict == Verdict.UPSTREAMED or not done:
            return verdict, evidence
        if verdict in (*_GOOD, Verdict.PARTLY_UPSTREAMED):
            return Verdict.CONFLICT, (_TWICE, *done)
        return verdict, evidence + done

    def _merge(self, step: Step) -> Fit:
        section, target = step.section, self._now[step.section.path]
        found = None if target is None else blob_id(target)
        path = section.path
        if section.kind == "add":
            if target is None:
                return Fit(verdict=Verdict.CLEAN, content=step.after)
            if found == section.new:
                return Fit(verdict=Verdict.UPSTREAMED, content=target)
            told = f"{path}: another file of that name is there"
            return Fit(verdict=Verdict.CONFLICT, evidence=(told,))
        if section.kind == "delete":
            if target is None:
                return Fit(verdict=Verdict.UPSTREAMED)
            if found == section.old:
                return Fit(verdict=Verdict.CLEAN)
            told = f"{path}: it is not the file that the patch deletes"
            return Fit(verdict=Verdict.CONFLICT, evidence=(told,))
        if target is None:
            return Fit(verdict=Verdict.GONE, evidence=(f"{path} is not there",))
        if found == section.new:
            return Fit(verdict=Verdict.UPSTREAMED, content=target)
        if found == section.old and step.known:
            return Fit(verdict=Verdict.CLEAN, content=step.after)
        return sections.merge(section, self._versions(step))

    def _versions(self, step: Step) -> Versions:
        return Versions(
            before=step.before,
            after=step.after,
            target=self._now[step.section.path] or b"",
        )

    def _made(
        self, mail: Mail, steps: Iterable[Step], fits: Mapping[str, Fit]
    ) -> dict[str, Section]:
        """git's difference between each target file and the merged one."""
        edited = {
            step.section.path: step.section
            for step in steps
            if step.section.kind == "edit"
            and fits[step.section.path].verdict == Verdict.MOVED
        }
        if not edited:
            return {}
        with workshop.bare() as shop:
            commit = shop.start({}, {}, "target")
            for contents in (self._now, {p: fits[p].content for p in edited}):
                for path, section in edited.items():
                    shop.put(path, section.mode, contents[path] or b"")
                commit = shop.commit(commit, mail)
            made = mails.parse(shop.format(commit), "ported")
        return {one.path: one for one in made.sections}

    def _learn(self, steps: Iterable[Step]) -> None:
        """What an upstreamed patch does is no surprise to those after it."""
        for step in steps:
            path, source = step.section.path, step.after or b""
            after = effects.sites([(path, source)], self._also)
            for effect, places in after.items():
                self._also[effect] |= Counter(site.key for site in places)


def _whole(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict on a patch from those on its parts."""
    found = set(verdicts)
    worst = max(found, default=Verdict.CLEAN)
    if worst == Verdict.UPSTREAMED and len(found) > 1:
        return Verdict.PARTLY_UPSTREAMED
    return worst


def _mails(found: Iterable[tuple[Patch, Ported]]) -> dict[str, bytes]:
    return {
        patch.name: mails.render(
            msgspec.structs.replace(patch.mail, sections=ported.sections)
        )
        for patch, ported in found
    }
