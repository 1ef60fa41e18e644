"""``apply`` and ``revert`` on a git checkout: commits, built aside.

What HEAD has decides what is to be done. Then the work tree and the index
follow, of which only the files of the series count, and the ref moves last; so
that after an interruption the same is done again.
"""

from __future__ import annotations

from ..errors import BadInput, Conflict, Precondition
from ..model.patch_file import AUTHOR, PatchFile
from ..model.series import Series
from . import plan
from .confined import Confined
from .gitdir import FILES_ALONE, under_way
from .locate import Target
from .plan import Outcome, Verb
from .replace import blob_of, replace
from .repository import Repository
from .status import View


def change(target: Target, verb: Verb, named: str, branch: str) -> Outcome:
    """Put a series into a checkout as commits, or take it out.

    Args:
        target: a checkout; nobody else may be changing it.
        verb: what to do.
        named: the release to take it for; found out unless told.
        branch: a new branch to make; then the work tree, the index and the
            current branch stay as they are.

    Raises:
        Failure: it cannot be done; nothing has changed.
    """
    return _Job(target, verb, named).run(branch)


class _Job:
    def __init__(self, target: Target, verb: Verb, named: str) -> None:
        self.target = target
        self.verb = verb
        self.repository = Repository(target.root)
        self.view = View(target, named, self.repository.looks)
        self.series = plan.fitting(self.view)
        blob, content = self.view.chain.blob, self.repository.content
        files = plan.files(self.view, self.view.chain, lambda p: content(blob(p)))
        self.changes = [file.change(verb) for file in files]
        self.goal = {change.place: change.new for change in self.changes}

    def run(self, branch: str) -> Outcome:
        commits, head = self._built()
        files: tuple[str, ...] = ()
        if branch:
            changed = self.repository.create_branch(branch, head)
        else:
            files = self._move(head)
            changed = bool(files) or head != self.repository.head
        return Outcome(
            verb=self.verb,
            target=str(self.target.root),
            kind=self.target.kind,
            release=self.series.release,
            changed=changed,
            files=files,
            commits=commits,
            head=head,
            branch=branch or self.repository.branch,
            aside=bool(branch),
        )

    def _built(self) -> tuple[tuple[str, ...], str]:
        """The new commits, and where the branch is to stand."""
        changes = [one for one in self.changes if one.old != one.new]
        if not changes:
            return (), self.repository.head
        if self.verb == "apply":
            rest = self.series.patches[self._leading() :]
            commits = self.repository.build(self.series.release, rest)
            self._must_reach_goal(commits[-1])
            return commits, commits[-1]
        if before := self._before():
            return (), before
        contents = {one.place: one.new for one in changes}
        commit = self.repository.build_one(contents, _reversal(self.series))
        self._must_reach_goal(commit)
        return (commit,), commit

    def _leading(self) -> int:
        """How many of the first patches are in; the others must all be missing."""
        states = [state.state for state in self.view.chain.states()]
        count = next((n for n, s in enumerate(states) if s != "applied"), len(states))
        for patch, state in zip(self.series.patches[count:], states[count:]):
            if state != "missing":
                raise Conflict(
                    f"{self.series.release}/{patch.name}.patch is {state}, though an "
                    "earlier patch is not in",
                    next_step="run `dspark-patches revert` first",
                )
        return count

    def _before(self) -> str:
        """The commit that the series was applied to, if that is all that came since.

        The same patches on the same commit make the same commits, so that what
        stands on the branch can be compared with what ``apply`` would make.
        """
        states = self.view.chain.states()
        patches = tuple(
            patch
            for patch, state in zip(self.series.patches, states)
            if state.state == "applied"
        )
        commit = self.repository.parent(len(patches))
        if not commit or not self._reaches_goal(commit):
            return ""
        commits = self.repository.build(self.series.release, patches, commit)
        return commit if commits[-1:] == (self.repository.head,) else ""

    def _reaches_goal(self, commit: str) -> bool:
        looks = self.repository.looks(self.goal, commit)
        return all(looks[p].blob == blob_of(new) for p, new in self.goal.items())

    def _must_reach_goal(self, commit: str) -> None:
        if not self._reaches_goal(commit):
            raise BadInput(
                f"the commits are not what {self.series.release}/lock.toml says",
                next_step="run `dspark-patches check`",
            )

    def _move(self, head: str) -> tuple[str, ...]:
        """Let work tree, index and branch follow; the files that have changed."""
        repository = self.repository
        if begun := under_way(repository.git_dir):
            raise Precondition(
                f"{self.target.root} has a {begun} under way",
                next_step=f"end it, or {FILES_ALONE}",
            )
        paths = list(self.goal)
        with Confined(self.target.root) as root:
            chain = self.view.chain_of({path: root.look(path) for path in paths})
            for one in (self.view.chain_of(repository.staged(paths)), chain):
                for path, why in (one.strange() | one.blocked()).items():
                    raise Precondition(
                        f"{self.target.root} has another {path} than its HEAD",
                        cause=why,
                        next_step="commit that or put it aside, and run again",
                    )
            changes = [
                file.change(self.verb)
                for file in plan.files(self.view, chain, root.read)
            ]
            message = f"dspark-patches: {self.verb} {self.series.release}"
            return replace(
                root,
                self.target,
                changes,
                lambda: repository.follow(paths, head, message),
            )


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
