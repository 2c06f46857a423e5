"""Write and read values in the syntax of Hydra's command line.

Grammar: https://hydra.cc/docs/1.3/advanced/override_grammar/basic/. Text is quoted; keys of
mappings are not, and their special characters are escaped with a backslash.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from zerowait.errors import ConfigError

_WORDS = frozenset({"true", "false", "null", "nan", "inf"})
_KEY = re.compile(r"[A-Za-z0-9_/\-+.$%*@?| \t\\()\[\]{}:=,]+")
_SPECIAL = re.compile(r"[ \t\\()\[\]{}:=,]")


def written(value: object) -> str:
    """A value as text for Hydra's command line.

    Raises:
        ConfigError: a mapping has a key that Hydra's syntax cannot express.

    >>> written({"a": [1, "x"], "c": {"d": None}})
    '{a:[1,"x"],c:{d:null}}'
    """
    if isinstance(value, str):
        return value if value.isidentifier() and value.lower() not in _WORDS else _quoted(value)
    return _item(value)


def read(text: str) -> Any:
    """The value that Hydra reads from `text`; the text itself if Hydra rejects it.

    >>> read("{reward_manager: batch}")
    {'reward_manager': 'batch'}
    """
    try:
        from hydra.core.override_parser.overrides_parser import OverridesParser
        from hydra.errors import HydraException
    except ImportError:  # Hydra comes with verl, without which nothing is started
        return text
    try:
        override = OverridesParser.create().parse_override(f"key={text}")
        return text if override.is_sweep_override() else override.value()
    except HydraException:
        return text


def flattened(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The values by full dotted key, without Hydra's prefixes; a later one wins.

    >>> flattened({"+a": {"b": 1, "c.d": 2}, "a.b": 3, "++e": "{f: 4}"})
    {'a.b': 3, 'a.c.d': 2, 'e.f': 4}
    """
    return {key: value for given in overrides.items() for key, value in _leaves(*given)}


def given_twice(overrides: Mapping[str, Any]) -> tuple[str, str] | None:
    """The first two spellings in `overrides` that set the same value; None if there are none.

    >>> given_twice({"a": {"b": 1}, "c": 2, "+a.b": 3})
    ('a', '+a.b')
    """
    first: dict[str, str] = {}
    for spelling, value in overrides.items():
        for key, _ in _leaves(spelling, value):
            if key in first:
                return first[key], spelling
            first[key] = spelling
    return None


def plain_key(key: str) -> str:
    """The key without Hydra's prefix: + adds, ++ adds or changes, ~ deletes."""
    return key.lstrip("+~")


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, str) and value.lstrip().startswith("{"):
        value = read(value)
    if isinstance(value, Mapping) and value:
        for inner, item in value.items():
            yield from _leaves(f"{plain_key(key)}.{inner}", item)
    else:
        yield plain_key(key), value


def _item(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, Mapping):
        pairs = (f"{_key(key)}:{_item(item)}" for key, item in value.items())
        return f"{{{','.join(pairs)}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(_item(item) for item in value)}]"
    return str(value)


def _key(key: object) -> str:
    text = str(key).lower() if isinstance(key, bool) else str(key)
    if not _KEY.fullmatch(text):
        raise ConfigError(f"verl's configuration: Hydra has no way to write the key {text!r}")
    return _SPECIAL.sub(lambda found: "\\" + found[0], text)


def _quoted(text: str) -> str:
    escaped = re.sub(r'(\\*)"', lambda found: found[1] * 2 + '\\"', text)
    trailing = len(escaped) - len(escaped.rstrip("\\"))
    return '"' + escaped + "\\" * trailing + '"'
