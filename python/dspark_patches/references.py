"""The issues and pull requests that trailers refer to.

``patches/references.toml`` records the kind and the title of each number once, so
that trailers can be checked offline.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from .lines import Malformed, read
from .lint import Wrong
from .series import Patch

NAME = "references.toml"

_NUMBER = re.compile(r"[\w.-]+/[\w.-]+#[1-9]\d*", re.ASCII)


class Reference(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An issue or a pull request.

    Attributes:
        source: whether the page itself was seen, or only reports that name it.
    """

    kind: Literal["issue", "pull request"]
    title: str
    source: Literal["seen", "reports"]


def load(path: Path) -> dict[str, Reference]:
    """Every recorded reference, by ``OWNER/NAME#NUMBER``.

    Raises:
        Malformed: the table is missing or not of the expected form.
    """
    try:
        data = read(path, NAME)
        known = msgspec.toml.decode(data, type=dict[str, Reference])
    except (UnicodeDecodeError, msgspec.MsgspecError) as error:
        what = "cannot be read as the table of references"
        raise Malformed(NAME, 0, what, cause=str(error)) from error
    for number in known:
        if not _NUMBER.fullmatch(number):
            raise Malformed(NAME, 0, f"{number!r} is not OWNER/NAME#NUMBER")
    return known


def wrong(patch: Patch, known: Mapping[str, Reference]) -> Iterator[Wrong]:
    """What is wrong with the numbers in a patch's trailers."""
    for key, value in patch.mail.trailers:
        for what, mend in _wrong(key, value, known):
            yield what, mend, f"\n{key}: {value}\n"


def _wrong(
    key: str, value: str, known: Mapping[str, Reference]
) -> Iterator[tuple[str, str]]:
    if key in ("Fixes", "Refs") and not _NUMBER.fullmatch(value):
        yield f"{key} does not name OWNER/NAME#NUMBER", "write it in that form"
        return
    for number in _NUMBER.findall(value):
        if number not in known:
            mend = f"look it up and record it in patches/{NAME}, or correct it"
            yield f"{number} is not recorded", mend
        elif key == "Fixes" and known[number].kind != "issue":
            what = f"Fixes names {number}, which is a {known[number].kind}"
            yield what, f"write 'Refs: {number}'"
