"""Verdicts of ``port``, told in the three formats."""

from __future__ import annotations

import msgspec

from . import report
from .port.port import Report

_GOOD = ("clean", "moved", "upstreamed")
_STYLES = {"clean": "green", "moved": "green", "upstreamed": "green"}
_WIDTH = len("partly upstreamed")


def print_port(form: str, found: Report) -> bool:
    """Print verdicts, and say whether every one is good.

    Args:
        form: one of :data:`dspark_patches.report.FORMATS`.
        found: the verdicts.
    """
    good = all(patch.verdict in _GOOD for patch in found.patches)
    if form == "json":
        told = msgspec.to_builtins(found)
        del told["mails"]
        report.json({"ok": good, **told})
        return good
    report.line(f"the series of {found.base} on {found.target}")
    for patch in found.patches:
        also = " (test)" if patch.kind == "test" else ""
        style = _STYLES.get(patch.verdict, "red")
        report.line(f"  {patch.verdict:{_WIDTH}}  {patch.patch}{also}", style=style)
        for text in patch.evidence:
            report.line(f"  {'':{_WIDTH}}    {text}")
        if form == "github" and patch.verdict not in _GOOD:
            message = "\n".join([f"{patch.patch}: {patch.verdict}", *patch.evidence])
            report.annotation("error", message, title=f"port {found.base}")
    if found.left_out:
        report.line(f"left out, not carried there: {', '.join(found.left_out)}")
    if found.fits:
        report.line("next: --write DIR writes the ported mails")
    else:
        report.line(f"next: dspark-patches test {found.target}")
    return good
