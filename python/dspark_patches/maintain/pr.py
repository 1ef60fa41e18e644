"""The text of a patch's pull request, in the form of upstream's template."""

from __future__ import annotations

from ..model.diff import changed_lines
from ..model.series import Patch, is_test

# Trailers that speak of our series and mean nothing to upstream.
_DOWNSTREAM = ("Upstream-Status", "Regression-Test")
_VERBS = {"add": "add", "edit": "change", "delete": "delete"}
_GUIDE = "https://docs.sglang.io/developer_guide/contribution_guide.html"
_CHECKLIST = f"""\
- [ ] Format your code according to the [Format code with pre-commit]({_GUIDE}#format-code-with-pre-commit).
- [{{tests}}] Add unit tests according to the [Run and add unit tests]({_GUIDE}#run-and-add-unit-tests).
- [ ] Update documentation according to [Write documentations]({_GUIDE}#write-documentations).
- [ ] Provide accuracy and speed benchmark results according to [Test the accuracy]({_GUIDE}#test-the-accuracy) and [Benchmark the speed]({_GUIDE}#benchmark-the-speed).
- [ ] Follow the SGLang code style [guidance]({_GUIDE}#code-style-guidance)."""


def render(patch: Patch) -> str:
    """The pull request's text; its first line is the title."""
    sections = [
        f"# {patch.file.subject}",
        f"## Motivation\n\n{_motivation(patch)}",
        f"## Modifications\n\n{_modifications(patch)}",
        f"## Accuracy Tests\n\n{_accuracy(patch)}",
        "## Speed Tests and Profiling\n\nNo speed benchmark was run.",
        f"## Checklist\n\n{_checklist(patch)}",
    ]
    return "\n\n".join(sections) + "\n"


def _motivation(patch: Patch) -> str:
    kept = [f"{k}: {v}" for k, v in patch.file.trailers if k not in _DOWNSTREAM]
    return "\n\n".join(filter(None, [patch.file.body, "\n".join(kept)]))


def _modifications(patch: Patch) -> str:
    lines = []
    for section in patch.file.sections:
        added, removed = changed_lines(section)
        verb = _VERBS[section.kind]
        lines.append(f"- {verb} `{section.path}` (+{added} -{removed})")
    return "\n".join(lines)


def _accuracy(patch: Patch) -> str:
    files = dict.fromkeys(test.partition("::")[0] for test in patch.tests)
    commands = "\n".join(f"python3 {file} -f" for file in files)
    also = "; without this change they fail" if patch.kind == "fix" else ""
    told = f"No accuracy benchmark was run. The unit tests run on a CPU{also}:"
    return f"{told}\n\n```\n{commands}\n```"


def _checklist(patch: Patch) -> str:
    tested = any(map(is_test, (section.path for section in patch.file.sections)))
    return _CHECKLIST.format(tests="x" if tested else " ")
