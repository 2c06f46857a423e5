"""``--json``: the result of a command as one JSON object, alone on standard output.

Keys are stable: new ones may be added, none is renamed or removed within a major version.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from zerowait.cli.row_files import STANDARD_STREAM, encode_json
from zerowait.errors import ConfigError

JsonOption: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print the result as one JSON object, and nothing else.")
]


def print_json(result: object) -> None:
    """Print `result` on one line; NaN and infinity become null."""
    print(encode_json(result).decode())


@contextmanager
def reserved_stdout(*, reserved: bool) -> Iterator[None]:
    """Send what is printed meanwhile to standard error, while standard output is `reserved`.

    For libraries, such as verl, that print while they are imported.
    """
    if not reserved:
        yield
        return
    with redirect_stdout(sys.stderr):
        yield


def refuse_json_beside(out: Path, *, as_json: bool) -> None:
    """Raise a ConfigError when rows and the JSON result would both go to standard output."""
    if as_json and out == STANDARD_STREAM:
        raise ConfigError("--json: standard output gets the rows; write them to a file, or omit it")
