"""``port``: a verdict per patch on a tree that is no known release."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache

import msgspec

from ..errors import Precondition
from ..installs.locate import Target
from ..model.diff import Section, blob_id
from ..model.nearest import by_nearness
from ..model.series import Patch, is_test
from ..model.states import Content, Step
from ..trees import workshop
from . import section as sections
from .fork import Fork
from .names import lacking
from .section import Fit, Verdict
from .source import Source
from .verdicts import GOOD, HELPED, Choice, PatchVerdict, Report

_SHOWN = 6
# Releases whose patches are tried: what a fork took in early stands in the next.
_NEIGHBOURS = 3


class Porter:
    """Judges patches on one fork.

    Args:
        target: the fork; it is only read.
        named: the releases to take patches from, the first one first; the nearest
            ones unless told.
        notify: told before something slow begins.

    Raises:
        Precondition: no release is near, or a release's files cannot be had.
        BadInput: a series and its lock do not agree.
    """

    def __init__(
        self, target: Target, named: Sequence[str], notify: Callable[[str], None]
    ) -> None:
        self.fork = Fork(target)
        self.how = "as you named it"
        if not named:
            found = by_nearness(self.fork.read)
            first = found[0]
            self.how = f"{first.found} of its {first.total} places to patch are there"
            if not first.near:
                raise Precondition(
                    f"no release is near {target.root}",
                    cause=f"of the nearest, {first.release}, {self.how}",
                    next_step=f"name one with --release, as {first.release}",
                )
            named = [one.release for one in found if one.near][:_NEIGHBOURS]
        self._named = tuple(named)
        self._source = cache(lambda tag: Source(tag, self.fork, notify))
        self._now: dict[str, Content] = {}

    def judge(self, choice: Choice = Choice()) -> Report:
        """Judge each chosen patch on what the ones before it leave."""
        self._now = {}
        first = self._source(self._named[0])
        verdicts: list[PatchVerdict] = []
        tests: dict[str, Content] = {}
        for patch in first.series.patches:
            if not choice.has(patch.number):
                continue
            one = self._best(patch.number, choice.taken.get(patch.number))
            if one.verdict is Verdict.CONFLICT:
                one = self._needing(one, verdicts)
            verdicts.append(one)
            if one.verdict in HELPED:
                tests |= self._tests(one)
        sections = [s for one in verdicts for s in one.patch.file.sections]
        left_out = {s.path for s in sections if not self.fork.carries(s.path)}
        return Report(
            release=first.series.release,
            how=self.how,
            target=str(self.fork.target.root),
            patches=tuple(verdicts),
            left_out=tuple(sorted(left_out)),
            uncommitted=tuple(sorted(self.fork.uncommitted)),
            merged=dict(self._now),
            tests={path: tests[path] for path in left_out & tests.keys()},
        )

    def fix_of(self, number: int, but: str) -> str:
        """A release whose patch of that number is a fix that fits, or nothing."""
        before = dict(self._now)
        try:
            for tag in self._named:
                found = self._of(tag, number) if tag != but else None
                if found and found.patch.kind == "fix" and found.verdict in GOOD:
                    return tag
        finally:
            self._now = before
        return ""

    def _best(self, number: int, taken: str | None) -> PatchVerdict:
        """The first release's patch that fits, else what the nearest one's would do."""
        verdicts = []
        for tag in [taken] if taken else self._named:
            if one := self._of(tag, number):
                if one.verdict in HELPED:
                    return one
                verdicts.append(one)
        return verdicts[0]

    def _of(self, tag: str, number: int) -> PatchVerdict | None:
        source = self._source(tag)
        for patch in source.series.patches:
            if patch.number == number:
                return self._judge(source, patch)
        return None

    def _judge(self, source: Source, patch: Patch) -> PatchVerdict:
        """The verdict on a patch; what is known of the fork follows where it fits."""
        release = source.series.release
        if patch.name in source.inside:
            verdict = Verdict.UPSTREAMED
            return PatchVerdict(patch=patch, release=release, verdict=verdict)
        steps = [s for s in source.here(patch) if not self._added(s)]
        places = {s.section.path: source.place(s) for s in steps}
        before = {place: self._content(place) for place in places.values()}
        fits = {
            s.section.path: sections.fit(s, before[places[s.section.path]])
            for s in steps
        }
        after = {places[path]: fit.content for path, fit in fits.items()}
        made = _made(steps, places, fits, before, after)
        for step in steps:
            path = step.section.path
            if path in made:
                was, content = before[places[path]] or b"", fits[path].content or b""
                fits[path] = sections.compare(step, was, made[path], content)
        verdict, evidence = _worst(fits)
        parts = tuple(made.get(s.section.path, s.section) for s in steps)
        if verdict in GOOD:
            now = self._now | before, self._now | after
            code = [one for one in parts if not is_test(one.path)]
            missing = lacking(code, *now, self.fork, source)
            if missing := tuple(missing):
                verdict, evidence = Verdict.LACKS_NAMES, missing
        if verdict in GOOD:
            self._now |= after
        return PatchVerdict(
            patch=patch,
            release=release,
            verdict=verdict,
            evidence=evidence[:_SHOWN],
            sections=parts,
        )

    def _needing(
        self, one: PatchVerdict, before: Iterable[PatchVerdict]
    ) -> PatchVerdict:
        """A verdict that names the patches left out that the patch builds on."""
        source = self._source(one.release)
        there = {o.patch.number for o in before if o.verdict in HELPED}
        needs = []
        for other in source.series.patches:
            if other.number >= one.patch.number or other.number in there:
                continue
            parts = {s.section.path: s for s in source.steps[other.name]}
            for step in source.steps[one.patch.name]:
                part = parts.get(step.section.path)
                both = (step.before, step.after)
                if part and any(sections.undone(part, c) is False for c in both):
                    needs.append(f"it builds on {other.name}, which is left out")
                    break
        return msgspec.structs.replace(one, evidence=(*one.evidence, *needs))

    def _tests(self, one: PatchVerdict) -> dict[str, Content]:
        """The tests and the kit that a patch adds, as its release has them."""
        steps = self._source(one.release).steps[one.patch.name]
        return {s.section.path: s.after for s in steps if is_test(s.section.path)}

    def _added(self, step: Step) -> bool:
        """Whether an earlier patch, of another release, added the same test."""
        return step.section.kind == "add" and step.section.path in self._now

    def _content(self, place: str) -> Content:
        return self._now[place] if place in self._now else self.fork.read(place)


def _worst(fits: Mapping[str, Fit]) -> tuple[Verdict, tuple[str, ...]]:
    """The verdict that decides, and what it rests on."""
    found = {fit.verdict for fit in fits.values()}
    verdict = max(found, default=Verdict.CLEAN)
    if verdict == Verdict.UPSTREAMED and len(found) > 1:
        verdict = Verdict.PARTLY_UPSTREAMED
    mixed = verdict in (Verdict.MOVED, Verdict.PARTLY_UPSTREAMED)
    shown = [fit for fit in fits.values() if mixed or fit.verdict == verdict]
    return verdict, tuple(text for fit in shown for text in fit.evidence)


def _made(
    steps: Iterable[Step],
    places: Mapping[str, str],
    fits: Mapping[str, Fit],
    before: Mapping[str, Content],
    after: Mapping[str, Content],
) -> dict[str, Section]:
    """git's difference that each edit makes to the fork, by the release's path."""
    edits = {
        places[s.section.path]: s.section
        for s in steps
        if s.section.kind == "edit" and fits[s.section.path].verdict in GOOD
    }
    changed = {
        place: section.mode
        for place, section in edits.items()
        if blob_id(before[place] or b"") != section.old or place != section.path
    }
    found = workshop.difference({p: before[p] for p in changed}, after, changed)
    return {edits[one.path].path: one for one in found}
