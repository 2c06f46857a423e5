"""Why judgements were not reached, in the providers' words, and when a run has to end for it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final, Literal

from zerowait.errors import JudgementError
from zerowait.events import Event, JudgementSettled
from zerowait.types import Abstain, FailureKind, Score

AGAIN_AFTER_S: Final = 60.0
"""So long nothing is judged; a service that is asked later than that looks anew."""

_MOST_REASONS: Final = 200
_SHOWN: Final = 3
_OTHER: Final = "other reasons"
_OURS: Final = frozenset({FailureKind.BUDGET, FailureKind.CANCELLED, FailureKind.BAD_INPUT})
_ATTEMPTS: Final = re.compile(r" \(after \d+ attempts?\)")
_IDS: Final = re.compile(r"(?<![\w./-])(?=[\w-]*\d)(?=[\w-]*[a-zA-Z])[\w-]{16,}(?![\w./])")
_NUMBERS: Final = re.compile(
    r"(?<!status )(?<!error )(?<!endings: \[)(?<![\w./:'\-])(?=\d{3}|\d+[.,]\d)\d[\d.,]*(?![\w'])"
)


def failure_reason(failed: Abstain) -> str:
    """The kind and the words of an abstention, alike for all that failed for the same reason.

    >>> reason_of(Abstain("http_error", "http://j: status 404: no model m (after 2 attempts)"))
    'http_error: http://j: status 404: no model m'
    >>> reason_of(Abstain("too_long", "it has 5210 tokens")).endswith("has \u2026 tokens")
    True
    """
    words = _NUMBERS.sub("\u2026", _IDS.sub("\u2026", _ATTEMPTS.sub("", failed.detail)))
    return f"{failed.kind.value}: {words}" if words else failed.kind.value


class Reasons:
    """How often judgements failed for which reason."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, failed: Abstain) -> None:
        """One more judgement failed."""
        reason = failure_reason(failed)
        if reason not in self._counts and len(self._counts) >= _MOST_REASONS:
            reason = f"{failed.kind.value}: {_OTHER}"
        self._counts[reason] += 1

    def most_common(self) -> dict[str, int]:
        """The counts, the most frequent first."""
        return dict(self._counts.most_common())


def reasons_on_one_line(reasons: Mapping[str, int], *, most: int = _SHOWN) -> str:
    """The most frequent reasons on one line.

    >>> told({"timeout": 7, "http_error: status 404": 90})
    '90 x http_error: status 404; 7 x timeout'
    """
    ordered = sorted(reasons.items(), key=lambda item: -item[1])
    parts = [f"{count} x {reason}" for reason, count in ordered[:most]]
    left = sum(count for _, count in ordered[most:])
    return "; ".join([*parts, *([f"{left} x {_OTHER}"] if left else [])])


class NothingReached:
    """Ends a run in which nothing was ever judged: waiting does not mend a wrong model's name.

    It listens to events. Verdicts from the cache count, and so do those on anchors. Failures of our
    own making do not: a spent budget, a caller that gave up, a row without what the rubric needs.

    Args:
        after: so many judgements failed, and not one was reached.
    """

    def __init__(self, after: int | Literal["off"] | None) -> None:
        self._after = after if isinstance(after, int) else None
        self.is_due = False
        self._reasons = Reasons()
        self._failed = 0
        self._until_s: float | None = None

    def __call__(self, event: Event) -> None:
        """Count a judgement."""
        if self._after is None or not isinstance(event, JudgementSettled):
            return
        outcome = event.outcome
        if isinstance(outcome, Score):
            self._after = None
            self.is_due = False
            return
        asked = event.source == "asked"
        if asked and isinstance(outcome, Abstain) and outcome.kind not in _OURS:
            self._failed += 1
            self.is_due = self._failed >= self._after
            self._reasons.add(outcome)

    def check(self, now_s: float) -> None:
        """Nothing, unless the run has to end.

        Raises:
            JudgementError: the first judgements all failed, and why.
        """
        if not self.is_due:
            return
        if self._until_s is None:
            self._until_s = now_s + AGAIN_AFTER_S
        if now_s < self._until_s:
            raise JudgementError(
                f"the first {self._failed} judgements all failed, and none was ever reached: "
                f"{reasons_on_one_line(self._reasons.most_common())} "
                "(traffic: {give_up_after: off} goes on)"
            )
        self.is_due = False
        self._failed, self._until_s, self._reasons = 0, None, Reasons()
