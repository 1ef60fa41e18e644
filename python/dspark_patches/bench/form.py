"""Reading results: what a file must hold so that all can be tabled and drawn."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ..errors import BadInput
from . import records
from .figures import LOADS
from .results import FORM, TREES, Results, Row

_MEND = "make them again with `dspark-patches bench --readme`"

_Size = Annotated[int, msgspec.Meta(gt=0)]


class _Node(msgspec.Struct):
    full_size: _Size
    swa_size: _Size
    page_size: _Size


class _Task(msgspec.Struct):
    node: _Node
    seed: int


class _Requests(_Task, kw_only=True):
    requests: _Size


# Records that are divided by, or of which the last is taken.
class _Growth(records.Growth, frozen=True):
    swa_samples: Annotated[tuple[tuple[int, int], ...], msgspec.Meta(min_length=1)]


class _Sample(records.Sample, frozen=True):
    decode_steps: _Size


class _Load(records.Load, frozen=True):
    samples: Annotated[tuple[_Sample, ...], msgspec.Meta(min_length=1)]


class _Summary(records.Summary, frozen=True):
    median: Annotated[float, msgspec.Meta(gt=0)]


class _Cost(records.Cost, frozen=True):
    nanoseconds: _Summary


class _Figure(msgspec.Struct, frozen=True):
    """Of a figure: what its rows are called, and the forms of what they hold."""

    names: str
    record: type[msgspec.Struct]
    task: type[msgspec.Struct] = _Task


_FIGURES = {
    "growth": _Figure("[a-z]+", _Growth),
    "capacity": _Figure("[a-z]+ [1-9][0-9]*", records.Together),
    "limit": _Figure("[a-z]+ (fits|fails)", records.Together, _Requests),
    "retraction": _Figure("|".join(map(re.escape, LOADS)), _Load),
    "pd": _Figure("with|without", records.Overload, _Requests),
    "cost": _Figure("[1-9][0-9]*", _Cost),
    "check cost": _Figure("[1-9][0-9]*", records.CheckCost),
}
_TAG = re.compile(r"v[0-9]+(\.[0-9]+)+")


def load(path: Path) -> Results:
    """The results in a file.

    Raises:
        BadInput: the file is missing or not of the expected form.
    """
    try:
        results = msgspec.json.decode(path.read_bytes(), type=Results)
    except (OSError, UnicodeDecodeError, msgspec.MsgspecError) as error:
        raise BadInput(
            f"{path} cannot be read as results of the bench",
            cause=str(error),
            next_step=_MEND,
        ) from error
    if results.form != FORM:
        raise BadInput(
            f"{path} has the form {results.form}; this tool reads {FORM}",
            next_step=_MEND,
        )
    for number, row in enumerate(results.rows, 1):
        fault = _fault(row, results)
        if fault:
            raise BadInput(
                f"{path} holds a row that this tool cannot read",
                cause=f"row {number}, {', '.join(row.key)}: {fault}",
                next_step=_MEND,
            )
    return results


def _fault(row: Row, results: Results) -> str:
    """What is wrong with a row; empty where nothing is."""
    figure = _FIGURES.get(row.figure)
    if figure is None:
        return f"there is no figure {row.figure!r}"
    if not re.fullmatch(figure.names, row.name):
        return f"{row.figure} has no row {row.name!r}"
    if row.base not in results.releases or not _TAG.fullmatch(row.base):
        return f"{row.base!r} is none of the file's releases"
    if row.tree not in TREES and not _TAG.fullmatch(row.tree):
        return f"{row.tree!r} is no tree"
    return _malformed("record", row.record, figure.record) or _malformed(
        "task", row.task, figure.task
    )


def _malformed(what: str, value: dict[str, Any], form: type[msgspec.Struct]) -> str:
    try:
        msgspec.convert(value, form)
    except msgspec.ValidationError as error:
        return f"its {what}: {error}"
    return ""
