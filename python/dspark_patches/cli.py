"""The command line: verbs, and one funnel for everything that can go wrong."""

from __future__ import annotations

import os
import platform
import re
import signal
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from types import FrameType

import click

from . import __version__, report
from .errors import Exit, Failure, is_disk_full

# The module of each verb's click command, and its name there unless that is
# `command`, by for whom the verb is.
_SECTIONS = {
    "Commands": {
        "status": "installs.verbs:status",
        "apply": "installs.verbs:apply",
        "revert": "installs.verbs:revert",
        "verify": "proof.verify_verb",
        "test": "proof.test_verb",
        "port": "port.port_verb",
        "exec": "proof.exec_verb",
    },
    "To maintain the series": {
        "check": "maintain.check",
        "edit": "maintain.edit",
        "export": "maintain.export",
        "carry": "maintain.carry",
        "lock": "maintain.lock",
        "readme": "maintain.readme",
    },
}
_VERBS = {name: place for verbs in _SECTIONS.values() for name, place in verbs.items()}


class _Verbs(click.Group):
    """The verbs; only the one that is asked for is imported, to start quickly."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in _VERBS:
            return None
        module, _, command = _VERBS[name].partition(":")
        return getattr(import_module(f".{module}", __package__), command or "command")

    def format_commands(
        self, context: click.Context, formatter: click.HelpFormatter
    ) -> None:
        for title, verbs in _SECTIONS.items():
            commands = ((name, self.get_command(context, name)) for name in verbs)
            with formatter.section(title):
                formatter.write_dl([(n, c.get_short_help_str(60)) for n, c in commands])


@click.group(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
)
@click.version_option(__version__, prog_name="dspark-patches")
@click.pass_context
def group(context: click.Context) -> None:
    """Safe DFLASH and DSPARK speculative decoding on released SGLang versions.

    \b
    Examples:
      dspark-patches status                which patches has the installed sglang?
      dspark-patches apply                 put them in
      dspark-patches verify                prove every patch, red then green
      dspark-patches verify v0.5.16        one release only
      dspark-patches verify --help         what a verb does, by example

    Exit codes: 0 ok, 1 findings, 2 usage, 3 precondition, 4 conflict, 70 a bug
    of ours, 130 interrupted.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    form = _wanted_format(arguments)
    # Treat SIGTERM and SIGHUP like Ctrl-C: processes ended, temporary trees removed.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _interrupt)
    try:
        status = group.main(
            arguments, prog_name="dspark-patches", standalone_mode=False
        )
        # Else what cannot be written is found out when nobody can tell any more.
        sys.stdout.flush()
        return int(status or Exit.OK)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        usage = getattr(error, "ctx", None)
        hint = f"run `{usage.command_path} --help`" if usage else ""
        report.failure(form, error.format_message(), "", hint)
        return Exit.USAGE
    except Failure as failure:
        report.failure(form, failure.message, failure.cause, failure.next_step)
        return failure.exit_code
    except (KeyboardInterrupt, click.Abort):
        report.failure(form, "interrupted", "", "")
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone; the interpreter would complain
        # once more when it flushes.
        _discard_output()
        return Exit.INTERRUPTED
    except Exception as error:
        if not (isinstance(error, OSError) and is_disk_full(error)):
            return _bug(form, arguments, error)
        hint = "free some space, or set TMPDIR to another folder"
        try:
            # It may be the disk that standard output is on.
            sys.stdout.flush()
            report.failure(form, "the disk is full", str(error), hint)
            sys.stdout.flush()
        except OSError:
            _discard_output()
            report.failure("text", "the disk is full", str(error), hint)
        return Exit.PRECONDITION


def entry_point() -> None:
    """What the console script calls."""
    # Where they are closed, nobody wants to read.
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")
    sys.exit(main())


def _discard_output() -> None:
    """Let what is still to be flushed at exit go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _wanted_format(arguments: Sequence[str]) -> str:
    """The --format asked for, also when the rest cannot be understood."""
    found = re.search(r"(?:^|\0)--format[=\0]([^\0]+)", "\0".join(arguments))
    return found[1] if found else "text"


def _bug(form: str, arguments: Sequence[str], error: Exception) -> int:
    about = (
        f"dspark-patches {__version__}",
        f"{platform.python_implementation()} {platform.python_version()}",
        platform.platform(),
        f"arguments: {list(arguments)}",
        "".join(traceback.format_exception(error)),
    )
    what = f"a bug of dspark-patches: {type(error).__name__}: {error}"
    report.failure(form, what, "", "file a report with this:\n" + "\n".join(about))
    return Exit.BUG
