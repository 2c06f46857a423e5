"""The command line: what it offers, and how it ends."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

import typer

from zerowait.errors import ConfigError, DataError, MissingExtraError, ZerowaitError

WRONG_INPUT = 2
SOME_ABSTAINED = 3
INTERRUPTED = 130

app = typer.Typer(
    name="zerowait",
    help="Rewards for LLM reinforcement learning that GPUs never wait for.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


class InterruptedRunError(Exception):
    """A command was interrupted; the message says how to go on."""


def run(args: list[str] | None = None) -> NoReturn:
    """Run the command with `args` (those of the process when None) and exit."""
    _open_standard_streams()
    _add_commands()
    signal.signal(signal.SIGTERM, _terminate)
    _write_any_character()
    given = sys.argv[1:] if args is None else args
    try:
        arguments = [_at_home(arg) for arg in given]
        code: Any = app(arguments, prog_name="zerowait", standalone_mode=False)
        sys.stdout.flush()
    except (ConfigError, DataError, MissingExtraError) as error:
        _end(str(error), WRONG_INPUT)
    except ZerowaitError as error:
        _end(str(error), 1)
    except InterruptedRunError as error:
        _end(f"interrupted; {error}", INTERRUPTED)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except OSError as error:
        _end_without_output(error)
    except Exception as error:
        _end_with_usage(error)
        raise
    if code == INTERRUPTED:  # typer's own answer to an interrupt
        _end("interrupted", code)
    sys.exit(code if isinstance(code, int) else 0)


def _open_standard_streams() -> None:
    """A daemon may be started without them; the next files to be opened would take their place."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r"))


def _terminate(_signal: int, _frame: object) -> NoReturn:
    """Ends like an interrupt, so that whatever a command started is ended with it."""
    raise KeyboardInterrupt


def _write_any_character() -> None:
    """A terminal that knows ASCII only gets the others as escapes, not as a traceback."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _at_home(arg: str) -> str:
    """The argument with the home folder in it: shells leave the ~ of ``--out=~/x`` alone.

    >>> _at_home("--out=~/x") == f"--out={Path.home()}/x"
    True
    """
    option, equals, value = arg.partition("=")
    if option.startswith("--") and equals and value.startswith("~/"):
        return f"{option}={Path.home()}{value[1:]}"
    return arg


def _end(problem: str, code: int) -> NoReturn:
    print(f"zerowait: {problem}", file=sys.stderr)
    sys.exit(code)


def _end_without_output(error: OSError) -> NoReturn:
    """Ends when the system refused a file, or standard output itself."""
    try:
        sys.stdout.flush()
    except OSError:
        # Python flushes once more at its end, and would complain in its own words
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            sys.exit(1)  # the reader has seen enough, as in `zerowait ... | head`
    where = f"{error.filename}: " if error.filename is not None else ""
    _end(f"{where}{error.strerror or error}", WRONG_INPUT)


def _end_with_usage(error: Exception) -> None:
    """Ends when `error` is one of click's own, such as a wrong option, and says it in one line."""
    # typer brings a click of its own, in a place that depends on its version
    show, message = getattr(error, "show", None), getattr(error, "format_message", None)
    if show is None or message is None:
        return
    if type(error).__name__ == "NoArgsIsHelpError":
        show()  # nothing was asked for: the help
        sys.exit(WRONG_INPUT)
    command = getattr(getattr(error, "ctx", None), "command_path", "zerowait")
    said = " ".join(message().split()).removesuffix(".")
    _end(f"{said}; {command} --help says what there is", WRONG_INPUT)


def _add_commands() -> None:
    from zerowait.cli import (  # noqa: F401
        cache,
        data,
        doctor,
        doctor_judge,
        judge,
        report,
        retriever,
        score,
        serve,
        train,
        version,
    )
