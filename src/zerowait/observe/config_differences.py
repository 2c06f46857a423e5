"""What differs between two reward configurations, in words."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from zerowait.record import earlier_configurations, read_configuration

_ABSENT: Final = object()
_SHOWN_CHARS: Final = 60


def config_differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """The differences, one line each.

    Args:
        a: a configuration, as `zerowait.record.described` gives it.
        b: another one.

    >>> config_differences({"components": {"x": {"weight": 1}}}, {"components": {"y": {}}})
    ['components.x: is gone', 'components.y: is new']
    """
    return list(_differences(a, b, ""))


class UsedConfiguration(NamedTuple):
    """A configuration by which rows of a record were scored, and the first and last of them.

    ``reward`` is empty where it cannot be read any more.
    """

    reward: Mapping[str, Any]
    first_row: int
    last_row: int

    @property
    def components(self) -> dict[str, Mapping[str, Any]]:
        """Its components by name; none where the file has another form."""
        found = self.reward.get("components")
        parts = found.items() if isinstance(found, Mapping) else ()
        return {name: part for name, part in parts if isinstance(part, Mapping)}


def used_configurations(connection: sqlite3.Connection, folder: Path) -> list[UsedConfiguration]:
    """The configurations by which the rows of a record were scored, oldest first.

    Empty where that of the last rows is not known.

    Args:
        connection: to the index of the record.
        folder: of the record.
    """
    last = read_configuration(folder)
    if last is None:
        return []
    windows = [(each.until, each.reward) for each in earlier_configurations(folder)]
    if not windows:  # the usual case; times are in no index of a large record
        first, end = connection.execute("SELECT min(row), max(row) FROM rewards").fetchone()
        return [UsedConfiguration(last, first, end)] if first is not None else []
    used: list[UsedConfiguration] = []
    since = 0.0
    for until, reward in [*windows, (float("inf"), last)]:
        first_row, last_row = connection.execute(
            "SELECT min(row), max(row) FROM rewards WHERE current = 1 "
            "AND coalesce(settled_at, 0) >= ? AND coalesce(settled_at, 0) < ?",
            (since, until),
        ).fetchone()
        since = until
        if first_row is None:
            continue
        if used and used[-1].reward == reward:
            first_row = used.pop().first_row
        used.append(UsedConfiguration(reward, first_row, last_row))
    return used if used and used[-1].reward else []


def notes_on_earlier_rows(
    used: Sequence[UsedConfiguration], now: Mapping[str, Any], *, named: str
) -> Iterator[str]:
    """A sentence for each earlier configuration of a run: its rows, and what has changed since.

    Args:
        used: as `used_configurations` gives them.
        now: the configuration with which they are compared.
        named: what a sentence calls it, such as ``the given one``.
    """
    for each in used[:-1]:
        rows = f"rows {each.first_row} to {each.last_row}"
        if not each.reward:
            yield f"{rows} were scored by a configuration of the run that cannot be read any more"
            continue
        changes = "; ".join(config_differences(each.reward, now))
        same = f"it has the same components, judges and failure policies as {named}"
        differs = f"since then changed: {changes}" if changes else same
        yield f"{rows} were scored by an earlier configuration of the run; {differs}"


def _differences(a: Any, b: Any, at: str) -> Iterator[str]:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for name in dict.fromkeys([*a, *b]):
            place = f"{at}.{name}" if at else str(name)
            yield from _differences(a.get(name, _ABSENT), b.get(name, _ABSENT), place)
    elif a is _ABSENT or b is _ABSENT:
        yield f"{at}: is {'new' if a is _ABSENT else 'gone'}"
    elif a != b and at.endswith(".rubric_text"):
        yield f"{at.removesuffix('_text')}: its text changed"
    elif a != b:
        yield f"{at}: {_shown(a)}, now {_shown(b)}"


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 3]}..."
