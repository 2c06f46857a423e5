"""A limit that finds what a provider bears. Pure: every time comes with a sample."""

from __future__ import annotations

from typing import Final

from zerowait.client.guard import Guard, Standing
from zerowait.client.limiter import Ending, Sample
from zerowait.client.rejections import Finding, RefusedShare, RejectionCeiling, Verdict

START: Final = 32
_SATURATED: Final = 0.8
_SMOOTHING: Final = 0.05
_FAST: Final = 0.5
_STEEPEST: Final = 0.25


class Climb:
    """How fast a limit grows: by half a round in the fast start, later by a step a round."""

    def __init__(self) -> None:
        self.ramping = True
        self._step = 1.0

    def gain(self, limit: float) -> float:
        """What one more success adds to `limit`."""
        return _FAST if self.ramping else self._step / limit

    def quicken(self, limit: float) -> None:
        """Nothing stood in the way: longer steps, up to a quarter of `limit` a round."""
        self._step = min(self._step * (1 + 2 / limit), max(1.0, _STEEPEST * limit))

    def calm(self) -> None:
        """From here on by small steps."""
        self.ramping = False
        self.shorten()

    def shorten(self) -> None:
        """By one a round again, where it does not ramp."""
        self._step = 1.0


class AdaptiveLimit:
    """As many slots as the provider bears, learned from 429s and from latency.

    It grows by half a round trip after round trip until something stands in the way. 429s set it to
    what was accepted where they turn out to come from the number in flight (`RejectionCeiling`) or
    from the rate (`RefusedShare`), and do not move it where fewer requests are refused no less.
    From a ceiling it asks for one more a round, ever more patiently (up to 4 s) while that is
    refused, faster beyond it. Latency stops it where a server queues instead of refusing; see
    `Guard`. Only successes of requests that were sent with 80 % of the slots held are a reason to
    grow; cancellations, timeouts and 5xx say nothing.

    Args:
        start: slots before anything is known.
        lowest: it never goes below.
        highest: it never goes above.

    Raises:
        ValueError: not ``1 <= lowest <= start <= highest``.
    """

    def __init__(self, *, start: int = START, lowest: int = 1, highest: int = 1024) -> None:
        if not 1 <= lowest <= start <= highest:
            raise ValueError(f"need 1 <= {lowest} <= {start} <= {highest}")
        self.why = "start"
        self._value = float(start)
        self._lowest = lowest
        self._highest = highest
        self._latency_s: float | None = None
        self._climb = Climb()
        self._ceiling = RejectionCeiling()
        self._share = RefusedShare()
        self._guard = Guard()
        self._uncut: tuple[float, bool] | None = None  # limit and ramp before the last cut

    @property
    def limit(self) -> int:
        """The number of slots; `why` says what changed it last."""
        return int(self._value)

    @property
    def frees_refused(self) -> bool:
        """Whether refusals are known not to come from how many are in flight."""
        return self._share.background > 0

    def sent(self, number: int, others: int) -> None:
        """Take note of the send of that number, with `others` on the wire."""
        self._ceiling.sent(number, others)
        self._follow(self._share.sent(number))

    def observe(self, sample: Sample) -> None:
        """Take note of an attempt that ended."""
        if sample.ending is Ending.OVERLOADED:
            self._refused(sample)
            return
        if self._ceiling.ended(sample):
            self._uncut_to("as many were accepted after all")
        if sample.ending is Ending.SUCCEEDED:
            self._learn(sample)

    def recover(self) -> None:
        """The endpoint was away and is back: what it refused before has taught nothing."""
        self._ceiling.forget()
        self._share.forget()
        self._uncut_to("the endpoint is back")

    def _refused(self, sample: Sample) -> None:
        latency_s = self._latency_s or 1.0
        accepted = self._ceiling.refused(sample, self._value, latency_s=latency_s)
        if accepted is None or self._share.on_trial:
            self._follow(self._share.refused(sample, self._value), sample.ended_s)
            return
        self._share.forget()
        if accepted < self._value:
            self._cut(accepted, f"429 with {accepted} accepted", sample.ended_s)

    def _follow(self, verdict: Verdict | None, now_s: float = 0.0) -> None:
        """Take over what the share of refusals says."""
        if verdict is None:
            return
        if verdict.finding is Finding.TRY:
            self._cut(verdict.limit, verdict.finding.value, now_s)
        elif verdict.finding is Finding.INDEPENDENT:
            self._uncut_to(verdict.finding.value)
        else:
            self._uncut = None
            self._set(max(verdict.limit, self._value), verdict.finding.value)

    def _cut(self, limit: float, why: str, now_s: float) -> None:
        latency_s = self._latency_s or 1.0
        if self._uncut is None or self._uncut[0] < self._value:
            self._uncut = self._value, self._climb.ramping
        self._climb.calm()
        self._guard.interrupt(now_s, latency_s)
        self._ceiling.hold(now_s, 0.0)
        self._set(limit, why)

    def _uncut_to(self, why: str) -> None:
        """Take the last cut back: it was for nothing."""
        if self._uncut is None:
            return
        (limit, self._climb.ramping), self._uncut = self._uncut, None
        self._set(max(limit, self._value), why)

    def _learn(self, sample: Sample) -> None:
        took_s = sample.ended_s - sample.sent_s
        before_s = took_s if self._latency_s is None else self._latency_s
        self._latency_s = latency_s = before_s + _SMOOTHING * (took_s - before_s)
        saturated = sample.occupancy >= _SATURATED
        value = self._value
        standing = Standing(value, self._climb.ramping, self._ceiling.is_near(value), latency_s)
        advice = self._guard.observe(sample, standing, saturated=saturated)
        if advice is not None:
            self._climb.calm()
            self._uncut = None
            self._set(advice.limit, advice.why)
        elif not self._may_grow(sample):
            self._climb.shorten()
        elif saturated and self._ceiling.may_probe(sample):
            self._grow()

    def _may_grow(self, sample: Sample) -> bool:
        may = self._share.allows_growth(ramping=self._climb.ramping)
        return may and self._guard.allows_growth(sample)

    def _grow(self) -> None:
        self._uncut = None
        self._set(self._value + self._climb.gain(self._value), "answers came as fast as before")
        if not self._climb.ramping and self._ceiling.is_behind(self._value):
            self._climb.quicken(self._value)

    def _set(self, value: float, why: str) -> None:
        before = self.limit
        self._value = min(max(value, self._lowest), self._highest)
        if self.limit != before:
            self.why = why
