"""Where ``zerowait score`` writes: checked before anything is judged, replaced only when whole."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from zerowait.cli.rows import (
    JSON,
    PARQUET,
    RowFile,
    as_json_value,
    columns_of,
    encoded,
    write_table,
)
from zerowait.cli.targets import refuse_special
from zerowait.errors import ConfigError
from zerowait.types import Reward

_SUFFIXES = (".jsonl", ".ndjson", PARQUET)
_TEXT_COLUMNS = ("reward_components", "reward_policy", "reward_why")


class Output:
    """The file that gets each row with its reward.

    Args:
        file: the rows.
        out: where they go; None is FILE.rewards.jsonl or FILE.rewards.parquet beside `file`.
        read: further files that are read, and must not be written over.

    Raises:
        ConfigError: it is a folder, has no folder, is what is read, or is of another kind.
    """

    def __init__(self, file: RowFile, out: Path | None, *, read: Iterable[Path] = ()) -> None:
        source = file.path
        suffix = ".jsonl" if source.suffix.lower() in JSON else PARQUET
        self.path = out or source.with_name(f"{source.stem}.rewards{suffix}")
        _check(self.path, source, read)
        self._source = source
        self._rows = file.rows
        self._columns = (
            columns_of(file.rows, file.table) if self.path.suffix.lower() == PARQUET else {}
        )

    def write(self, rewards: list[Reward]) -> None:
        """Write each row with its reward, in order; the file is replaced when all is written.

        Raises:
            OSError: there was no room.
        """
        unfinished = self.path.with_name(f".{self.path.name}.unfinished")
        added = [reward_columns(reward) for reward in rewards]
        try:
            _create(unfinished, like=self.path if self.path.exists() else self._source)
            if self.path.suffix.lower() == PARQUET:
                write_table(unfinished, {**self._columns, **_as_columns(added)})
            else:
                with unfinished.open("ab") as file:
                    for row, reward in zip(self._rows, added, strict=True):
                        file.write(encoded({**row, **reward}) + b"\n")
            unfinished.replace(self.path)
        finally:
            unfinished.unlink(missing_ok=True)


def reward_columns(reward: Reward) -> dict[str, Any]:
    """The columns that a reward adds: ``reward`` is None where the row abstained."""
    return {
        "reward": reward.value,
        "reward_components": msgspec.to_builtins(
            reward.components, enc_hook=as_json_value, str_keys=True
        ),
        "reward_policy": reward.policy,
        "reward_why": reward.why,
    }


def _create(path: Path, *, like: Path) -> None:
    """An empty file that nobody may read who may not read `like`: it holds the same rows."""
    path.unlink(missing_ok=True)
    mode = like.stat().st_mode & 0o666 | stat.S_IWUSR
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))


def _as_columns(added: list[dict[str, Any]]) -> Mapping[str, list[Any]]:
    texts: dict[str, list[Any]] = {
        name: [_text(row[name]) for row in added] for name in _TEXT_COLUMNS
    }
    return {"reward": [row["reward"] for row in added], **texts}


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else encoded(value).decode()
    return text.encode("utf-8", "replace").decode()


def _check(path: Path, source: Path, read: Iterable[Path]) -> None:
    if path.suffix.lower() not in _SUFFIXES:
        raise ConfigError(f"--out {path}: must end in {', '.join(_SUFFIXES)}")
    if not path.parent.is_dir():
        raise ConfigError(f"--out {path}: there is no folder {path.parent}")
    if path.exists() and path.samefile(source):
        raise ConfigError(f"--out {path}: is the input itself, which would be lost")
    if path.exists() and any(file.exists() and path.samefile(file) for file in read):
        raise ConfigError(f"--out {path}: is read by this command, and would be lost")
    refuse_special(f"--out {path}", path)
