"""Why judgements failed: counts by kind and by the providers' own words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

from zerowait.types import Abstain

_MOST_REASONS: Final = 200
_SHOWN: Final = 3
_OTHER: Final = "other reasons"
_ATTEMPTS: Final = re.compile(r" \(after \d+ attempts?\)")
_IDS: Final = re.compile(r"(?<![\w./-])(?=[\w-]*\d)(?=[\w-]*[a-zA-Z])[\w-]{16,}(?![\w./])")
_NUMBERS: Final = re.compile(
    r"(?<!status )(?<!error )(?<!endings: \[)(?<![\w./:'\-])(?=\d{3}|\d+[.,]\d)\d[\d.,]*(?![\w'])"
)


def failure_words(detail: str) -> str:
    """The words of an abstention, without numbers and ids that differ per request.

    >>> failure_words("$0.0034 are spent, and this request may cost $0.0006 (after 2 attempts)")
    '$\u2026 are spent, and this request may cost $\u2026'
    """
    return _NUMBERS.sub("\u2026", _IDS.sub("\u2026", _ATTEMPTS.sub("", detail)))


def failure_reason(failed: Abstain) -> str:
    """The kind and the words of an abstention, without numbers and ids that differ per request.

    >>> failure_reason(Abstain("http_error", "http://j: status 404: no model m (after 2 attempts)"))
    'http_error: http://j: status 404: no model m'
    >>> failure_reason(Abstain("too_long", "it has 5210 tokens")).endswith("has \u2026 tokens")
    True
    """
    words = failure_words(failed.detail)
    return f"{failed.kind.value}: {words}" if words else failed.kind.value


class FailureReasons:
    """Counts of failed judgements by reason."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._latest = ""

    def __bool__(self) -> bool:
        """Whether any was counted."""
        return bool(self._counts)

    def add(self, failed: Abstain) -> None:
        """Count one failed judgement."""
        self._latest = failed.detail
        reason = failure_reason(failed)
        if reason not in self._counts and len(self._counts) >= _MOST_REASONS:
            reason = f"{failed.kind.value}: {_OTHER}"
        self._counts[reason] += 1

    def on_one_line(self) -> str:
        """The most frequent reasons; the latest message in full where its numbers are left out."""
        line = reasons_on_one_line(self._counts)
        full = _ATTEMPTS.sub("", self._latest)
        return line if full in line else f"{line}; the last one in full: {full}"

    def most_common(self) -> dict[str, int]:
        """The counts, the most frequent first."""
        return dict(self._counts.most_common())


def reasons_on_one_line(reasons: Mapping[str, int], *, most: int = _SHOWN) -> str:
    """The most frequent reasons on one line.

    >>> reasons_on_one_line({"timeout": 7, "http_error: status 404": 90})
    '90 x http_error: status 404; 7 x timeout'
    """
    ordered = sorted(reasons.items(), key=lambda item: -item[1])
    parts = [f"{count} x {reason}" for reason, count in ordered[:most]]
    left = sum(count for _, count in ordered[most:])
    return "; ".join([*parts, *([f"{left} x {_OTHER}"] if left else [])])
