"""Fail fast: ends a run whose judges cannot work (``traffic.give_up_after``).

Either the first judgements all failed, or a judge reads token log-probabilities and its endpoint
gives none: then the first reply ends the run.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from zerowait.engine.monitor.failure_reasons import FailureReasons
from zerowait.errors import JudgementError
from zerowait.events import Event, JudgementSettled
from zerowait.types import Abstain, FailureKind, Score

RETRY_AFTER_S: Final = 60.0
"""For so long nothing is judged; samples submitted later are judged again."""

_LOGPROBS: Final = "logprobs"
"""In the reason of a reply without them, and in what a provider that refuses them says."""

_OWN_KINDS: Final = frozenset({FailureKind.BUDGET, FailureKind.CANCELLED, FailureKind.BAD_INPUT})


class JudgementCounts(msgspec.Struct, frozen=True):
    """Failed judgements since the engine was opened, and whether one was ever reached."""

    failed: int = 0
    reached: bool = False


class GiveUpCheck:
    """An event listener that ends a run in which no judgement ever succeeded.

    Retrying does not repair a wrong model name. Verdicts from the cache and verdicts on anchors
    count as successes. Failures that are not the provider's do not count: a spent budget, a
    cancelled caller, a row without what the rubric needs. Engines that share a job count together.

    Args:
        after: failed judgements without a success that end the run; ``off`` or None: never.

    Attributes:
        is_due: whether `check` may end the run.
    """

    def __init__(self, after: int | Literal["off"] | None) -> None:
        self._after = after if isinstance(after, int) else None
        self.is_due = False
        self._reasons = FailureReasons()
        self._own = self._others = JudgementCounts()
        self._forgiven = 0
        self._until_s: float | None = None
        self._never = after in (None, "off")
        self._working: set[str] = set()
        self._unusable = ""

    @property
    def counts(self) -> JudgementCounts:
        """Of this engine alone."""
        return self._own

    @property
    def _failed(self) -> int:
        return self._own.failed + self._others.failed - self._forgiven

    def set_others(self, others: JudgementCounts) -> None:
        """Count the judgements of the other engines of the job, too: this is their latest sum."""
        self._others = others
        self._update()

    def __call__(self, event: Event) -> None:
        """Count a judgement; other events are ignored."""
        if self._never or not isinstance(event, JudgementSettled):
            return
        outcome = event.outcome
        asked = event.source == "asked"
        if isinstance(outcome, Score):
            self._working.add(event.judge)
            self._own = msgspec.structs.replace(self._own, reached=True)
        elif isinstance(outcome, Abstain):
            if _lacks_logprobs(outcome) and event.judge not in self._working:
                self._unusable = f"judge {event.judge!r}: {outcome.detail}"
            if asked and outcome.kind not in _OWN_KINDS:
                self._own = msgspec.structs.replace(self._own, failed=self._own.failed + 1)
                self._reasons.add(outcome)
        else:
            return
        self._update()

    def _update(self) -> None:
        if self._own.reached or self._others.reached:
            self._after = None
        # without a failure of its own it could not say why
        is_over = self._after is not None and self._failed >= self._after
        self.is_due = bool(self._unusable) or (is_over and bool(self._reasons))

    def check(self, now_s: float) -> None:
        """Raise if the run has to end; after `RETRY_AFTER_S` the count starts anew.

        Args:
            now_s: time on the loop's clock.

        Raises:
            JudgementError: no judgement can succeed; it says why.
        """
        if not self.is_due:
            return
        if self._unusable:
            raise JudgementError(
                f"{self._unusable} (to go on without its verdicts, set "
                "traffic: {give_up_after: off})"
            )
        if self._until_s is None:
            self._until_s = now_s + RETRY_AFTER_S
        if now_s < self._until_s:
            raise JudgementError(
                f"the first {self._failed} judgements all failed, and none was ever reached: "
                f"{self._reasons.on_one_line()} "
                "(to go on, set traffic: {give_up_after: off})"
            )
        self.is_due = False
        self._forgiven += self._failed
        self._until_s, self._reasons = None, FailureReasons()


def _lacks_logprobs(outcome: Abstain) -> bool:
    return outcome.kind is FailureKind.HTTP_ERROR and _LOGPROBS in outcome.detail
