"""What a reply says of numbers and waits, in its headers or in words. Pure: the clock is given."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

LONGEST_QUOTA_S: Final = 60.0
"""A quota per minute is never used up for longer; one of the hour or of the day is."""

_SPAN: Final = re.compile(
    r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?"
)
_SPAN_S: Final = (86_400.0, 3600.0, 60.0, 1.0, 0.001)
_SEARCHED_BYTES: Final = 4000
_NUMBER: Final = r"(\d{1,9}(?:\.\d{1,9})?)"
_UNIT: Final = "milliseconds?|ms|minutes?|mins?|m|seconds?|secs?|s|hours?|hrs?|h|days?|d"
_TIME: Final = rf"{_NUMBER} ?({_UNIT})(?![a-z])"
_IN_WORDS: Final = re.compile(
    r"\b(?:(?:again|retry|retrying|resets?)\b[^.\d\n]{0,40}?\b(?:in|after)|wait(?: for)?)"
    rf"(?: about| at least)? ((?:{_TIME}(?:,? and )?[, ]*){{1,4}})",
    re.IGNORECASE,
)
_IN_A_FIELD: Final = re.compile(
    r"[\"'](?:retryDelay|retry_?after(?:_?seconds)?|estimated_time)[\"']: ?[\"']?"
    rf"{_NUMBER}(?:s\b|[,\s\"'}}])",
    re.IGNORECASE,
)
_TIMES: Final = re.compile(_TIME, re.IGNORECASE)
_TIME_S: Final = {"ms": 0.001, "m": 60.0, "s": 1.0, "h": 3600.0, "d": 86_400.0}
_EPOCH_S: Final = 1e9
_EPOCH_MS: Final = 1e12


def header_number(text: str | None) -> float | None:
    """The number in a header, finite and not below 0, or None.

    >>> [header_number(text) for text in (" 60 ", "-1", "nan", "many", None)]
    [60.0, None, None, None, None]
    """
    try:
        value = math.nan if text is None else float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def retry_after_s(headers: Mapping[str, str], *, now_s: float) -> float | None:
    """The seconds that the server asks to wait, above 0, or None when it names none.

    Reads ``retry-after-ms``, then ``retry-after`` as seconds, as a span such as ``1m30s``, as an
    HTTP date, or as Unix time, which some gateways write there. A date counts from the reply's own
    ``date``, if it has one, so that a wrong clock here does no harm.

    >>> retry_after_s({"retry-after-ms": "1500", "retry-after": "9"}, now_s=0.0)
    1.5
    >>> retry_after_s({"retry-after": "Thu, 01 Jan 1970 00:00:30 GMT"}, now_s=10.0)
    20.0
    """
    for name in ("retry-after-ms", "x-ms-retry-after-ms"):
        if milliseconds := header_number(headers.get(name)):
            return milliseconds / 1000
    named = headers.get("retry-after")
    seconds = header_number(named) or _span_s(named) or _longest_s(named)
    if seconds and seconds < _EPOCH_S:
        return seconds
    until_s = _as_unix_time(seconds) if seconds else _unix_time(named)
    if until_s is None:
        return None
    sent_s = _unix_time(headers.get("date"))
    wait_s = until_s - (now_s if sent_s is None else sent_s)
    return wait_s if wait_s > 0 else None


def _span_s(text: str | None) -> float | None:
    """The seconds of a span such as ``1m30s``, above 0; None for other text."""
    span = _SPAN.fullmatch((text or "").strip())
    if span is None:
        return None
    times = zip(span.groups("0"), _SPAN_S, strict=True)
    return sum(float(part) * unit_s for part, unit_s in times) or None


def _longest_s(text: str | None) -> float | None:
    """The greatest of several numbers of seconds, as a proxy joins repeated headers."""
    numbers = [header_number(part) for part in (text or "").split(",")]
    known = [number for number in numbers if number is not None]
    return max(known) if known and len(known) == len(numbers) else None


def wait_in_words_s(body: bytes) -> float | None:
    """The seconds that the body of a refusal asks to wait, above 0, or None.

    Many servers and gateways name it there only: OpenAI, Azure, LiteLLM, Groq in a sentence, Gemini
    and Hugging Face in a field.

    >>> wait_in_words_s(b"Rate limit reached. Please try again in 1m2.5s. Visit our page")
    62.5
    >>> wait_in_words_s(b'{"error": {"details": [{"retryDelay": "34s"}]}}')
    34.0
    >>> wait_in_words_s(b"Too many requests, try again later")
    """
    text = body[:_SEARCHED_BYTES].decode("utf-8", "replace")
    field = _IN_A_FIELD.search(text)
    if field is not None:
        return float(field[1]) or None
    sentence = _IN_WORDS.search(text)
    if sentence is None:
        return None
    times = ((float(number), unit.lower()) for number, unit in _TIMES.findall(sentence[1]))
    return sum(number * _TIME_S[_unit(unit)] for number, unit in times) or None


def _unit(word: str) -> str:
    is_milli = word in ("ms", "millisecond", "milliseconds")
    return "ms" if is_milli else word[0]


def used_up_s(headers: Mapping[str, str], *, now_s: float) -> float | None:
    """How long a quota of more than a minute is used up, as the headers of a 429 say; else None.

    Reads every pair such as ``x-ratelimit-remaining-requests-day`` and
    ``x-ratelimit-reset-requests-day``: a span (``7h12m0s``), seconds, Unix time or an ISO date.

    >>> day = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1h0m30s"}
    >>> used_up_s(day, now_s=0.0)
    3630.0
    """
    waits_s = [
        _until_s(headers.get(name.replace("remaining", "reset")), now_s)
        for name, left in headers.items()
        if "ratelimit" in name and "remaining" in name and header_number(left) == 0
    ]
    longest_s = max((wait_s for wait_s in waits_s if wait_s is not None), default=0.0)
    return longest_s if longest_s > LONGEST_QUOTA_S else None


def _until_s(text: str | None, now_s: float) -> float | None:
    if not text:
        return None
    value = header_number(text)
    if value is not None:
        return _as_unix_time(value) - now_s if value >= _EPOCH_S else value
    span_s = _span_s(text)
    if span_s is not None:
        return span_s
    try:
        date = datetime.fromisoformat(text)
        return _utc(date).timestamp() - now_s
    except (ValueError, OverflowError):
        return None


def _as_unix_time(number: float) -> float:
    """A number that is Unix time, in seconds or in milliseconds."""
    return number / 1000 if number >= _EPOCH_MS else number


def _unix_time(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return _utc(parsedate_to_datetime(text)).timestamp()
    except (ValueError, OverflowError):
        return None


def _utc(date: datetime) -> datetime:
    return date if date.tzinfo else date.replace(tzinfo=UTC)
