r"""Units of measurement at the end of an answer."""

from __future__ import annotations

import re
from fractions import Fraction

_NAMES = {
    "mm": "mm millimeter millimetre",
    "cm": "cm centimeter centimetre",
    "m": "m meter metre",
    "km": "km kilometer kilometre",
    "in": "in inch inches",
    "ft": "ft foot feet",
    "yd": "yd yard",
    "mi": "mi mile",
    "mg": "mg milligram",
    "g": "g gram",
    "kg": "kg kilogram",
    "oz": "oz ounce",
    "lb": "lb pound",
    "ml": "ml milliliter millilitre",
    "l": "l liter litre",
    "s": "s sec second",
    "min": "min minute",
    "h": "h hr hour",
    "day": "day",
    "week": "week",
    "month": "month",
    "year": "yr year",
    "dollar": "dollar usd",
    "cent": "cent",
    "euro": "euro eur",
    "rupee": "rupee rs",
    "yuan": "yuan rmb",
    "degree": "degree",
    "radian": "rad radian",
}
# How many of which unit one is.
_IN_BASE = {
    "mm": (Fraction(1, 1000), "m"),
    "cm": (Fraction(1, 100), "m"),
    "m": (Fraction(1), "m"),
    "km": (Fraction(1000), "m"),
    "in": (Fraction(254, 10_000), "m"),
    "ft": (Fraction(3048, 10_000), "m"),
    "yd": (Fraction(9144, 10_000), "m"),
    "mi": (Fraction(1_609_344, 1000), "m"),
    "mg": (Fraction(1, 1000), "g"),
    "g": (Fraction(1), "g"),
    "kg": (Fraction(1000), "g"),
    "ml": (Fraction(1, 1000), "l"),
    "l": (Fraction(1), "l"),
    "s": (Fraction(1), "s"),
    "min": (Fraction(60), "s"),
    "h": (Fraction(3600), "s"),
    "day": (Fraction(86_400), "s"),
    "week": (Fraction(604_800), "s"),
    "cent": (Fraction(1, 100), "dollar"),
    "dollar": (Fraction(1), "dollar"),
    "degree": (Fraction(1), "degree"),
}
_UNITS = {name: unit for unit, names in _NAMES.items() for name in names.split()}
_POWERS = {"square": "2", "sq": "2", "squared": "2", "cubic": "3", "cubed": "3"}
_BEHIND = re.compile(
    r"(?<=[\d)}])(?:[\s~$]|\\[,;:! ]|\\(?:text|mathrm|rm)\b)*\{?[\s~]*+([A-Za-z][^=]*)\Z"
)
_WORD = re.compile(r"[A-Za-z]+|\^\{?[23]|[\u00b2\u00b3]|[/\u00b7*]")
_SUPERSCRIPT = {"\u00b2": "2", "\u00b3": "3"}


def unit_of(answer: str) -> str | None:
    r"""The unit at the end of `answer`, in one spelling; None without one that is known.

    >>> unit_of(r"5\text{ centimeters}^2"), unit_of("5 square cm"), unit_of("5 km/h")
    ('cm2', 'cm2', 'km/h')
    >>> unit_of("5"), unit_of("5x"), unit_of("5 apples")
    (None, None, None)
    """
    behind = _BEHIND.search(answer[-60:])
    if behind is None:
        return None
    name, power, spelt = "", "", ""
    spelling = behind[1].replace(r"\text", " ").replace(r"\mathrm", " ")
    for word in _WORD.findall(spelling.replace("kmph", "km/h").replace("mph", "mi/h")):
        if word == "per" or not (word[0].isalpha() or word[0] == "^" or word in _SUPERSCRIPT):
            spelt, name, power = f"{spelt}{name}{power}/", "", ""
        elif word[0] == "^" or word in _SUPERSCRIPT or word in _POWERS:
            power = _POWERS.get(word) or _SUPERSCRIPT.get(word) or word[-1]
        elif not name and (known := _known(word)):
            name = known
        else:
            return None
    return f"{spelt}{name}{power}" if name else None


def in_base_unit(unit: str) -> tuple[Fraction, str] | None:
    """How many of which base unit a unit is, as `unit_of` spells it; None where that is not known.

    >>> in_base_unit("km/h"), in_base_unit("cm2")
    ((Fraction(5, 18), 'm/s'), (Fraction(1, 10000), 'm2'))
    """
    factor, names = Fraction(1), []
    for index, part in enumerate(unit.split("/")):
        name = part.rstrip("23")
        known = _IN_BASE.get(name)
        if known is None:
            return None
        power = int(part[len(name) :] or 1)
        factor *= known[0] ** (power if not index else -power)
        names.append(known[1] + part[len(name) :])
    return factor, "/".join(names)


def _known(word: str) -> str | None:
    return (
        _UNITS.get(word) or _UNITS.get(word.lower()) or _UNITS.get(word.lower().removesuffix("s"))
    )
