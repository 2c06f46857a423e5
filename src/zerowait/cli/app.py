"""The command line: what it offers, and how it ends."""

from __future__ import annotations

import os
import signal
import sys
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


def run(args: list[str] | None = None) -> NoReturn:
    """Run the command with `args` (those of the process when None) and exit."""
    _open_standard_streams()
    _add_commands()
    signal.signal(signal.SIGTERM, _terminate)
    try:
        code: Any = app(args, standalone_mode=False)
    except (ConfigError, DataError, MissingExtraError) as error:
        _end(str(error), WRONG_INPUT)
    except ZerowaitError as error:
        _end(str(error), 1)
    except (KeyboardInterrupt, typer.Abort):
        _end("interrupted", INTERRUPTED)
    except Exception as error:
        show = getattr(error, "show", None)  # click's own errors: a wrong option, a missing file
        if show is None:
            raise
        show()
        sys.exit(getattr(error, "exit_code", WRONG_INPUT))
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


def _end(problem: str, code: int) -> NoReturn:
    print(f"zerowait: {problem}", file=sys.stderr)
    sys.exit(code)


def _add_commands() -> None:
    from zerowait.cli import (  # noqa: F401
        cache,
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
