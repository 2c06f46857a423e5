"""Warns when a judge writes too slowly for its ``max_tokens`` to fit into the timeout."""

from __future__ import annotations

import logging
from typing import Final

from zerowait.events import Listener, TimeoutTooShort

FEWEST_TOKENS: Final = 64
"""The time of a shorter answer is mostly that of its prompt."""

_FEWEST_ANSWERS: Final = 16
_LOG = logging.getLogger(__name__)


class TimeoutCheck:
    """Warns once when even the fastest answers show that ``max_tokens`` take too long.

    Args:
        judge: its name.
        max_tokens: the longest answer that it may give.
        timeout_s: of one attempt.
        listener: receives the warning.
    """

    def __init__(
        self, judge: str, *, max_tokens: int, timeout_s: float, listener: Listener
    ) -> None:
        self._judge = judge
        self._max_tokens = max_tokens
        self._timeout_s = timeout_s
        self._listener = listener
        self._answers = 0
        self._fastest = 0.0

    def answered(self, tokens: int, latency_s: float) -> None:
        """Count an answer of `tokens` that took `latency_s`; only the first long ones count."""
        if tokens < FEWEST_TOKENS or latency_s <= 0 or self._answers == _FEWEST_ANSWERS:
            return
        self._answers += 1
        self._fastest = max(self._fastest, tokens / latency_s)
        needed_s = self._max_tokens / self._fastest
        if self._answers < _FEWEST_ANSWERS or needed_s <= self._timeout_s:
            return
        _LOG.warning(
            "judge %r writes at most %.0f tokens per second: max_tokens: %d take %.0f s, and "
            "traffic.timeout_s is %g: raise it, or lower max_tokens",
            self._judge,
            self._fastest,
            self._max_tokens,
            needed_s,
            self._timeout_s,
        )
        self._listener(
            TimeoutTooShort(
                judge=self._judge,
                timeout_s=self._timeout_s,
                needed_s=needed_s,
                tokens_per_s=self._fastest,
            )
        )
