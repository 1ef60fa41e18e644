"""The text of a patch's pull request, in the form of upstream's template."""

from __future__ import annotations

from ..model.diff import changed_lines
from ..model.series import Patch, is_test

# Trailers that speak of our series and mean nothing to upstream.
_DOWNSTREAM = ("Upstream-Status", "Regression-Test")
_VERBS = {"add": "add", "edit": "change", "delete": "delete"}
_GUIDE = "https://docs.sglang.io/developer_guide/contribution_guide.html"
_TEXT = f"""\
# {{title}}

## Motivation

{{why}}

## Modifications

{{files}}

## Accuracy Tests

No accuracy benchmark was run. The unit tests run on a CPU{{also}}:

```
{{tests}}
```

## Speed Tests and Profiling

No speed benchmark was run.

## Checklist

- [ ] Format your code according to the [Format code with pre-commit]({_GUIDE}#format-code-with-pre-commit).
- [{{tested}}] Add unit tests according to the [Run and add unit tests]({_GUIDE}#run-and-add-unit-tests).
- [ ] Update documentation according to [Write documentations]({_GUIDE}#write-documentations).
- [ ] Provide accuracy and speed benchmark results according to [Test the accuracy]({_GUIDE}#test-the-accuracy) and [Benchmark the speed]({_GUIDE}#benchmark-the-speed).
- [ ] Follow the SGLang code style [guidance]({_GUIDE}#code-style-guidance).
"""


def render(patch: Patch) -> str:
    """The pull request's text; its first line is the title."""
    kept = [f"{k}: {v}" for k, v in patch.file.trailers if k not in _DOWNSTREAM]
    files = [
        "- {} `{}` (+{} -{})".format(_VERBS[s.kind], s.path, *changed_lines(s))
        for s in patch.file.sections
    ]
    tests = dict.fromkeys(test.partition("::")[0] for test in patch.tests)
    return _TEXT.format(
        title=patch.file.subject,
        why="\n\n".join(filter(None, [patch.file.body, "\n".join(kept)])),
        files="\n".join(files),
        also="; without this change they fail" if patch.kind == "fix" else "",
        tests="\n".join(f"python3 {file} -f" for file in tests),
        tested="x" if any(is_test(s.path) for s in patch.file.sections) else " ",
    )
