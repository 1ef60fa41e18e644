"""What is on a target and what was done to it, told in three formats."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from .. import report
from ..errors import Exit
from .plan import COPIES, Outcome
from .status import Status

_STYLES = {
    "applied": "green",
    "missing": "yellow",
    "partly applied": "red",
    "unclear": "red",
}
_TROUBLE = ("partly applied", "unclear")
_WIDTH = len("partly applied")


def print_status(form: str, status: Status, require: bool, same_as: str = "") -> Exit:
    """Print what is on a target, and say how to end.

    Args:
        form: one of :data:`dspark_patches.report.FORMATS`.
        status: what is there.
        require: whether every needed patch has to be in.
        same_as: the fingerprint that the target has to have; any unless told.
    """
    ending = status.exit_code(require, same_as)
    if form == "json":
        report.json({"ok": ending == Exit.OK, **msgspec.to_builtins(status)})
        return ending
    if form == "github":
        _annotate(status, require)
    _print_head(status)
    for patch in status.patches:
        also = " (test)" if patch.kind == "test" else ""
        style = _STYLES.get(patch.state) if patch.needed else None
        report.line(f"  {patch.state:{_WIDTH}}  {patch.name}{also}", style=style)
        for note in patch.notes:
            report.line(f"  {'':{_WIDTH}}    {note}")
    if status.left_out:
        report.line(
            f"left out, not carried by a {status.kind}: {_few(status.left_out)}"
        )
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
    report.line(_done(outcome))
    for commit in outcome.commits:
        report.line(f"  commit {commit}")
    for path in outcome.files if outcome.changed else ():
        report.line(f"  {path}")
    if outcome.left_out:
        kind = outcome.kind
        report.line(f"left out, not carried by a {kind}: {_few(outcome.left_out)}")
    if outcome.aside:
        report.line(f"next: git -C {outcome.target} switch {outcome.branch}")
    else:
        report.line(f"next: dspark-patches status {outcome.target}")


def next_step(status: Status) -> str:
    """The command that helps; empty when there is nothing to do."""
    target = status.target
    if not status.release:
        return f"dspark-patches port {status.near or 'RELEASE'} {target}"
    if any(patch.state == "unclear" for patch in status.patches):
        port = f"dspark-patches port {status.release} {target}"
        if status.kind == "package":
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


def _print_head(status: Status) -> None:
    version = status.version or "of no named version"
    report.line(f"sglang {version}, a {status.kind}: {status.target}")
    if status.release:
        report.line(f"release {status.release}, {status.how}")
        report.line(f"fingerprint {status.fingerprint}")
    else:
        report.line(f"no known release: {status.how}", style="red")


def _summary(status: Status) -> str:
    if not status.release:
        return "unclear: nothing can be said about its patches"
    needed = [patch for patch in status.patches if patch.needed]
    lacking = len(status.lacking)
    if not needed:
        return f"ok: {status.release} needs no fix"
    if lacking:
        return f"{lacking} of {len(needed)} needed patches are not in"
    return f"ok: all {len(needed)} needed patches are in"


def _annotate(status: Status, require: bool) -> None:
    for level, message in _messages(status, require):
        report.annotation(
            level, message, title=f"dspark-patches {status.release}".strip()
        )


def _messages(status: Status, require: bool) -> Iterator[tuple[str, str]]:
    step = next_step(status)
    if not status.release:
        yield "error", f"no known release: {status.how}\n{step}"
    for patch in status.patches:
        message = "\n".join([f"{patch.name}: {patch.state}", *patch.notes, step])
        if patch.state in _TROUBLE:
            yield "error", message
        elif patch.state == "missing" and patch.needed:
            yield "error" if require else "warning", message


def _done(outcome: Outcome) -> str:
    target, release = outcome.target, outcome.release
    done = "patched" if outcome.verb == "apply" else "as released"
    if outcome.aside:
        made = "is" if outcome.changed else "was already"
        return (
            f"{release}: branch {outcome.branch} of {target} {made} {done}, at "
            f"{outcome.head}; the work tree is as it was"
        )
    if not outcome.changed:
        return f"nothing to do: {target} is {done} already ({release})"
    where = ""
    if outcome.head:
        branch = f"branch {outcome.branch}" if outcome.branch else "HEAD"
        where = f", {branch} stands at {outcome.head}"
    return f"{release}: {target} is {done}; {len(outcome.files)} files changed{where}"


def _few(paths: tuple[str, ...]) -> str:
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{paths[0]}{more}"
