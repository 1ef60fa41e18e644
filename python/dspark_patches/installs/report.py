"""What is on a target and what was done to it, told in three formats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from .. import report
from ..errors import Exit
from .apply import COPIES, Outcome
from .status import Status

_STYLES = {
    "applied": "green",
    "missing": "yellow",
    "partly applied": "red",
    "unclear": "red",
}
_WIDTH = len("partly applied")


def print_status(form: str, status: Status, require: bool, same_as: str = "") -> Exit:
    """Print what is on a target, and say how to end.

    Args:
        form: one of :data:`dspark_patches.report.FORMATS`.
        status: what is there.
        require: whether every needed patch has to be in.
        same_as: the fingerprint that the target has to have; any unless told.
    """
    ending, target = status.exit_code(require, same_as), status.target
    if form == "json":
        names = "release how near patches left_out strange blocked fingerprint".split()
        found = {name: getattr(status, name) for name in names}
        place = {"target": str(target.root), "kind": target.kind}
        version = {"version": target.version}
        report.json({"ok": ending == Exit.OK, **place, **version, **found})
        return ending
    if form == "github":
        title = f"dspark-patches {status.release}".strip()
        for level, message in _annotations(status, require):
            report.annotation(level, message, title=title)
    version = target.version or "of no named version"
    report.line(f"sglang {version}, a {target.kind}: {target.root}")
    if status.release:
        report.line(f"release {status.release}, {status.how}")
        report.line(f"fingerprint {status.fingerprint}")
    else:
        report.line(f"no known release: {status.how}", style="red")
    for patch in status.patches:
        also = " (test)" if patch.kind == "test" else ""
        style = _STYLES.get(patch.state) if patch.needed else None
        report.line(f"  {patch.state:{_WIDTH}}  {patch.name}{also}", style=style)
        for note in patch.notes:
            report.line(f"  {'':{_WIDTH}}    {note}")
    _print_left_out(target.kind, status.left_out)
    report.line(_summary(status))
    if same_as not in ("", status.fingerprint):
        report.line(f"the fingerprint is not {same_as}", style="red")
    if step := next_step(status):
        report.line(f"next: {step}")
    return ending


def print_outcome(form: str, outcome: Outcome) -> None:
    """Print what was done to a target."""
    if form == "json":
        report.json({"ok": True, **msgspec.to_builtins(outcome)})
        return
    report.line(done(outcome))
    for commit in outcome.commits:
        report.line(f"  commit {commit}")
    for path in outcome.files:
        report.line(f"  {path}")
    _print_left_out(outcome.kind, outcome.left_out)
    step = f"dspark-patches status {outcome.target}"
    if outcome.aside:
        step = f"git -C {outcome.target} switch {outcome.branch}"
    report.line(f"next: {step}")


def done(outcome: Outcome) -> str:
    """What was done to a target, in one sentence."""
    target, release = outcome.target, outcome.release
    now = "patched" if outcome.verb == "apply" else "as released"
    if outcome.aside:
        made = "is" if outcome.changed else "was already"
        return (
            f"{release}: branch {outcome.branch} of {target} {made} {now}, at "
            f"{outcome.head}; the work tree is as it was"
        )
    if not outcome.changed:
        return f"nothing to do: {target} is {now} already ({release})"
    branch = f"branch {outcome.branch}" if outcome.branch else "HEAD"
    where = f", {branch} stands at {outcome.head}" if outcome.head else ""
    return f"{release}: {target} is {now}; {len(outcome.files)} files changed{where}"


def next_step(status: Status) -> str:
    """The command that helps; empty when there is nothing to do."""
    target = status.target.root
    port = f"dspark-patches port {status.release or status.near or 'RELEASE'} {target}"
    if not status.release:
        return port
    if any(patch.state == "unclear" for patch in status.patches):
        if status.target.kind == "package":
            version = status.release.removeprefix("v")
            return f"reinstall sglang=={version} if a file was edited; else {port}"
        return port
    if not status.lacking and not status.mixed:
        return ""
    if status.blocked:
        return f"{COPIES}; files that are links are not replaced"
    if status.mixed:
        return (
            f"`dspark-patches apply {target}` puts in the rest, "
            f"`dspark-patches revert {target}` takes all out"
        )
    return f"dspark-patches apply {target}"


def _summary(status: Status) -> str:
    if not status.release:
        return "unclear: nothing can be said about its patches"
    needed = sum(patch.needed for patch in status.patches)
    if not needed:
        return f"ok: {status.release} needs no fix"
    if status.lacking:
        return f"{len(status.lacking)} of {needed} needed patches are not in"
    return f"ok: all {needed} needed patches are in"


def _print_left_out(kind: str, paths: Sequence[str]) -> None:
    if paths:
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        report.line(f"left out, not carried by a {kind}: {paths[0]}{more}")


def _annotations(status: Status, require: bool) -> Iterator[tuple[str, str]]:
    step = next_step(status)
    if not status.release:
        yield "error", f"no known release: {status.how}\n{step}"
    for patch in status.patches:
        lacks = patch.state == "missing" and patch.needed
        if lacks or patch.state in ("partly applied", "unclear"):
            level = "warning" if lacks and not require else "error"
            yield level, "\n".join([f"{patch.name}: {patch.state}", *patch.notes, step])
