"""The installer's list of files, ``RECORD``, kept true.

Then an uninstall takes the files that a series adds with it, and a later
version starts clean. Rows are only touched where they state exactly what a
file of the series may hold, in the form that pip and uv write, so that taking
a series out brings every byte of the list back.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence


def updated(
    record: bytes, files: Mapping[str, Sequence[bytes | None]], *, patched: bool
) -> bytes:
    """The list for a series that is in, or out.

    Of ``files`` it has every content, from released to patched; None is no file. The
    list may state any of these.
    """
    ending = b"\r\n" if b"\r\n" in record else b"\n"
    if not record.endswith(ending):
        return record
    rows = record.split(ending)[:-1]
    wanted: dict[bytes, bytes | None] = {}
    added = []
    for path, contents in files.items():
        goal = contents[-1 if patched else 0]
        if goal is None:
            # A deleted file keeps its row, or its place in the list would be lost.
            goal = contents[0]
        new = None if goal is None else row(path, goal)
        known = {row(path, content) for content in contents if content is not None}
        wanted |= dict.fromkeys(known, new)
        if new and contents[0] is None and known.isdisjoint(rows):
            added.append(new)
    kept = (wanted.get(one, one) for one in rows)
    return b"".join(one + ending for one in (*kept, *added) if one is not None)


def row(path: str, content: bytes) -> bytes:
    """What the list says of a file."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
    return b"%s,sha256=%s,%d" % (path.encode(), digest.rstrip(b"="), len(content))
