"""What a patch must say, beyond being well-formed.

``patches/references.toml`` records the kind and the title of each issue and pull
request that trailers refer to, so that these can be checked offline.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from ..errors import Malformed
from ..files import read
from ..findings import Finding
from ..model import patch_file as patch_files
from ..model.diff import changed_lines
from ..model.series import Patch, Series, is_test

LONGEST_SUBJECT = 72
LARGEST_FIX = 60
REFERENCES = "references.toml"
STATUSES = ("Pending", "Submitted", "Backport", "Merged", "Denied", "Local")

_STATUS = re.compile(rf"({'|'.join(STATUSES)}) \[[^\[\]]*\w[^\[\]]*\]")
_NUMBER = re.compile(r"[\w.-]+/[\w.-]+#[1-9]\d*", re.ASCII)
_NO_REPORT = re.compile(r"\bno (upstream )?report\b")
_SENTENCE = re.compile(r"\w[\w)`'\"]*[.!?](?=\s|$)")
_FEWEST_SENTENCES = 2
_LOOSE_ENDS = (b" ", b"\t", b"\r")

# What is wrong with a patch, what helps, and the text whose line shows it.
Wrong = tuple[str, str, str]


class Reference(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An issue or a pull request.

    Attributes:
        source: whether the page itself was seen, or only reports that name it.
    """

    kind: Literal["issue", "pull request"]
    title: str
    source: Literal["seen", "reports"]


_Table = dict[Annotated[str, msgspec.Meta(pattern=f"^{_NUMBER.pattern}$")], Reference]


def lint(series: Series, patch: Patch, more: Iterable[Wrong] = ()) -> Iterator[Finding]:
    """What is wrong with a patch's message and with the lines that it adds, and more."""
    for what, hint, marker in (*_wrong(patch), *more):
        yield finding(series, patch, what, hint, line=line_of(patch, marker))
    for number, line in enumerate(patch_files.joined(patch.file).split(b"\n"), 1):
        if line.startswith(b"+") and line.endswith(_LOOSE_ENDS):
            what = "an added line ends with white space"
            yield finding(series, patch, what, "take it off", line=number)
    sections = (s for s in patch.file.sections if not is_test(s.path))
    changed = sum(sum(changed_lines(section)) for section in sections)
    if changed > LARGEST_FIX:
        what = f"the fix adds and removes {changed} lines, more than {LARGEST_FIX}"
        hint = "split it, or move what is test into the kit"
        yield finding(series, patch, what, hint, level="warning")


def line_of(patch: Patch, text: str) -> int:
    """The number of the line that ``text``, a newline and more, begins with.

    The patch's last message line where the text does not occur.
    """
    data = patch_files.joined(patch.file)
    before, found, _ = data.partition(text.encode())
    if not found:
        before = data.partition(b"\n\ndiff --git ")[0]
    return before.count(b"\n") + 1 + bool(found)


def finding(series: Series, patch: Patch, what: str, hint: str, **more) -> Finding:
    """A finding about a patch."""
    place = f"patches/{series.release}/{patch.name}.patch"
    about = {"release": series.release, "patch": patch.name, "file": place}
    return Finding(what=what, hint=hint, **about, **more)


def _wrong(patch: Patch) -> Iterator[Wrong]:
    file, fix = patch.file, patch.kind == "fix"
    if file.author != patch_files.AUTHOR:
        hint = f"make it {patch_files.AUTHOR}"
        yield f"the author is {file.author}", hint, "\nFrom: "
    if len(file.subject) > LONGEST_SUBJECT:
        what = f"the subject has {len(file.subject)} characters"
        yield what, f"cut it to {LONGEST_SUBJECT}", "\nSubject: "
    if len(_SENTENCE.findall(file.body)) < _FEWEST_SENTENCES:
        yield "the patch does not say why", "add symptom, cause and effect", "\n\n"
    statuses = file.values("Upstream-Status")
    if len(statuses) != 1 or not _STATUS.fullmatch(statuses[0]):
        hint = f"add one 'Upstream-Status: <{'|'.join(STATUSES)}> [<why>]'"
        yield "there is no single, valid Upstream-Status", hint, "\nUpstream-Status: "
    if not fix and file.values("Fixes"):
        yield "a patch of tests fixes nothing", "write 'Refs: <number>'", "\nFixes: "
    reported = file.values("Fixes") or file.values("Refs")
    if fix and not (reported or any(map(_NO_REPORT.search, statuses))):
        hint = "add 'Fixes: <issue>' or 'Refs: <number>', or say in Upstream-Status "
        hint += "that there is no report"
        yield "a fix names no report", hint, "\nUpstream-Status: "
    if not patch.tests:
        hint = "add 'Regression-Test: <path>::<class or test>'"
        yield "no regression test is named", hint, "\nRegression-Test: "
    if not fix and not patch.controls:
        hint = f"add controls/{patch.name}.diff, which brings the defect back"
        yield "nothing shows that the tests can fail", hint, "\nRegression-Test: "


def load_references(path: Path) -> dict[str, Reference]:
    """Every recorded reference, by ``OWNER/NAME#NUMBER``.

    Raises:
        Malformed: the table is missing or not of the expected form.
    """
    try:
        return msgspec.toml.decode(read(path, REFERENCES), type=_Table)
    except (UnicodeDecodeError, msgspec.MsgspecError) as error:
        what = "cannot be read as the table of references"
        raise Malformed(REFERENCES, 0, what, cause=str(error)) from error


def wrong_references(patch: Patch, known: Mapping[str, Reference]) -> Iterator[Wrong]:
    """What is wrong with the numbers in a patch's trailers."""
    for key, value in patch.file.trailers:
        marker = f"\n{key}: {value}\n"
        if key in ("Fixes", "Refs") and not _NUMBER.fullmatch(value):
            what = f"{key} does not name OWNER/NAME#NUMBER"
            yield what, "write it in that form", marker
            continue
        for number in _NUMBER.findall(value):
            if number not in known:
                hint = (
                    f"look it up and record it in patches/{REFERENCES}, or correct it"
                )
                yield f"{number} is not recorded", hint, marker
            elif key == "Fixes" and known[number].kind != "issue":
                what = f"Fixes names {number}, which is a {known[number].kind}"
                yield what, f"write 'Refs: {number}'", marker
