"""The table of shapes by name, and how their parameters are checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from zerowait.config.messages import locate, number_hint, plain_words
from zerowait.config.source import path_text
from zerowait.errors import ConfigError, did_you_mean
from zerowait.shaping.cosine import Cosine
from zerowait.shaping.group import Shape
from zerowait.shaping.group_linear import GroupLinear
from zerowait.shaping.kimi import KimiLength
from zerowait.shaping.lcpo import LcpoExact, LcpoMax
from zerowait.shaping.median_band import MedianBand
from zerowait.shaping.overlong import HardCap, SoftOverlong
from zerowait.shaping.repetition import Repetition

SHAPES: Final[dict[str, type[msgspec.Struct]]] = {
    "cosine": Cosine,
    "group_linear": GroupLinear,
    "hard_cap": HardCap,
    "kimi": KimiLength,
    "lcpo_exact": LcpoExact,
    "lcpo_max": LcpoMax,
    "median_band": MedianBand,
    "repetition": Repetition,
    "soft_overlong": SoftOverlong,
}


def resolve_shape(name: str, options: Mapping[str, Any]) -> Shape:
    """The shape called `name` with its parameters.

    Raises:
        ConfigError: there is no such shape or parameter (the message names the nearest), or a
            value does not fit.

    >>> resolve_shape("kimi", {"corect": 1.0})
    Traceback (most recent call last):
    zerowait.errors.ConfigError: kimi has no parameter 'corect'; did you mean 'correct'?
    >>> resolve_shape("median_band", {}).needs_scores
    False
    """
    shape = SHAPES.get(name)
    if shape is None:
        raise ConfigError(f"there is no shape {name!r}{did_you_mean(name, SHAPES)}")
    known = [field.name for field in msgspec.structs.fields(shape)]
    for option in options:
        if option not in known:
            raise ConfigError(f"{name} has no parameter {option!r}{did_you_mean(option, known)}")
    try:
        made: Any = msgspec.convert(dict(options), shape)
    except msgspec.ValidationError as error:
        path, problem = locate(str(error))
        hint = number_hint(options.get(str(path[0]))) if path else ""
        words = plain_words(problem)
        why = f"{path_text(path)} {words}{hint}" if path else words.removeprefix("is wrong: ")
        raise ConfigError(f"{name}: {why}") from None
    resolved: Shape = made
    return resolved
