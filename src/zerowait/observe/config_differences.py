"""What differs between two reward configurations, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

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
