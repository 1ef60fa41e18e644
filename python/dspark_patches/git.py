"""The one place that starts git.

Git is run as a pure function of its arguments: no user or system
configuration, no hooks, no prompts, no locale, no inherited ``GIT_*``
variable, so that output is byte-equal on every machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from .errors import Precondition

MINIMUM_VERSION = (2, 34)

# A repository's own config cannot be switched off, so what changes output or
# runs programs is overridden key by key. An external diff cannot be: an empty
# command fails, so whoever asks for a diff passes --no-ext-diff.
_OVERRIDES = {
    "core.autocrlf": "false",
    "core.safecrlf": "false",
    "core.eol": "lf",
    "core.attributesFile": os.devnull,
    "core.excludesFile": os.devnull,
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.quotePath": "true",
    "core.abbrev": "40",
    "diff.noprefix": "false",
    "diff.mnemonicPrefix": "false",
    "diff.context": "3",
    "diff.interHunkContext": "0",
    "diff.algorithm": "myers",
    "diff.indentHeuristic": "true",
    "diff.renames": "false",
    "diff.orderFile": os.devnull,
    "diff.suppressBlankEmpty": "false",
    "format.signature": "",
    "commit.gpgSign": "false",
    "apply.whitespace": "nowarn",
    "apply.ignoreWhitespace": "no",
    "am.keepcr": "false",
    "am.threeWay": "false",
    "mailinfo.scissors": "false",
    "i18n.commitEncoding": "UTF-8",
    "i18n.logOutputEncoding": "UTF-8",
    "gc.auto": "0",
    "user.name": "dspark-patches",
    "user.email": "noreply@dspark-patches.invalid",
}


class GitError(Exception):
    """git ended with a non-zero status; callers tell of what patch and file."""

    def __init__(self, args: Sequence[str], status: int, stderr: str) -> None:
        super().__init__(f"git {' '.join(args)}: exit {status}: {stderr.strip()}")
        self.stderr = stderr


class Git:
    """git in a work tree or a git directory; ``env`` joins the scrubbed environment."""

    def __init__(self, directory: Path, env: Mapping[str, str] | None = None) -> None:
        self.directory = Path(directory)
        self._env = _environment() | dict(env or {})

    def run(self, *args: str, stdin: bytes = b"") -> bytes:
        """Run ``git *args`` and return its standard output.

        Raises:
            GitError: git ended with a non-zero status.
            Precondition: git is not installed.
        """
        done = self._start(args, stdin)
        if done.returncode:
            stderr = done.stderr.decode("utf-8", "replace")
            raise GitError(args, done.returncode, stderr)
        return done.stdout

    def text(self, *args: str, stdin: bytes = b"") -> str:
        """Like :meth:`run`, decoded and without the final newline."""
        output = self.run(*args, stdin=stdin)
        return output.decode("utf-8", "surrogateescape").rstrip("\n")

    def succeeds(self, *args: str, stdin: bytes = b"") -> bool:
        """Whether ``git *args`` ends with status 0."""
        return self._start(args, stdin).returncode == 0

    def _start(
        self, args: Sequence[str], stdin: bytes
    ) -> subprocess.CompletedProcess[bytes]:
        pairs = (f"{key}={value}" for key, value in _OVERRIDES.items())
        overrides = [word for pair in pairs for word in ("-c", pair)]
        try:
            return subprocess.run(
                ["git", *overrides, *args],
                cwd=self.directory,
                env=self._env,
                input=stdin,
                capture_output=True,
                check=False,
            )
        except FileNotFoundError as error:
            if shutil.which("git"):
                raise
            raise Precondition(
                "git was not found", next_step="install git 2.34 or newer"
            ) from error


def _environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    return kept | {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "LC_ALL": "C",
        "TZ": "UTC",
    }
