"""Mutants written by hand, for what no rule makes.

A TOML file of ``[[mutant]]`` tables: ``path``, ``old`` and ``new`` text, the
``patch`` by its number, and the ``releases`` that it is for, all unless told.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from dspark_patches.errors import BadInput

from . import mutant
from .measure import Subject
from .mutant import Mutant


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    path: str
    old: str
    new: str
    patch: int
    releases: tuple[str, ...] = ()


class _File(msgspec.Struct, forbid_unknown_fields=True):
    mutant: tuple[_Entry, ...] = ()


def read(file: Path, subject: Subject, tree: Path) -> Iterator[Mutant]:
    """The mutants of a file that are for a subject, whose patched tree is given.

    Raises:
        BadInput: an old text does not stand there just once.
    """
    for entry in msgspec.toml.decode(file.read_bytes(), type=_File).mutant:
        if entry.releases and subject.name not in entry.releases:
            continue
        content, old = (tree / entry.path).read_bytes(), entry.old.encode()
        if content.count(old) != 1:
            what = f"{content.count(old)} times in {entry.path} of {subject.name}"
            raise BadInput(f"{file}: an old text stands {what}", cause=entry.old)
        names = [n for n in subject.tests if n.startswith(f"{entry.patch:04}-")]
        start = content.index(old)
        edit = (start, start + len(old), entry.new)
        facts = dict(patch=names[0], path=entry.path, rule=f"by hand, {file.name}")
        yield mutant.make(content, [edit], **facts)
