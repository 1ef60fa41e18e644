"""What a series does to a target, file by file, checked against the lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from ..errors import Conflict, Precondition
from ..model import lock, releases
from ..model.diff import ZEROS, backward, forward
from ..model.series import Series
from .locate import Kind
from .replace import Change
from .states import Chain
from .status import View

COPIES = "install SGLang with copies, such as uv's --link-mode=copy"

Verb = Literal["apply", "revert"]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What ``apply`` or ``revert`` did.

    Attributes:
        changed: whether anything changed.
        files: what was replaced, added or removed.
        left_out: files of the series that the target does not carry.
        commits: the commits that were made.
        head: where the branch stands now; empty unless commits are kept.
        branch: the branch; empty when HEAD is detached.
        aside: whether that is a new branch, and nothing else was touched.
    """

    verb: Verb
    target: str
    kind: Kind
    release: str
    changed: bool
    files: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()
    head: str = ""
    branch: str = ""
    aside: bool = False


class File(msgspec.Struct, frozen=True, kw_only=True):
    """One file that the series touches; None stands for no file.

    Attributes:
        now: what the target has.
        contents: what it goes through, from released to patched.
    """

    place: str
    now: bytes | None
    contents: tuple[bytes | None, ...]
    executable: bool

    def change(self, verb: Verb) -> Change:
        """What brings it to the verb's goal; may change nothing."""
        return Change(
            place=self.place,
            old=self.now,
            new=self.contents[-1 if verb == "apply" else 0],
            executable=self.executable,
        )


def fitting(view: View) -> Series:
    """The series for a target whose every file is in a known state.

    Raises:
        Precondition: the target is no known release, or has links in the way.
        Conflict: a file is in no known state.
        BadInput: the series and its lock do not agree.
    """
    root = view.target.root
    if not view.series:
        raise Precondition(
            f"{root} is no release that we know",
            cause=view.identity.how,
            next_step="see what fits with "
            f"`dspark-patches port {view.identity.near or 'RELEASE'} {root}`",
        )
    target, release = view.target, releases.find(view.identity.release)
    strange = view.chain.strange()
    for path, why in strange.items():
        more = f" (and {len(strange) - 1} more files)" if len(strange) > 1 else ""
        hint = f"`dspark-patches port {release.tag} {root}` says what would fit"
        if target.kind == "package":
            hint = f"if it was edited, reinstall sglang=={release.version}; else {hint}"
        raise Conflict(
            f"the series of {release.tag} does not fit {path}{more}",
            cause=why,
            next_step=hint,
        )
    for path, why in view.chain.blocked().items():
        raise Precondition(
            f"{root / target.place(path)} cannot be replaced",
            cause=f"{why}; what it leads to belongs to somebody else",
            next_step=COPIES,
        )
    lock.agreed(release, view.series)
    return view.series


def files(view: View, chain: Chain, read: Callable[[str], bytes]) -> tuple[File, ...]:
    """Every file that the series touches, and what it goes through.

    Args:
        view: the target, which is :func:`fitting`.
        chain: the states of its files.
        read: the content of a file, by its path in the repository.

    Raises:
        Conflict: a file is not what it was a moment ago.
    """
    found = []
    for path, sections in chain.sections.items():
        at = chain.places(path)[0]
        blob = sections[at - 1].new if at else sections[0].old
        now = content = None if chain.blob(path) == ZEROS else read(path)
        if blob == ZEROS:
            # Another release's series may have left a file there.
            content = None
        before, after = [content], [content]
        for section in reversed(sections[:at]):
            before.append(backward(before[-1], section))
        for section in sections[at:]:
            after.append(forward(after[-1], section))
        found.append(
            File(
                place=view.target.place(path),
                now=now,
                contents=(*reversed(before), *after[1:]),
                executable=sections[0].mode == "100755",
            )
        )
    return tuple(found)
