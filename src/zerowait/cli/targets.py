"""Where a command writes: a whole file takes the place of an earlier one, and of nothing else."""

from __future__ import annotations

from pathlib import Path

from zerowait.errors import ConfigError


def refuse_special(name: str, path: Path) -> None:
    """Raise a ConfigError unless there is a regular file at `path`, or nothing.

    A device, a pipe or a link would be gone afterwards, and ``/dev/stdout`` for everybody.
    """
    if path.is_symlink():
        raise ConfigError(f"{name}: is a link, and would be replaced; name the file itself")
    if path.exists() and not path.is_file():
        what = "a folder; name a file in it" if path.is_dir() else "no regular file"
        raise ConfigError(f"{name}: is {what}")
