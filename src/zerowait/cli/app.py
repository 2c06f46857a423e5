"""The command line: its application, the exit codes, and the one line that each error becomes."""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import typer

import zerowait
from zerowait.cli.json_output import JsonOption, print_json
from zerowait.errors import ConfigError, DataError, MissingExtraError, ZerowaitError

# The module of a command has its name; what adds to it begins with that name.
_MODULES: Final = (
    "cache",
    "dashboard",
    "data",
    "diff",
    "doctor",
    "doctor_data",
    "doctor_judge",
    "export",
    "judge",
    "replay",
    "report",
    "retriever",
    "score",
    "serve",
    "show",
    "timeline",
    "train",
)
WRONG_INPUT = 2
SOME_ABSTAINED = 3
INTERRUPTED = 130

app = typer.Typer(
    name="zerowait",
    help="Rewards for LLM reinforcement learning that GPUs never wait for.",
    epilog="To begin: zerowait doctor config reward.yaml, then zerowait score rows.jsonl -c "
    "reward.yaml; zerowait judge --fake stands in for a judge.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(version: bool) -> None:
    if version:
        print(f"zerowait {zerowait.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Options of the command itself; each command adds its own."""


@app.command("version")
def _show_version(*, as_json: JsonOption = False) -> None:
    """Print the version."""
    if as_json:
        print_json({"version": zerowait.__version__})
    else:
        print(zerowait.__version__)


class InterruptedRunError(Exception):
    """A command was interrupted; the message says how to resume it."""


def run(args: list[str] | None = None) -> NoReturn:
    """Run the command line and exit the process with its exit code.

    Args:
        args: the arguments; None takes those of the process.
    """
    _open_standard_streams()
    given = sys.argv[1:] if args is None else args
    add_commands(next(iter(given), ""))
    signal.signal(signal.SIGTERM, _terminate)
    _escape_unencodable()
    try:
        arguments = [_expand_home(arg) for arg in given]
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
    """Open the standard streams that are closed, as those of a daemon may be, on ``/dev/null``.

    Otherwise the next files to be opened would get the descriptors 0 to 2.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r"))


def _terminate(_signal: int, _frame: object) -> NoReturn:
    """Handle SIGTERM like an interrupt, so that the processes a command started end with it."""
    raise KeyboardInterrupt


def _escape_unencodable() -> None:
    """Print characters that the terminal's encoding lacks as escapes instead of raising."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _expand_home(arg: str) -> str:
    """The argument with ``~`` expanded, which shells do not do in ``--out=~/x``.

    >>> _expand_home("--out=~/x") == f"--out={Path.home()}/x"
    True
    """
    option, equals, value = arg.partition("=")
    if option.startswith("--") and equals and value.startswith("~/"):
        return f"{option}={Path.home()}{value[1:]}"
    return arg


def _end(problem: str, code: int) -> NoReturn:
    """Print one line on standard error and exit."""
    print(f"zerowait: {problem}", file=sys.stderr)
    sys.exit(code)


def _end_without_output(error: OSError) -> NoReturn:
    """Exit after an OSError of a file or of standard output."""
    try:
        sys.stdout.flush()
    except OSError:
        # Python flushes standard output once more at exit, and would print a traceback
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            sys.exit(1)  # the reading end of the pipe was closed, as by `zerowait ... | head`
    where = f"{error.filename}: " if error.filename is not None else ""
    _end(f"{where}{error.strerror or error}", WRONG_INPUT)


def _end_with_usage(error: Exception) -> None:
    """Exit with one line when `error` is one of click's, such as an unknown option; else return."""
    # typer vendors click in a module that depends on its version, so its classes cannot be named
    show, message = getattr(error, "show", None), getattr(error, "format_message", None)
    if show is None or message is None:
        return
    if type(error).__name__ == "NoArgsIsHelpError":
        show()  # the help, since there was no argument
        sys.exit(WRONG_INPUT)
    command = getattr(getattr(error, "ctx", None), "command_path", "zerowait")
    problem = " ".join(message().split()).removesuffix(".")
    _end(f"{problem}; {command} --help lists what there is", WRONG_INPUT)


def add_commands(first: str) -> None:
    """Import the modules that add their command to `app`; those of one command, if it is called.

    Args:
        first: the first argument, such as the name of a command.
    """
    if first in ("--version", "version"):
        return
    called = [name for name in _MODULES if name == first or name.startswith(f"{first}_")]
    for name in called or _MODULES:
        import_module(f"zerowait.cli.{name}")
