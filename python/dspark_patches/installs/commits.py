"""``apply`` and ``revert`` on a git checkout: commits, built aside.

What HEAD has decides what is to be done. Then the work tree and the index
follow, of which only the files of the series count, and the ref moves last; so
that after an interruption the same is done again.
"""

from __future__ import annotations

from functools import partial
from itertools import dropwhile

from ..errors import BadInput, Conflict, Precondition
from ..model.patch_file import AUTHOR, PatchFile
from ..model.series import Patch, Series
from .confined import Confined
from .replace import replace
from .repository import FILES_ALONE, Repository
from .states import Verb
from .status import Status


class Commits:
    """What a verb makes of a checkout that nobody else is changing.

    ``made`` are the new commits, ``head`` is where the branch is to stand. Where it
    cannot be done, a Failure says so and nothing has changed.
    """

    def __init__(
        self, repository: Repository, series: Series, status: Status, verb: Verb
    ) -> None:
        self.repository = repository
        self.series = series
        self.status = status  # of HEAD, all of it in known states
        self.verb = verb
        self.goal = {p: file.goal(verb) for p, file in status.files.items()}
        before = self._before() if verb == "revert" else ""
        self.made = () if before else tuple(self._made())
        self.head = before or (repository.head, *self.made)[-1]

    def move(self, root: Confined) -> tuple[str, ...]:
        """Let work tree, index and branch follow; the files that have changed."""
        for trace in self.repository.begun:
            what = f"{root.root} has a merge, rebase or the like under way"
            hint = f"end it, or {FILES_ALONE}"
            raise Precondition(what, cause=f"there is {trace}", next_step=hint)
        staged = self.status.track(self.repository.staged(self.goal))
        placed = self.status.track({path: root.state(path) for path in self.goal})
        for file in (*staged.values(), *placed.values()):
            if why := file.strange or file.state.why:
                what = f"{root.root} has another {file.path} than its HEAD"
                hint = "commit that or put it aside, and run again"
                raise Precondition(what, cause=why, next_step=hint)
        files = placed.values()
        changes = [f.change(self.verb, lambda f: root.read(f.path)) for f in files]
        message = f"dspark-patches: {self.verb} {self.status.release}"
        then = partial(self.repository.follow, self.goal, self.head, message)
        return replace(root, self.status.target, changes, then)

    def _made(self) -> list[str]:
        content = self.repository.content
        files = self.status.files.values()
        changes = [f.change(self.verb, lambda f: content(f.state.blob)) for f in files]
        changes = [change for change in changes if change.old != change.new]
        if not changes:
            return []
        head = self.repository.head
        if self.verb == "apply":
            made = self._build(self._lacking(), head)
        else:
            with self.repository.workshop(head) as shop:
                for change in changes:
                    mode = "100755" if change.executable else "100644"
                    shop.put(change.place, mode, change.new)
                made = [shop.commit(head, _reversal(self.series))]
        if not self._reaches_goal(made[-1]):
            what = f"the commits are not what {self.status.release}/lock.toml says"
            raise BadInput(what, next_step="run `dspark-patches check`")
        return made

    def _build(self, patches: list[Patch], commit: str) -> list[str]:
        made = []
        with self.repository.workshop(commit) as shop:
            for patch in patches:
                name = f"{self.series.release}/{patch.name}.patch"
                shop.apply(patch.file.sections, name)
                commit = shop.commit(commit, patch.file)
                made.append(commit)
        return made

    def _lacking(self) -> list[Patch]:
        """The last patches, which are all missing; those before are all in."""
        states = zip(self.series.patches, self.status.patches)
        lacking = list(dropwhile(lambda one: one[1].state == "applied", states))
        for patch, told in lacking:
            if told.state != "missing":
                name = f"{self.status.release}/{patch.name}.patch"
                what = f"{name} is {told.state}, though an earlier patch is not in"
                raise Conflict(what, next_step="run `dspark-patches revert` first")
        return [patch for patch, _ in lacking]

    def _before(self) -> str:
        """The commit that the series was applied to, if that is all that came since.

        The same patches on the same commit make the same commits, so that what
        stands on the branch can be compared with what ``apply`` would make.
        """
        states = zip(self.series.patches, self.status.patches)
        patches = [patch for patch, told in states if told.state == "applied"]
        commit = self.repository.commit(f"HEAD~{len(patches)}") if patches else ""
        if not commit or not self._reaches_goal(commit):
            return ""
        made = self._build(patches, commit)
        return commit if made[-1] == self.repository.head else ""

    def _reaches_goal(self, commit: str) -> bool:
        states = self.repository.states(self.goal, commit)
        return {path: state.blob for path, state in states.items()} == self.goal


def _reversal(series: Series) -> PatchFile:
    """The message of the one commit that takes a series out."""
    listed = "\n".join(f"- {patch.file.subject}" for patch in series.patches)
    return PatchFile(
        subject=f"Take the dspark-patches of {series.release} out",
        date=series.patches[-1].file.date,
        author=AUTHOR,
        body=f"This takes back, exactly:\n{listed}",
        trailers=(),
        sections=(),
    )
