"""Findings, told in the three formats of :mod:`dspark_patches.report`."""

from __future__ import annotations

from collections.abc import Sequence

from . import report
from .findings import Finding

_DETAIL_LINES = 60
_STYLES = {"error": "red", "warning": "yellow"}


def print_findings(form: str, findings: Sequence[Finding], of_what: str) -> bool:
    """Print findings and say whether any is an error.

    Args:
        form: one of :data:`dspark_patches.report.FORMATS`.
        findings: what was found.
        of_what: what was looked at, for the last line.
    """
    errors = sum(finding.level == "error" for finding in findings)
    if form == "json":
        report.json({"ok": not errors, "findings": findings})
        return bool(errors)
    for finding in findings:
        print_finding(form, finding)
    warnings = len(findings) - errors
    counts = f"{errors} errors, {warnings} warnings in {of_what}"
    report.line(f"findings: {counts}" if findings else f"ok: {of_what}")
    return bool(errors)


def print_finding(form: str, finding: Finding) -> None:
    """Print one finding, as text or as an annotation."""
    if form == "github":
        place = {"file": finding.file, "line": str(finding.line or 1)}
        message = "\n".join(filter(None, [finding.what, finding.hint, finding.detail]))
        report.annotation(finding.level, message, title=_title(finding), **place)
        return
    place = f"{finding.file}:{finding.line}" if finding.line else finding.file
    style = _STYLES[finding.level]
    report.line(f"{place}: {finding.level}: {finding.what}", style=style)
    report.line(f"  next: {finding.hint}")
    lines = finding.detail.splitlines()
    if len(lines) > _DETAIL_LINES:
        skipped = len(lines) - _DETAIL_LINES
        lines = [f"({skipped} lines before these)", *lines[-_DETAIL_LINES:]]
    for text in lines:
        report.line(f"    {text}")


def _title(finding: Finding) -> str:
    return " ".join(filter(None, ["dspark-patches", finding.release, finding.patch]))
