"""Numbers as solutions write them: signs, currencies, grouping, fractions, bold and boxes."""

from __future__ import annotations

import re
from fractions import Fraction

from zerowait.patterns import lazy_pattern
from zerowait.scorers.boxed import last_boxed

_LONGEST_CHARS = 400
_MINUS = r"[-\u2212\u2013]"
_AROUND = (
    r"(?:[\s*_`(\[{$\u20ac\u00a3\u00a5\u20b9\u20a9~:]|\\[$(\[,;:!]|\\(?:text|math)\w*\{"
    r"|(?:USD|EUR|GBP|US|Rs\.?)(?=[\s$\d]))*+"
)
_WHOLE = r"(?:\d{1,3}(?:,\d{3})+|\d{1,2}(?:,\d{2})+,\d{3}|\d+)(?!\d|,\d)"
_DECIMAL = rf"(?:{_WHOLE}(?:\.\d+)?|\.\d+)"
_NUMBER = lazy_pattern(
    rf"{_AROUND}(?P<sign>[+]|{_MINUS})?{_AROUND}(?P<inner>{_MINUS})?(?:"
    rf"\\[dt]?frac\{{\s*(?P<top>\d+)\s*\}}\{{\s*(?P<bottom>\d+)\s*\}}"
    rf"|(?:(?P<whole>\d+)\s+)?(?P<over>{_DECIMAL})\s*/\s*(?P<under>{_DECIMAL})"
    rf"|(?P<plain>{_DECIMAL})(?:[eE](?P<exponent>[-+]?\d{{1,3}})(?!\d))?)"
)
# What makes a number a part of something else: a sum, a power, a time, a list, a mixed fraction.
_GOES_ON = lazy_pattern(
    r"[)\]}*_`$\s]*?(?:[=^\u00d7\u00f7]|[-\u2212\u2013+/:]\s*[\d(\\$.]|[,*xX]\s*\d|[eE][-+]?\d"
    r"|\.?\d|[\u00bc-\u00be\u2150-\u215e]"
    r"|[(,]?\s*(?:(?:or|and|to|maybe|perhaps)\b[\s(*_$\\]*){1,2}[-+.]?\d|[;|]\s*\d)"
)
_GROUPING = lazy_pattern(r"(?<=\d)(?:\\[,;:! ]|\{,\}|['_ \u00a0\u2009\u202f])(?=\d{3}(?!\d))")
_RUN = lazy_pattern(r"\d[\d,.]*")
_UNSIGNED = lazy_pattern(rf"{_WHOLE}(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+")
# The 5 of .5 is a fraction, the 5 of "end.5" is not.
_POINT = lazy_pattern(r"(?:^|[^\w.])\.$")
# A minus belongs to the number only where no operand stands before it: 10-5 ends in 5.
_SIGN = lazy_pattern(rf"(?:^|[^\w.)\]]){_MINUS}\\?\$?$")
_OVER = lazy_pattern(
    rf"(?:(?P<date>[\d.]\s*/\s*)?(?<![\d.,])(?P<over>{_DECIMAL})\s*/\s*"
    r"|\\[dt]?frac\{(?P<top>\d+)\}\{)$"
)
_SCALE = lazy_pattern(rf"(?<![\w.,])(?P<scaled>{_DECIMAL})[eE][-+]?$")
_POWER = lazy_pattern(r"(?P<base>.?)\^\{?-?$", re.DOTALL)
_BEFORE_CHARS = 60


def read_number(text: str) -> Fraction | None:
    r"""The number that `text` is, a unit behind it or not; None when it is none, or several.

    >>> [str(read_number(text)) for text in ("$1,234.50", "5/2", r"**\$5** each", "40 %")]
    ['2469/2', '5/2', '5', '40']
    >>> [read_number(text) for text in ("seven", "5 or 6", "1,2", "5/0")]
    [None, None, None, None]
    """
    found = _leading(text)
    return None if found is None or re.search(r"\d", found[1]) else found[0]


def leading_number(text: str) -> Fraction | None:
    r"""The number that `text` begins with, or has in a box; None where it begins with none.

    Of an equation the last side counts. A number that is a part of a sum, a power, a list or a
    time is none.

    >>> [str(leading_number(text)) for text in ("2 1/2 cups", "3 * 4 = 12 eggs", r"\boxed{-5\%}")]
    ['5/2', '12', '-5']
    >>> [leading_number(text) for text in ("5^2", "about 5", "5, 6")]
    [None, None, None]
    """
    found = _leading(text)
    return None if found is None else found[0]


def last_number(text: str) -> Fraction | None:
    r"""The number in the last ``\boxed{}`` of `text`, else its last number; None without one.

    A unit's exponent is no number of its own.

    >>> [str(last_number(text)) for text in ("10-5", "It is 5/2.", "25 m^2", r"\boxed{7} in 3")]
    ['5', '5/2', '25', '7']
    """
    box = last_boxed(text)
    if box is not None and (boxed := leading_number(box)) is not None:
        return boxed
    end = len(text)
    # Runs of digits are found ten times faster than numbers; only the last ones are looked at.
    for run in reversed(_RUN.findall(text)):
        end = text.rindex(run, 0, end)
        *_, last = _UNSIGNED.finditer(run)
        start = end + last.start()
        power = _POWER.search(text[max(start - 4, 0) : start])
        if power is None:
            return _with_what_precedes(text[max(start - _BEFORE_CHARS, 0) : start], last[0])
        if power["base"].isdigit() or power["base"] in {")", "]", "}", ""}:
            return None
    return None


def _leading(text: str) -> tuple[Fraction, str] | None:
    """The number that `text` begins with, and what follows it."""
    box = last_boxed(text)
    text = text if box is None else box
    text = _GROUPING.sub("", text.rpartition("=")[2])
    found = _NUMBER.match(text)
    if found is None or _GOES_ON.match(text, found.end()):
        return None
    value = _value(found)
    if value is None:
        return None
    sign = -1 if found["inner"] or found["sign"] not in (None, "+") else 1
    return sign * value, text[found.end() :]


def _value(found: re.Match[str]) -> Fraction | None:
    if found["plain"] is not None:
        value = _decimal(found["plain"])
        return None if value is None else value * Fraction(10) ** int(found["exponent"] or 0)
    over = _decimal(found["top"] or found["over"])
    under = _decimal(found["bottom"] or found["under"])
    whole = _decimal(found["whole"] or "0")
    if over is None or under is None or whole is None or not under:
        return None
    return whole + over / under


def _decimal(digits: str) -> Fraction | None:
    return Fraction(digits.replace(",", "")) if len(digits) <= _LONGEST_CHARS else None


def _with_what_precedes(before: str, digits: str) -> Fraction | None:
    """The number that ends in `digits`, together with its point, numerator and sign."""
    if "." not in digits and _POINT.search(before):
        digits, before = f".{digits}", before[:-1]
    value = _decimal(digits)
    over = _OVER.search(before)
    if over and value is not None and not over["date"]:
        top = _decimal(over["top"] or over["over"])
        value = None if top is None or not value else top / value
        before = before[: over.start()]
    elif (scaled := _SCALE.search(before)) is not None:
        return read_number(scaled[0] + digits)
    if value is None:
        return None
    return -value if _SIGN.search(before) else value
