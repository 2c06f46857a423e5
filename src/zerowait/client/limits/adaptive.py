"""A limit that finds what a provider bears. Pure: every time comes with a sample."""

from __future__ import annotations

import math
from typing import Final

import msgspec

from zerowait.client.limits.limiter import AttemptOutcome, AttemptSample
from zerowait.client.limits.rejections import (
    LimitChange,
    RejectionCeiling,
    RejectionFinding,
    RejectionRate,
)

SHORTEST_WINDOW: Final = 128
_CROWDED: Final = 2.0
_OVERCROWDED: Final = 3.0
_DOUBTFUL: Final = 1.3
_ROOM: Final = 1.4
_DRIFT: Final = 1.003
_LESS: Final = 0.8
_AS_FAST: Final = 0.95
_TRIAL_EVERY_S: Final = 20.0
_IDLE_LATENCIES: Final = 4.0


class LimitState(msgspec.Struct, frozen=True):
    """The limit and what bounds it, as the latency gradient sees them.

    Args:
        limit: slots as of now.
        ramping: whether it still grows in the fast start.
        at_ceiling: whether a known ceiling of 429s is what bounds it.
        latency_s: the moving mean of the latency.
    """

    limit: float
    ramping: bool
    at_ceiling: bool
    latency_s: float


class Advice(msgspec.Struct, frozen=True):
    """A limit to take over at once, in slots, and the reason in words."""

    limit: float
    why: str


class Window:
    """Count, rate and mean latency of the successes since it began, idle gaps left out."""

    def __init__(self) -> None:
        self._closed_until_s = -math.inf
        self._began_s = math.nan  # until the first success
        self._last_s = 0.0
        self._latency_sum_s = 0.0
        self._idle = 0
        self.count = 0

    @property
    def mean_s(self) -> float:
        """Mean latency in seconds, once `is_full`."""
        return self._latency_sum_s / self.count

    @property
    def rate(self) -> float:
        """Successes per second, once `is_full`."""
        return self.count / (self._last_s - self._began_s)

    @property
    def is_busy(self) -> bool:
        """Whether at least half of the successes were seen under full load."""
        return 2 * self._idle <= self.count

    def add(self, sample: AttemptSample, *, busy: bool, latency_s: float) -> None:
        """Count a success; the first one only starts the clock.

        Args:
            sample: the success.
            busy: whether it was sent and ended under full load.
            latency_s: the moving mean: a gap of more than four times that is idle.
        """
        now_s = sample.ended_s
        idle_s = now_s - self._last_s
        if math.isnan(self._began_s) or idle_s > _IDLE_LATENCIES * latency_s:
            if now_s >= self._closed_until_s:
                self.restart()
                self._began_s = self._last_s = now_s
            return
        self._last_s = now_s
        self.count += 1
        self._latency_sum_s += now_s - sample.sent_s
        self._idle += not busy

    def is_full(self, count: float) -> bool:
        """Whether `count` successes were seen, over more than an instant."""
        return self.count >= count and self._last_s > self._began_s

    def restart(self, *, not_before_s: float = -math.inf) -> None:
        """Begin anew with the first success from `not_before_s` on."""
        self._closed_until_s = max(self._closed_until_s, not_before_s)
        self._began_s = math.nan
        self._latency_sum_s = 0.0
        self._idle = self.count = 0


