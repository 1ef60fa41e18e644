"""What is on a target and what was done to it, told in three formats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from .. import report
from ..errors import Exit
from .apply import COPIES, Outcome
from .status import Status

_STYLES = {"missing": "yellow", "partly applied": "red", "unclear": "red"}
_WIDTH = len("partly applied")
_TOLD = "release how near patches left_out strange blocked fingerprint".split()


def print_status(form: str, status: Status, require: bool, same_as: str) -> Exit:
    """Print what is on a target, and say how to end."""
    ending, target = status.exit_code(require, same_as), status.target
    if form == "json":
        about = {"kind": target.kind, "version": target.version}
        about |= {name: getattr(status, name) for name in _TOLD}
        report.json({"ok": ending == Exit.OK, "target": str(target.root), **about})
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
        style = _STYLES.get(patch.state, "green") if patch.needed else None
        report.line(f"  {patch.state:{_WIDTH}}  {patch.name}{also}", style=style)
        for note in patch.notes:
            report.line(f"  {'':{_WIDTH}}    {note}")
    _print_left_out(target.kind, status.left_out)
    needed = sum(patch.needed for patch in status.patches)
    if not status.release:
        report.line("unclear: nothing can be said about its patches")
    elif status.lacking:
        report.line(f"{len(status.lacking)} of {needed} needed patches are not in")
    else:
        all_in = f"all {needed} needed patches are in"
        report.line(f"ok: {all_in if needed else f'{status.release} needs no fix'}")
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
    for told in (*(f"commit {commit}" for commit in outcome.commits), *outcome.files):
        report.line(f"  {told}")
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
        place = f"branch {outcome.branch} of {target} {made} {now}, at {outcome.head}"
        return f"{release}: {place}; the work tree is as it was"
    if not outcome.changed:
        return f"nothing to do: {target} is {now} already ({release})"
    branch = f"branch {outcome.branch}" if outcome.branch else "HEAD"
    where = f", {branch} stands at {outcome.head}" if outcome.head else ""
    files = report.counted(len(outcome.files), "file")
    return f"{release}: {target} is {now}; {files} changed{where}"


def next_step(status: Status) -> str:
    """The command that helps; empty when there is nothing to do."""
    target = status.target.root
    if not status.release or any(p.state == "unclear" for p in status.patches):
        return status.remedy
    if status.blocked and (status.lacking or status.mixed):
        return f"{COPIES}; files that are links are not replaced"
    if status.mixed:
        rest = f"`dspark-patches apply {target}` puts in the rest"
        return f"{rest}, `dspark-patches revert {target}` takes all out"
    return f"dspark-patches apply {target}" if status.lacking else ""


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
