"""The installer's list of files, ``RECORD``, kept true.

Then an uninstall takes the files that a series adds with it, and a later
version starts clean. Rows are only touched where they state exactly what was
there, in the form that pip and uv write, so that taking a series out brings
every byte of the list back.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping


def updated(
    record: bytes, changes: Mapping[str, tuple[bytes | None, bytes | None]]
) -> bytes:
    """The list after files have changed.

    Args:
        record: the list.
        changes: by path as it stands in the list, the content of each file
            before and after; None for no file.
    """
    ending = b"\r\n" if b"\r\n" in record else b"\n"
    if not record.endswith(ending):
        return record
    rows = record.split(ending)[:-1]
    present = set(rows)
    replaced: dict[bytes, bytes | None] = {}
    added = []
    for path, (old, new) in changes.items():
        if old is not None and new is not None:
            replaced[_row(path, old)] = _row(path, new)
        elif old is not None:
            replaced[_row(path, old)] = None
        elif new is not None and _row(path, new) not in present:
            added.append(_row(path, new))
    kept = (replaced.get(row, row) for row in rows)
    result = [row for row in kept if row is not None] + added
    return b"".join(row + ending for row in result)


def _row(path: str, content: bytes) -> bytes:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
    return b"%s,sha256=%s,%d" % (path.encode(), digest.rstrip(b"="), len(content))
