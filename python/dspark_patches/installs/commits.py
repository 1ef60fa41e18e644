"""``apply`` and ``revert`` on a git checkout: commits, built aside.

What HEAD has decides what is to be done. Then the work tree and the index
follow, of which only the files of the series count, and the ref moves last; so
that after an interruption the same is done again.
"""

from __future__ import annotations

from functools import partial

from ..errors import BadInput, Conflict, Precondition
from ..model.patch_file import AUTHOR, PatchFile
from ..model.series import Patch
from .confined import Confined
from .gitdir import FILES_ALONE, under_way
from .replace import replace
from .repository import Repository
from .states import Verb
from .status import Status


class Commits:
    """What a verb makes of a checkout that nobody else is changing.

    Args:
        repository: the checkout.
        status: what its HEAD has, all of it in known states.
        verb: what to do.

    Attributes:
        made: the new commits.
        head: where the branch is to stand.

    Raises:
        Failure: it cannot be done; nothing has changed.
    """

    def __init__(self, repository: Repository, status: Status, verb: Verb) -> None:
        self.repository = repository
        self.status = status
        self.verb = verb
        self.goal = {p: file.goal(verb) for p, file in status.files.items()}
        before = self._before() if verb == "revert" else ""
        self.made = () if before else self._made()
        self.head = before or (self.repository.head, *self.made)[-1]

    def move(self, root: Confined) -> tuple[str, ...]:
        """Let work tree, index and branch follow; the files that have changed."""
        if begun := under_way(self.repository.git_dir):
            raise Precondition(
                f"{root.root} has a {begun} under way",
                next_step=f"end it, or {FILES_ALONE}",
            )
        paths = list(self.goal)
        staged = self.status.track(self.repository.staged(paths))
        placed = self.status.track({path: root.state(path) for path in paths})
        for file in (*staged.values(), *placed.values()):
            if why := file.strange or file.state.why:
                raise Precondition(
                    f"{root.root} has another {file.path} than its HEAD",
                    cause=why,
                    next_step="commit that or put it aside, and run again",
                )
        message = f"dspark-patches: {self.verb} {self.status.release}"
        return replace(
            root,
            self.status.target,
            [f.change(self.verb, lambda f: root.read(f.path)) for f in placed.values()],
            partial(self.repository.follow, paths, self.head, message),
        )

    def _made(self) -> tuple[str, ...]:
        content = self.repository.content
        files = self.status.files.values()
        changes = [f.change(self.verb, lambda f: content(f.state.blob)) for f in files]
        changes = [change for change in changes if change.old != change.new]
        if not changes:
            return ()
        if self.verb == "apply":
            lacking = self.status.series[len(self._applied()) :]
            made = self._build(lacking, self.repository.head)
        else:
            made = (self.repository.build_one(changes, _reversal(self.status)),)
        if not self._reaches_goal(made[-1]):
            raise BadInput(
                f"the commits are not what {self.status.release}/lock.toml says",
                next_step="run `dspark-patches check`",
            )
        return made

    def _build(self, patches: tuple[Patch, ...], commit: str) -> tuple[str, ...]:
        return self.repository.build(self.status.release, patches, commit)

    def _applied(self) -> tuple[Patch, ...]:
        """The first patches, which are in; the others must all be missing."""
        states = [patch.state for patch in self.status.patches]
        count = next((n for n, s in enumerate(states) if s != "applied"), len(states))
        for patch, state in zip(self.status.series[count:], states[count:]):
            if state != "missing":
                raise Conflict(
                    f"{self.status.release}/{patch.name}.patch is {state}, though an "
                    "earlier patch is not in",
                    next_step="run `dspark-patches revert` first",
                )
        return self.status.series[:count]

    def _before(self) -> str:
        """The commit that the series was applied to, if that is all that came since.

        The same patches on the same commit make the same commits, so that what
        stands on the branch can be compared with what ``apply`` would make.
        """
        states = zip(self.status.series, self.status.patches)
        patches = tuple(patch for patch, told in states if told.state == "applied")
        commit = self.repository.commit(f"HEAD~{len(patches)}") if patches else ""
        if not commit or not self._reaches_goal(commit):
            return ""
        made = self._build(patches, commit)
        return commit if made[-1] == self.repository.head else ""

    def _reaches_goal(self, commit: str) -> bool:
        states = self.repository.states(self.goal, commit)
        return {path: state.blob for path, state in states.items()} == self.goal


def _reversal(status: Status) -> PatchFile:
    """The message of the one commit that takes a series out."""
    listed = "\n".join(f"- {patch.file.subject}" for patch in status.series)
    return PatchFile(
        subject=f"Take the dspark-patches of {status.release} out",
        date=status.series[-1].file.date,
        author=AUTHOR,
        body=f"This takes back, exactly:\n{listed}",
        trailers=(),
        sections=(),
    )
