"""Output files: checked before the work begins, replaced only when they are complete."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from zerowait.cli.row_files import STANDARD_STREAM
from zerowait.errors import ConfigError


def check_output(
    name: str, path: Path, *, inputs: Iterable[Path] = (), suffixes: tuple[str, ...] = ()
) -> None:
    """Raise a ConfigError unless a complete file may take the place of `path`.

    A device, a pipe or a link would be replaced as well, ``/dev/stdout`` for every process.

    Args:
        name: how messages call the output, such as ``--out FILE``.
        path: the output; standard output (``-``) is always possible.
        inputs: files that the command reads, which must not be overwritten; the data file first.
        suffixes: file name endings that the command can write; none allows any.
    """
    if path == STANDARD_STREAM:
        return
    if suffixes and path.suffix.lower() not in suffixes:
        raise ConfigError(f"{name}: has to end in {' or '.join(suffixes)}, or be - (JSON Lines)")
    if not path.parent.is_dir():
        raise ConfigError(f"{name}: there is no folder {path.parent}")
    if path.is_symlink():
        raise ConfigError(f"{name}: is a link, and would be replaced; name the file itself")
    if path.exists() and not path.is_file():
        what = "a folder; name a file in it" if path.is_dir() else "no regular file"
        raise ConfigError(f"{name}: is {what}")
    for index, file in enumerate(inputs):
        if path.exists() and file.exists() and path.samefile(file):
            what = (
                "the input itself, which would" if index == 0 else "read by this command, and would"
            )
            raise ConfigError(f"{name}: is {what} be lost")


@contextmanager
def open_output(path: Path, *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A binary file that takes the place of `path` when the block ends without an exception.

    Until then it lies beside `path` under a hidden name; after an exception it is removed.

    Args:
        path: the output; `STANDARD_STREAM` writes to standard output at once.
        mode: permissions of the file; the umask is applied.

    Raises:
        OSError: the file cannot be written.
    """
    if path == STANDARD_STREAM:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}.partial")
    draft.unlink(missing_ok=True)
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            yield file
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
