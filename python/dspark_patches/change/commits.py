"""``apply`` and ``revert`` on a git checkout: commits, built aside."""

from __future__ import annotations

import msgspec

from ..errors import BadInput, Conflict
from ..mail import AUTHOR, Mail
from ..series import Series
from ..target.locate import Target
from ..target.status import View
from . import journal as journals
from .files import opened, resume, to_changes
from .journal import Commits
from .plan import Goal, Outcome, edits, fitting, promised
from .repository import Repository
from .transaction import perform


def change(target: Target, verb: journals.Verb, named: str, branch: str) -> Outcome:
    """Put a series into a checkout as commits, or take it out.

    Args:
        target: a checkout; nobody else may be changing it.
        verb: what to do.
        named: the base to take it for; found out unless told.
        branch: a new branch to make; then the work tree, the index and the
            current branch stay as they are.

    Raises:
        Failure: it cannot be done; nothing has changed.
    """
    repository = Repository(target.root)
    with opened(target) as place:
        resumed = resume(place, verb, repository.follow)
        if resumed:
            repository = Repository(target.root)
        done = _Job(target, verb, named, repository).run(branch)
    return msgspec.structs.replace(
        done, changed=done.changed or bool(resumed), resumed=resumed
    )


class _Job:
    def __init__(
        self, target: Target, verb: journals.Verb, named: str, repository: Repository
    ) -> None:
        self.target = target
        self.verb = verb
        self.goal: Goal = "patched" if verb == "apply" else "released"
        self.repository = repository
        self.view = View(target, named, repository.looks)
        self.series, self.locked = fitting(self.view)
        looks = repository.looks(self.view.paths)
        self._blobs = {path: look.blob for path, look in looks.items()}
        repository.must_have(self._blobs.values())
        self.edits = edits(self.view, self.series, self._read, self.goal, self.locked)

    def run(self, branch: str) -> Outcome:
        changed = bool(self.edits)
        commits: tuple[str, ...] = ()
        head = self.repository.head
        if self.edits:
            if not branch:
                self.repository.must_be_clean(self.view.paths)
            commits, head = self._built()
            self._must_be_as_promised(head)
        if branch:
            changed = self.repository.create_branch(branch, head)
        elif self.edits:
            self._move(head)
        return Outcome(
            verb=self.verb,
            target=str(self.target.root),
            kind=self.target.kind,
            base=self.series.base,
            changed=changed,
            files=tuple(edit.path for edit in self.edits),
            commits=commits,
            head=head,
            branch=branch or self.repository.branch,
        )

    def _read(self, path: str) -> bytes:
        return self.repository.content(self._blobs[path])

    def _built(self) -> tuple[tuple[str, ...], str]:
        """The new commits, and where the branch is to stand."""
        if self.verb == "apply":
            rest = self.series.patches[self._leading() :]
            commits = self.repository.build(self.series.base, rest)
            return commits, commits[-1]
        before = self._before()
        if before:
            return (), before
        contents = {edit.path: edit.new for edit in self.edits}
        commit = self.repository.build_one(contents, _reversal(self.series))
        return (commit,), commit

    def _leading(self) -> int:
        """How many of the first patches are in; the others must all be missing."""
        states = [state.state for state in self.view.chain.states()]
        count = next((n for n, s in enumerate(states) if s != "applied"), len(states))
        for patch, state in zip(self.series.patches[count:], states[count:]):
            if state != "missing":
                raise Conflict(
                    f"{self.series.base}/{patch.name}.patch is {state}, though an "
                    "earlier patch is not in",
                    next_step="run `dspark-patches revert` first",
                )
        return count

    def _before(self) -> str:
        """The commit that the series was applied to, if that is all that came since.

        The same mails on the same commit make the same commits, so that what
        stands on the branch can be compared with what ``apply`` would make.
        """
        states = self.view.chain.states()
        patches = tuple(
            patch
            for patch, state in zip(self.series.patches, states)
            if state.state == "applied"
        )
        commit = self.repository.parent(len(patches))
        if not commit or not self._is_promised(commit):
            return ""
        commits = self.repository.build(self.series.base, patches, commit)
        return commit if commits[-1:] == (self.repository.head,) else ""

    def _is_promised(self, commit: str) -> bool:
        looks = self.repository.looks(self.view.paths, commit)
        return all(
            look.blob == promised(self.locked, path, self.goal)
            for path, look in looks.items()
        )

    def _must_be_as_promised(self, commit: str) -> None:
        if not self._is_promised(commit):
            raise BadInput(
                f"the commits are not what {self.series.base}/lock.toml says",
                next_step="run `dspark-patches check`",
            )

    def _move(self, head: str) -> None:
        with opened(self.target) as place:
            perform(
                place,
                to_changes(self.target, self.edits),
                verb=self.verb,
                base=self.series.base,
                commits=Commits(old=self.repository.head, new=head),
                follow=self.repository.follow,
            )


def _reversal(series: Series) -> Mail:
    """The message of the one commit that takes a series out."""
    listed = "\n".join(f"- {patch.mail.subject}" for patch in series.patches)
    return Mail(
        subject=f"Take the dspark-patches of {series.base} out",
        date=series.patches[-1].mail.date,
        author=AUTHOR,
        body=f"This takes back, exactly:\n{listed}",
        trailers=(),
        sections=(),
    )