class LatencyGradient:
    """Finds from the latency whether a queue builds up inside the server, and advises a limit.

    The base is the least mean latency of a window. At twice the base the limit grows no more; at
    three times (in the fast start: at twice) it becomes what Little's law needs for the measured
    throughput, and 40 % more. When latency does not fall with it, the answers themselves take
    longer, and the limit and the base are set right again. Because the base may itself have been
    measured in a crowd, every 20 s a limit lower by a fifth is tried for a round; it is kept if the
    throughput did not fall by 5 %, and else the latency of that round becomes the base.

    Reference:
        Little 1961, "A proof for the queuing formula: L = λW".
    """

    def __init__(self) -> None:
        self.crowded = False
        self._window = Window()
        self._seen_one = False
        self._base_s = math.inf
        self._next_trial_s = -math.inf
        self._advised_s = -math.inf
        self._before: tuple[float, float] | None = None  # limit and rate before a trial
        self._cut: tuple[float, float] | None = None  # limit and mean latency before a cut

    def allows_growth(self, sample: AttemptSample) -> bool:
        """Whether the latency after the success `sample` allows a higher limit."""
        return not self.crowded and self._before is None and sample.sent_s >= self._advised_s

    def interrupt(self, now_s: float, latency_s: float) -> None:
        """Drop the open window and the trial: the limit was changed for another reason."""
        self._before = self._cut = None
        self._window.restart(not_before_s=now_s + latency_s)
        self._next_trial_s = max(self._next_trial_s, now_s + _TRIAL_EVERY_S)

    def observe(self, sample: AttemptSample, at: LimitState, *, saturated: bool) -> Advice | None:
        """A limit to take over after the success `sample`, or None.

        Args:
            sample: the success.
            at: the limit and what bounds it.
            saturated: whether it was sent under load; other successes give no advice.
        """
        if self._cut is not None and sample.sent_s < self._advised_s:
            return None  # it was sent before the cut, and waited in the server's queue
        busy = saturated and 2 * (sample.on_wire + 1) >= at.limit
        self._window.add(sample, busy=busy, latency_s=at.latency_s)
        size = max(SHORTEST_WINDOW, at.limit * (0.5 if at.ramping else 1.0))
        if not saturated or not self._window.is_full(size):
            return None
        window, self._window = self._window, Window()
        if not self._seen_one:  # only short calls have come back yet
            self._seen_one = True
            return None
        self._base_s = min(window.mean_s, self._base_s * _DRIFT)
        if not window.is_busy:
            self._before = self._cut = None
            return None
        advice = self._judge(window, at, sample.ended_s)
        if advice is not None:
            self._advised_s = sample.ended_s
            self._window.restart(not_before_s=sample.ended_s + 1.25 * at.latency_s)
        return advice

    def _judge(self, window: Window, at: LimitState, now_s: float) -> Advice | None:
        if self._before is not None:
            before, self._before = self._before, None
            return self._after_trial(before, window, now_s)
        mean_s = window.mean_s
        if self._cut is not None:
            (limit, before_s), self._cut = self._cut, None
            as_a_queue_s = before_s * at.limit / limit
            if at.limit < _LESS * limit and mean_s > (before_s + as_a_queue_s) / 2:
                self._base_s = mean_s
                self.crowded = False
                return Advice(limit, "answers take as long with less in flight")
        self.crowded = mean_s > _CROWDED * self._base_s
        if mean_s > _OVERCROWDED * self._base_s or (at.ramping and self.crowded):
            self._next_trial_s = now_s + _TRIAL_EVERY_S
            needed = _ROOM * window.rate * self._base_s
            self._cut = (at.limit, mean_s)
            why = f"latency {mean_s:.2f} s is {mean_s / self._base_s:.1f} times the least"
            return Advice(min(at.limit, needed), why)
        doubtful = not at.at_ceiling or mean_s > _DOUBTFUL * self._base_s
        if at.ramping or not doubtful or now_s < self._next_trial_s:
            return None
        self._before = (at.limit, window.rate)
        return Advice(at.limit * _LESS, "trying whether less in flight is as fast")

    def _after_trial(
        self, before: tuple[float, float], window: Window, now_s: float
    ) -> Advice | None:
        limit, rate = before
        if window.rate >= _AS_FAST * rate:
            self._next_trial_s = now_s
            return None
        self._next_trial_s = now_s + _TRIAL_EVERY_S
        self._base_s = window.mean_s
        self.crowded = False
        return Advice(limit, "less in flight was slower")


START: Final = 32
_SATURATED: Final = 0.8
_SMOOTHING: Final = 0.05
_FAST: Final = 0.5
_LEAP: Final = 8
_STEEPEST: Final = 0.25


class Ramp:
    """How fast a limit grows: by half a round trip at first, later by one step a round."""

    def __init__(self) -> None:
        self.ramping = True
        self._step = 1.0

    def gain(self, limit: float) -> float:
        """How many slots one more success adds to `limit`."""
        return _FAST if self.ramping else self._step / limit

    def accelerate(self, limit: float) -> None:
        """Lengthen the step, up to a quarter of `limit` a round: nothing has stood in the way."""
        self._step = min(self._step * (1 + 0.5 / limit), max(1.0, _STEEPEST * limit))

    def leap(self, limit: float) -> None:
        """Lengthen the step to an eighth of `limit`: a ceiling that stood in the way is gone."""
        self._step = max(self._step, limit / _LEAP)

    def slow_down(self) -> None:
        """End the fast start: from here on by one a round."""
        self.ramping = False
        self.reset()

    def reset(self) -> None:
        """Set the step back to one a round, where the fast start is over."""
        self._step = 1.0


