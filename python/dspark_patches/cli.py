"""The command line: verbs, and one funnel for everything that can go wrong."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from types import FrameType

import click

from . import __version__, crash, report
from .errors import Exit, Failure, is_disk_full

_VERBS = (
    "status",
    "apply",
    "revert",
    "verify",
    "test",
    "port",
    "check",
    "edit",
    "export",
    "carry",
    "lock",
    "readme",
    "bench",
    "exec",
)


class _Verbs(click.Group):
    """The verbs; only the one that is asked for is imported, to start quickly."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in _VERBS:
            return None
        return import_module(f".commands.{name}", __package__).command


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
    # Whoever stops us politely wants the same as one who presses Ctrl-C:
    # processes ended, temporary trees removed.
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
        if isinstance(error, OSError) and is_disk_full(error):
            hint = "free some space, or set TMPDIR to another folder"
            _tell_full(form, str(error), hint)
            return Exit.PRECONDITION
        return _bug(form, arguments, error)


def entry_point() -> None:
    """What the console script calls."""
    # Where they are closed, nobody wants to read.
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")
    sys.exit(main())


def _tell_full(form: str, cause: str, hint: str) -> None:
    """Tell that a disk is full; it may be the one that standard output is on."""
    try:
        sys.stdout.flush()
        report.failure(form, "the disk is full", cause, hint)
        sys.stdout.flush()
    except OSError:
        _discard_output()
        report.failure("text", "the disk is full", cause, hint)


def _discard_output() -> None:
    """Let what is still to be flushed at exit go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _wanted_format(arguments: Sequence[str]) -> str:
    """The --format asked for, also when the rest cannot be understood."""
    for before, argument in zip(["", *arguments], arguments):
        name, _, value = argument.partition("=")
        if name == "--format" and value:
            return value
        if before == "--format":
            return argument
    return "text"


def _bug(form: str, arguments: Sequence[str], error: Exception) -> int:
    told = "".join(traceback.format_exception(error))
    log = crash.write(arguments, told)
    report.failure(
        form,
        f"a bug of dspark-patches: {type(error).__name__}: {error}",
        "",
        (
            f"file a report and paste {log}"
            if log
            else f"file a report with this:\n{told}"
        ),
    )
    return Exit.BUG
