"""Reading results: what a file must hold so that all can be tabled and drawn."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from ..errors import BadInput
from . import records
from .figures import load_names
from .results import FORM, MOST_SEED, TREES, Results, Row

_MEND = "remove it, and make it again with `dspark-patches bench --readme`"

_Size = Annotated[int, msgspec.Meta(gt=0, le=records.MOST)]
# An exception, as the simulator writes one down: its name stands in a table.
_Exception = Annotated[str, msgspec.Meta(pattern=r"\A([A-Za-z_]\w{0,80}(:|\Z)|\Z)")]


class _Node(msgspec.Struct):
    full_size: _Size
    swa_size: _Size
    page_size: _Size
    # The notes of tables name them, where they are told.
    sliding_window: _Size = 1
    draft_tokens: _Size = 1


class _Task(msgspec.Struct):
    node: _Node
    seed: Annotated[int, msgspec.Meta(ge=0, le=MOST_SEED)]


class _Requests(_Task, kw_only=True):
    requests: _Size


# Records that are divided by, or of which the last is taken.
class _Growth(records.Growth, frozen=True):
    outcome: Literal["finished", "aborted", "retracted"]
    swa_peak: _Size
    swa_samples: Annotated[
        tuple[tuple[records.Count, records.Count], ...], msgspec.Meta(min_length=1)
    ]


class _Sample(records.Sample, frozen=True):
    decode_steps: _Size


class _Load(records.Load, frozen=True):
    samples: Annotated[tuple[_Sample, ...], msgspec.Meta(min_length=1)]


class _Summary(records.Summary, frozen=True):
    median: Annotated[float, msgspec.Meta(gt=0, le=records.MOST)]


class _Cost(records.Cost, frozen=True):
    nanoseconds: _Summary


class _Overload(records.Overload, frozen=True):
    died: _Exception


class _Figure(msgspec.Struct, frozen=True):
    """Of a figure: what its rows are called, and the forms of what they hold."""

    names: str
    record: type[msgspec.Struct]
    task: type[msgspec.Struct] = _Task


_CACHE, _REQUESTS = "[a-z]{1,20}", "[1-9][0-9]{0,8}"
_FIGURES = {
    "growth": _Figure(_CACHE, _Growth),
    "capacity": _Figure(f"{_CACHE} {_REQUESTS}", records.Together),
    "limit": _Figure(f"{_CACHE} (fits|fails)", records.Together, _Requests),
    "retraction": _Figure("|".join(map(re.escape, load_names())), _Load),
    "pd": _Figure("with|without", _Overload, _Requests),
    "cost": _Figure(_REQUESTS, _Cost),
    "check cost": _Figure(_REQUESTS, records.CheckCost),
}
# Those of which a release of its own can be a tree.
_COMPARED = ("cost", "check cost")
_TAG = re.compile(r"v[0-9]{1,6}(\.[0-9]{1,6}){1,4}")
# What the docs say of versions and of the host: nothing that Markdown could take for
# more than words.
_WORDS = re.compile(r"[A-Za-z0-9_.+ -]{1,80}")


def load(path: Path, next_step: str = _MEND) -> Results:
    """The results in a file.

    Args:
        path: the file.
        next_step: what helps where it cannot be read.

    Raises:
        BadInput: the file is missing or not of the expected form.
    """
    try:
        results = msgspec.json.decode(path.read_bytes(), type=Results)
    except (
        *(OSError, UnicodeDecodeError, msgspec.MsgspecError),
        # It is nested too deep.
        RecursionError,
    ) as error:
        message = f"{path} cannot be read as results of the bench"
        raise BadInput(message, cause=str(error), next_step=next_step) from error
    if results.form != FORM:
        message = f"{path} has the form {results.form}; this tool reads {FORM}"
        raise BadInput(message, next_step=next_step)
    fault = _odd(results)
    if fault:
        message = f"{path} holds what no bench writes"
        raise BadInput(message, cause=fault, next_step=next_step)
    for number, row in enumerate(results.rows, 1):
        fault = _fault(row, results)
        if fault:
            message = f"{path} holds a row that this tool cannot read"
            called = ", ".join(map(_short, row.key))
            cause = f"row {number}, {called}: {fault}"
            raise BadInput(message, cause=cause, next_step=next_step)
    return results


def _odd(results: Results) -> str:
    """What is wrong with all but the rows; empty where nothing is."""
    host = results.host
    for words in (results.tool, host.python, host.torch, host.platform):
        if not _WORDS.fullmatch(words):
            return f"{_short(words)!r} is no version, and no platform"
    for tag in results.releases:
        if not _TAG.fullmatch(tag):
            return f"{_short(tag)!r} is no release"
    return "" if results.rows else "there are no rows"


def _fault(row: Row, results: Results) -> str:
    """What is wrong with a row; empty where nothing is."""
    figure = _FIGURES.get(row.figure)
    if figure is None:
        return f"there is no figure {_short(row.figure)!r}"
    if not re.fullmatch(figure.names, row.name):
        return f"{row.figure} has no row {_short(row.name)!r}"
    if row.base not in results.releases:
        return f"{_short(row.base)!r} is none of the file's releases"
    also = _TAG.fullmatch(row.tree) if row.figure in _COMPARED else None
    if row.tree not in TREES and not also:
        return f"{_short(row.tree)!r} is no tree"
    return _malformed("record", row.record, figure.record) or _malformed(
        "task", row.task, figure.task
    )


def _malformed(what: str, value: dict[str, Any], form: type[msgspec.Struct]) -> str:
    try:
        msgspec.convert(value, form)
    except msgspec.ValidationError as error:
        return f"its {what}: {error}"
    return ""


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}..."
