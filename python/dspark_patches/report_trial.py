"""What the regression tests said of a target, told in the three formats."""

from __future__ import annotations

import msgspec

from . import report
from .trial import Held, Trial

_MEANING = {
    "passed": ("holds", "green"),
    "failed": ("does not hold", "red"),
    "error": ("breaks", "red"),
    "skipped": ("skipped", "yellow"),
}
_BAD = ("failed", "error")
_WIDTH = max(len(word) for word, _ in _MEANING.values())


def print_trial(form: str, trial: Trial) -> None:
    """Print what every test said, patch by patch."""
    if form == "json":
        report.json({"ok": trial.holds, **msgspec.to_builtins(trial)})
        return
    report.line(f"the tests of {trial.base} on {trial.target}, with {trial.python}")
    patches = sorted({held.patch for held in trial.tests})
    for patch in patches:
        report.line(f"{patch or 'named by no patch'}:")
        for held in trial.tests:
            if held.patch == patch:
                _print(held)
                if form == "github" and held.status in _BAD:
                    message = f"{held.test}: {held.reason}"
                    report.annotation("error", message, title=f"test {trial.base}")
    statuses = [held.status for held in trial.tests]
    counts = (f"{statuses.count(each)} {each}" for each in dict.fromkeys(statuses))
    told = ", ".join(counts) or "no tests"
    report.line(f"ok: {told}" if trial.holds else f"not all hold: {told}")
    if statuses and set(statuses) == {"error"}:
        report.line("next: name an interpreter that has SGLang's packages: --python")
    elif not trial.holds:
        report.line(f"next: dspark-patches status {trial.target}")


def _print(held: Held) -> None:
    word, style = _MEANING[held.status]
    file, _, name = held.test.partition("::")
    report.line(f"  {word:{_WIDTH}}  {name or file}", style=style)
    if held.status != "passed":
        reasons = dict.fromkeys(held.reason.split("; "))
        report.line(f"  {'':{_WIDTH}}    {'; '.join(reasons)}")
