"""Error messages in the words of YAML: what a key may be, what was wrong, what to write instead."""

from __future__ import annotations

import re
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

from zerowait.config.source import KeyPath
from zerowait.config.traffic import Hedge

_MAY_BE_OFF = ("rpm", "tpm", "hedge", "give_up_after", "proxy", "early_gradients")
_MAY_BE_ON = ("early_gradients",)


def words_for(kind: type[msgspec.Struct], path: KeyPath) -> str | None:
    """The words that a field takes, and its other types, such as "auto or a whole number".

    Empty for a field that takes no particular words; None for one that does not exist.
    """
    options: tuple[Any, ...] = (kind,)
    for part in path:
        fields = [
            field
            for option in options
            if isinstance(option, type) and issubclass(option, msgspec.Struct)
            for field in msgspec.structs.fields(option)
        ]
        kinds = [field.type for field in fields if field.name == part] or [
            get_args(option)[-1] for option in options if get_origin(option) in (list, tuple, dict)
        ]
        if not kinds:
            return None
        either = get_origin(kinds[0]) in (Union, UnionType)
        options = get_args(kinds[0]) if either else (kinds[0],)
    names: dict[Any, str] = {int: "a whole number", float: "a number", Hedge: "a mapping"}
    words = [
        str(word)
        for option in options
        if get_origin(option) is Literal
        for word in get_args(option)
    ]
    if not words:
        return ""
    return " or ".join([*words, *(names[option] for option in options if option in names)])


def with_words(tree: dict[str, Any]) -> dict[str, Any]:
    """The tree with booleans as the words they were: YAML reads yes, no, on and off as booleans."""
    tree = tree | {key: "off" for key in _MAY_BE_OFF if tree.get(key) is False}
    tree = tree | {key: "on" for key in _MAY_BE_ON if tree.get(key) is True}
    if isinstance(tree.get("endpoints"), list):
        tree = tree | {"endpoints": [_with_proxy(each) for each in tree["endpoints"]]}
    verdict, monitor = tree.get("verdict"), tree.get("monitor")
    if isinstance(verdict, dict) and isinstance(verdict.get("choice"), list):
        words = [("yes" if w else "no") if isinstance(w, bool) else w for w in verdict["choice"]]
        tree = tree | {"verdict": verdict | {"choice": words}}
    if isinstance(monitor, dict) and isinstance(monitor.get("rebalance"), dict):
        shares = {
            str(key).lower() if str(key) in ("True", "False") else key: share
            for key, share in monitor["rebalance"].items()
        }
        tree = tree | {"monitor": monitor | {"rebalance": shares}}
    return tree


def _with_proxy(endpoint: Any) -> Any:
    is_off = isinstance(endpoint, dict) and endpoint.get("proxy") is False
    return endpoint | {"proxy": "off"} if is_off else endpoint


def locate(message: str) -> tuple[KeyPath, str]:
    """Splits msgspec's "... - at `$.endpoints[0].model`" into a key path and the problem."""
    problem, _, where = message.partition(" - at `$")
    path: list[str | int] = []
    for part in where.rstrip("`").replace("[...]", "").replace("[", ".[").split("."):
        if part.startswith("[") and part[1:-1].isdigit():
            path.append(int(part[1:-1]))
        elif part and not part.startswith("["):
            path.append(part)
    return tuple(path), problem


def plain_words(problem: str) -> str:
    """Msgspec's message in the words of YAML.

    >>> plain_words("Expected `int | str`, got `array`")
    'must be a whole number or text, not a list'
    """
    if problem.startswith("Object missing required field "):
        return f"needs the key {problem.rsplit(' ', 1)[1].strip('`')!r}"
    if problem.startswith("must "):
        return problem
    problem = re.sub(r"`([a-z_ |]+)`", lambda found: _kinds(found[1]), problem)
    if problem.startswith("Expected "):
        return "must be " + problem[len("Expected ") :].replace(", got ", ", not ")
    return f"is wrong: {problem}"


def kind_of(tree: Any) -> str:
    """The YAML type of `tree`, for messages; never its value, which may be a key."""
    return "nothing" if tree is None else _KINDS.get(type(tree).__name__, type(tree).__name__)


def number_hint(text: Any) -> str:
    """A hint how to write the number that `text` was meant to be; empty where it was none.

    >>> number_hint("0,5"), number_hint("1e-6")
    ('; a number is written with a point: 0.5', '; YAML reads 1e-6 as text: write 1.0e-6')
    >>> number_hint("50 %"), number_hint("0.5"), number_hint("many")
    ('; write 0.5', '; write 0.5 without quotes', '')
    """
    if not isinstance(text, str):
        return ""
    written = as_yaml_number(text)
    if written is not None:
        return f"; YAML reads {text} as text: write {written}"
    plain = text.strip().replace("\N{MINUS SIGN}", "-").replace("\N{FULLWIDTH FULL STOP}", ".")
    if re.fullmatch(r"[-+]?\d*,\d+", plain):
        return f"; a number is written with a point: {plain.replace(',', '.')}"
    percent = re.fullmatch(r"([-+]?\d+(?:[.,]\d+)?)\s*%", plain)
    if percent is not None:
        return f"; write {float(percent[1].replace(',', '.')) / 100:g}"
    if re.fullmatch(r"[-+]?(?:\d+\.?\d*|\.\d+)", plain):
        return f"; write {plain} without quotes" if plain == text.strip() else f"; write {plain}"
    return ""


def as_yaml_number(text: Any) -> str | None:
    """A spelling that YAML reads as the number that `text` was meant to be; None for no number.

    >>> as_yaml_number("1e-6"), as_yaml_number("2.5e3"), as_yaml_number("many")
    ('1.0e-6', '2.5e+3', None)
    """
    found = isinstance(text, str) and re.fullmatch(r"([-+]?\d+)(\.\d*)?[eE]([-+]?)(\d+)", text)
    if not found:
        return None
    whole, fraction, sign, power = found.groups()
    return f"{whole}{fraction or '.0'}e{sign or '+'}{power}"


_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "list": "a list",
    "object": "a mapping",
    "dict": "a mapping",
    "null": "nothing",
}


def _kinds(names: str) -> str:
    """Msgspec's ``int | null`` in words, without the null."""
    words = [_KINDS.get(name, name) for name in names.split(" | ")]
    return " or ".join([word for word in words if word != "nothing"] or words)
