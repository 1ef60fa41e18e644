"""What a check found: data for people, programs and workflow annotations."""

from __future__ import annotations

from typing import Literal

import msgspec

from .errors import Malformed


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something to mend; a "warning" does not fail a check.

    Attributes:
        release: a tag; empty where it is not about one release.
        patch: a file's stem; empty where it is not about one patch.
        file: relative to the clone.
        line: 0 is the whole file.
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
