"""What a check found: data for people, programs and workflow annotations."""

from __future__ import annotations

from typing import Literal

import msgspec

from .errors import Malformed


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something to mend; a "warning" does not fail a check.

    Attributes:
        release: the release's tag; empty where it is not about one release.
        patch: the patch's file stem; empty where it is not about one patch.
        file: the file, relative to the clone.
        line: the line in it; 0 is the whole file.
        what: what is wrong.
        mend: what helps.
        detail: what was seen, such as what a test printed; may be long.
    """

    release: str = ""
    patch: str = ""
    file: str
    line: int = 0
    level: Literal["error", "warning"] = "error"
    what: str
    hint: str
    detail: str = ""


def of_failure(release: str, failure: Malformed, hint: str) -> Finding:
    """The finding that a file of the series is malformed."""
    stem, _, suffix = failure.file.rpartition("/")[2].rpartition(".")
    return Finding(
        release=release,
        patch=stem if suffix == "patch" else "",
        file=f"patches/{failure.file}",
        line=failure.line,
        what=f"{failure.what} ({failure.cause})" if failure.cause else failure.what,
        hint=hint,
    )