class AdaptiveLimit:
    """As many slots as the provider bears, learned from 429s and from latency.

    It grows by half each round trip until something stands in the way. 429s set it to what
    was accepted where they come from the number in flight (`RejectionCeiling`) or from the rate
    (`RejectionRate`), and do not move it where a lower limit is rejected no less. From a ceiling it
    grows by one a round, with pauses of up to 3 s while that is rejected, and beyond it by an
    eighth to a quarter. Latency stops it where a server queues instead of rejecting
    (`LatencyGradient`).
    Only successes of requests that were sent with 80 % of the slots held are a reason to grow;
    cancellations, timeouts and 5xx change nothing.

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
        self._ramp = Ramp()
        self._ceiling = RejectionCeiling()
        self._share = RejectionRate()
        self._gradient = LatencyGradient()
        self._before_cut: tuple[float, bool] | None = None  # limit and ramp before the cuts

    @property
    def limit(self) -> int:
        """The number of slots; `why` says what changed it last."""
        return int(self._value)

    @property
    def frees_rejected(self) -> bool:
        """Whether nothing speaks for rejections that come from how many are in flight.

        A slot that is given back sends another request at once, which would be rejected as well
        where too many are in flight, and costs nothing where rejections have other reasons.
        """
        return not (self._ceiling.is_suspected or self._share.is_suspected)

    def sent(self, number: int, others: int) -> None:
        """Take note of the send of that number, with `others` on the wire."""
        self._ceiling.sent(number, others)
        self._apply(self._share.sent(number))

    def observe(self, sample: AttemptSample) -> None:
        """Take note of an attempt that ended."""
        if sample.ending is AttemptOutcome.OVERLOADED:
            self._rejected(sample)
            return
        if self._ceiling.ended(sample) and not self._share.on_trial:
            self._undo_cut("as many were accepted after all")
            if self._share.is_behind(self._value):
                self._ramp.leap(self._value)
        if sample.ending is AttemptOutcome.SUCCEEDED:
            self._succeeded(sample)

    def recover(self) -> None:
        """Take note that the endpoint was away and is back: drop what its rejections had taught."""
        self._ceiling.forget()
        self._share.forget()
        self._undo_cut("the endpoint is back")

    def _rejected(self, sample: AttemptSample) -> None:
        latency_s = self._latency_s or 1.0
        accepted = self._ceiling.rejected(
            sample, self._value, latency_s=latency_s, by_chance=self._share.background > 0
        )
        if accepted is None or self._share.on_trial:
            self._apply(self._share.rejected(sample, self._value), sample.ended_s)
            return
        self._share.forget()
        if accepted < self._value:
            self._cut(accepted, f"429 with {accepted} accepted", sample.ended_s)

    def _apply(self, verdict: LimitChange | None, now_s: float = 0.0) -> None:
        """Set the limit to what the share of rejections says."""
        if verdict is None:
            return
        if verdict.finding is RejectionFinding.TRY:
            self._before_cut = None
            self._cut(verdict.limit, verdict.finding.value, now_s)
        elif verdict.finding is RejectionFinding.INDEPENDENT:
            self._ceiling.restart()
            self._undo_cut(verdict.finding.value)
        else:
            self._before_cut = None
            self._set(max(verdict.limit, self._value), verdict.finding.value)

    def _cut(self, limit: float, why: str, now_s: float) -> None:
        latency_s = self._latency_s or 1.0
        if self._before_cut is None or self._before_cut[0] < self._value:
            self._before_cut = self._value, self._ramp.ramping
        self._ramp.slow_down()
        self._gradient.interrupt(now_s, latency_s)
        self._ceiling.hold(now_s, 0.0)
        self._set(limit, why)

    def _undo_cut(self, why: str) -> None:
        """Set the limit back to what it was before the last cut, which was a mistake."""
        if self._before_cut is None:
            return
        (limit, self._ramp.ramping), self._before_cut = self._before_cut, None
        self._set(max(limit, self._value), why)

    def _succeeded(self, sample: AttemptSample) -> None:
        took_s = sample.ended_s - sample.sent_s
        before_s = took_s if self._latency_s is None else self._latency_s
        self._latency_s = latency_s = before_s + _SMOOTHING * (took_s - before_s)
        saturated = sample.occupancy >= _SATURATED
        value = self._value
        state = LimitState(value, self._ramp.ramping, self._ceiling.is_near(value), latency_s)
        advice = self._gradient.observe(sample, state, saturated=saturated)
        if advice is not None:
            self._ramp.slow_down()
            self._before_cut = None
            self._set(advice.limit, advice.why)
        elif not self._may_grow(sample):
            self._ramp.reset()
        elif saturated and self._ceiling.may_probe(sample):
            self._grow()

    def _may_grow(self, sample: AttemptSample) -> bool:
        may = self._share.allows_growth(ramping=self._ramp.ramping)
        return may and self._gradient.allows_growth(sample)

    def _grow(self) -> None:
        self._before_cut = None
        self._set(self._value + self._ramp.gain(self._value), "answers came as fast as before")
        if self._ramp.ramping or not self._share.is_behind(self._value):
            return
        had_ceiling = self._ceiling.height is not None
        if self._ceiling.is_behind(self._value):
            self._ramp.accelerate(self._value)
            if had_ceiling:
                self._ramp.leap(self._value)

    def _set(self, value: float, why: str) -> None:
        before = self.limit
        self._value = min(max(value, self._lowest), self._highest)
        if self.limit != before:
            self.why = why
