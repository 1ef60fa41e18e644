"""What the other bases and the tags of a checkout have to say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from .. import bases
from ..errors import BadInput, Failure
from ..foreign import OFFLINE
from ..git import Git, GitError
from ..lines import read
from ..mail import AUTHOR
from ..series import is_test
from .outline import Outline
from .states import PatchState

_SECTION = re.compile(rb"\ndiff --git a/(\S+) b/")
_FAR = 256


def not_needed(base: str, patches: Iterable[Outline]) -> tuple[PatchState, ...]:
    """Fixes that an older base needs and this one, whose release has them, not."""
    own = {_slug(patch.name) for patch in patches}
    found: dict[str, PatchState] = {}
    for path in _older(base):
        slug = _slug(path.stem)
        if slug not in own and slug not in found and _is_fix(path):
            found[slug] = PatchState(
                name=slug,
                kind="fix",
                needed=False,
                state="not needed",
                notes=(f"{path.parent.name} needs it, {base} does not",),
            )
    return tuple(found.values())


def tag(root: Path) -> str:
    """The tag that a checkout stands on, our own commits aside; may be empty."""
    known = bases.load()
    try:
        shown = Git(root, OFFLINE).text(
            "log",
            f"-{_FAR}",
            "--first-parent",
            "--no-show-signature",
            "--decorate=full",
            "--format=%an <%ae>%x00%D",
            "HEAD",
        )
    except (GitError, Failure):
        return ""
    for line in shown.splitlines():
        author, _, names = line.partition("\0")
        for name in names.split(", "):
            found = name.removeprefix("tag: refs/tags/")
            if found in known:
                return found
        if author != AUTHOR:
            break
    return ""


def _older(base: str) -> Iterator[Path]:
    """The mails of the bases before this one, the newest base's first."""
    known = list(bases.load().values())
    tags = [one.tag for one in known]
    for older in reversed(known[: tags.index(base)]):
        yield from sorted(bases.series_dir(older).glob("[0-9]*.patch"))


def _is_fix(path: Path) -> bool:
    try:
        data = read(path, path.name)
    except BadInput:
        return False
    paths = (match.decode("utf-8", "replace") for match in _SECTION.findall(data))
    return not all(map(is_test, paths))


def _slug(name: str) -> str:
    return name.partition("-")[2]
