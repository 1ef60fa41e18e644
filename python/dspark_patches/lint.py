"""What a mail must say, beyond being well-formed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from . import mail as mails
from .diff import changed_lines
from .findings import Finding
from .series import Patch, Series, is_test

LONGEST_SUBJECT = 72
LARGEST_FIX = 60
STATUSES = ("Pending", "Submitted", "Backport", "Merged", "Denied", "Local")

_STATUS = re.compile(rf"({'|'.join(STATUSES)}) \[[^\[\]]*\w[^\[\]]*\]")
_NO_REPORT = re.compile(r"\bno (upstream )?report\b")
_SENTENCE = re.compile(r"\w[\w)`'\"]*[.!?](?=\s|$)")
_FEWEST_SENTENCES = 2
_LOOSE_ENDS = (b" ", b"\t", b"\r")

# What is wrong with a patch, what helps, and the text whose line shows it.
Wrong = tuple[str, str, str]


def lint(series: Series, patch: Patch, more: Iterable[Wrong] = ()) -> Iterator[Finding]:
    """What is wrong with a mail's message and with the lines that it adds.

    Args:
        series: the series.
        patch: one of its patches.
        more: what else was found wrong with it.
    """
    for what, mend, marker in (*_wrong(patch), *more):
        yield finding(series, patch, what, mend, line=line_of(patch, marker))
    for number, line in enumerate(mails.joined(patch.mail).split(b"\n"), 1):
        if line.startswith(b"+") and line.endswith(_LOOSE_ENDS):
            what = "an added line ends with white space"
            yield finding(series, patch, what, "take it off", line=number)
    sections = (s for s in patch.mail.sections if not is_test(s.path))
    changed = sum(sum(changed_lines(section)) for section in sections)
    if patch.kind == "fix" and changed > LARGEST_FIX:
        what = f"the fix adds and removes {changed} lines, more than {LARGEST_FIX}"
        mend = "split it, or move what is test into the kit"
        yield finding(series, patch, what, mend, level="warning")


def line_of(patch: Patch, text: str) -> int:
    """The number of the line that ``text``, a newline and more, begins with.

    The mail's last message line where the text does not occur.
    """
    data = mails.joined(patch.mail)
    before, found, _ = data.partition(text.encode())
    if not found:
        before = data.partition(b"\n\ndiff --git ")[0]
    return before.count(b"\n") + 1 + bool(found)


def finding(series: Series, patch: Patch, what: str, mend: str, **more) -> Finding:
    """A finding about a patch's mail."""
    return Finding(
        base=series.base,
        patch=patch.name,
        file=f"patches/{series.base}/{patch.name}.patch",
        what=what,
        mend=mend,
        **more,
    )


def _wrong(patch: Patch) -> Iterator[Wrong]:
    mail = patch.mail
    if mail.author != mails.AUTHOR:
        yield f"the author is {mail.author}", f"make it {mails.AUTHOR}", "\nFrom: "
    if len(mail.subject) > LONGEST_SUBJECT:
        what = f"the subject has {len(mail.subject)} characters"
        yield what, f"cut it to {LONGEST_SUBJECT}", "\nSubject: "
    if len(_SENTENCE.findall(mail.body)) < _FEWEST_SENTENCES:
        yield "the mail does not say why", "add symptom, cause and effect", "\n\n"
    statuses = mail.values("Upstream-Status")
    if len(statuses) != 1 or not _STATUS.fullmatch(statuses[0]):
        mend = f"add one 'Upstream-Status: <{'|'.join(STATUSES)}> [<why>]'"
        yield "there is no single, valid Upstream-Status", mend, "\nUpstream-Status: "
    if patch.kind == "test" and mail.values("Fixes"):
        yield "a patch of tests fixes nothing", "write 'Refs: <number>'", "\nFixes: "
    if patch.kind == "fix" and not _names_report(mail):
        mend = (
            "add 'Fixes: <issue>' or 'Refs: <number>', or say in Upstream-Status that "
            "there is no report"
        )
        yield "a fix names no report", mend, "\nUpstream-Status: "
    if not patch.tests:
        mend = "add 'Regression-Test: <path>::<class or test>'"
        yield "no regression test is named", mend, "\nRegression-Test: "
    if patch.kind == "test" and not patch.controls:
        mend = f"add controls/{patch.name}.diff, which brings the defect back"
        yield "nothing shows that the tests can fail", mend, "\nRegression-Test: "


def _names_report(mail: mails.Mail) -> bool:
    """Whether a trailer names what was reported, or says that nothing was."""
    if mail.values("Fixes") or mail.values("Refs"):
        return True
    return any(_NO_REPORT.search(value) for value in mail.values("Upstream-Status"))
