"""Keys that stand in the wrong section: the error says in which one they belong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from zerowait.config.endpoint import Endpoint
from zerowait.config.schema import (
    Cache,
    Judge,
    JudgeComponent,
    Recording,
    ScorerComponent,
    ShapeComponent,
)
from zerowait.config.source import KeyPath, Source
from zerowait.config.traffic import Traffic

OF_COMPONENTS: Final = "components.NAME"
_JUDGE: Final = "judges.NAME"
_ENDPOINT: Final = "judges.NAME.endpoints"
_SECTIONS: Final[Mapping[str, tuple[type[msgspec.Struct], ...]]] = {
    OF_COMPONENTS: (ScorerComponent, JudgeComponent, ShapeComponent),
    _JUDGE: (Judge,),
    _ENDPOINT: (Endpoint,),
    "traffic": (Traffic,),
    "cache": (Cache,),
    "record": (Recording,),
}


def place_of(key: object, *, beside: str = "") -> str:
    """The end of an error message about `key`: the section that has it; empty where none does.

    Args:
        key: that stands elsewhere.
        beside: a section that is not looked into, since the key stands in it.

    >>> place_of("rpm"), place_of("model"), place_of("rmp")
    ('; it belongs under traffic', '; it belongs under judges.NAME.endpoints', '')
    """
    found = [section for section in _SECTIONS if section != beside and _has(section, key)]
    return f"; it belongs under {' or '.join(found)}" if found else ""


def refuse_misplaced_keys(source: Source, at: KeyPath, tree: Mapping[str, Any]) -> None:
    """Raise a ConfigError for a key of another section in one of a reward configuration's.

    Args:
        source: the document, for errors.
        at: key path of the configuration in it.
        tree: the configuration.
    """
    for path, section, entry in _entries(tree):
        for key in entry if isinstance(entry, dict) else ():
            hint = "" if _has(section, key) else place_of(key)
            if hint:
                source.unknown_key((*at, *path), key, [], hint=hint)


def _has(section: str, key: object) -> bool:
    return any(key in kind.__struct_fields__ for kind in _SECTIONS[section])


def _entries(tree: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str, Any]]:
    """The sections of a configuration, as far as they are mappings: path, name and content."""
    for name in ("traffic", "cache", "record"):
        yield (name,), name, tree.get(name)
    judges = tree.get("judges")
    for name, judge in judges.items() if isinstance(judges, dict) else ():
        if not isinstance(judge, dict) or "panel" in judge:
            continue
        yield ("judges", name), _JUDGE, judge
        endpoints = judge.get("endpoints")
        for index, endpoint in enumerate(endpoints if isinstance(endpoints, list) else ()):
            yield ("judges", name, "endpoints", index), _ENDPOINT, endpoint
