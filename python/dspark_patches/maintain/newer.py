"""Whether the package registry has a release that has no place here yet."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Literal

from packaging.version import Version

from ..findings import Finding
from ..model import releases

_ASK = ("index", "versions", "sglang", "--disable-pip-version-check", "--no-input")
# A registry that does not answer must not hold up a check.
_BRIEFLY = ("--timeout=15", "--retries=1")
_TIMEOUT = 120
_NEWEST = re.compile(r"^sglang \((\d[\w.!+]*)\)", re.MULTILINE)


def newer() -> Iterator[Finding]:
    """A finding when pip knows a newer sglang, a warning when it cannot tell.

    pip leaves out what this Python and machine cannot install.
    """
    last = max(Version(one.version) for one in releases.load().values())
    said = _said()
    found = _NEWEST.search(said)
    if not found:
        lines = said.strip().splitlines() or ["pip said nothing"]
        yield _finding(
            f"pip does not say which sglang is the newest: {lines[-1]}",
            "check the network, and run again",
            "warning",
        )
    elif Version(found[1]) > last:
        what = f"sglang {found[1]} is out, the newest here is {last}"
        yield _finding(what, "adopt it, see docs/next-release.md", "error")


def _said() -> str:
    command = [sys.executable, "-m", "pip", *_ASK, *_BRIEFLY]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stderr if done.returncode else done.stdout


def _finding(what: str, hint: str, level: Literal["error", "warning"]) -> Finding:
    return Finding(file="patches/releases.toml", what=what, hint=hint, level=level)
