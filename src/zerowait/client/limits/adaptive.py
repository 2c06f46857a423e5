"""A limit that finds what a provider bears. Pure: every time comes with a sample."""

from __future__ import annotations

import math
from typing import Final

import msgspec

from zerowait.client.limits.limiter import AttemptOutcome, AttemptSample
from zerowait.client.limits.rejections import (
    RefusalFinding,
    RefusalVerdict,
    RefusedShare,
    RejectionCeiling,
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
    """Where the limit stands when a guard is asked.

    Args:
        limit: as of now.
        ramping: it still grows in the fast start.
        walled: a known wall is what bounds it.
        latency_s: the moving mean.
    """

    limit: float
    ramping: bool
    walled: bool
    latency_s: float


class Advice(msgspec.Struct, frozen=True):
    """A limit to take over at once, and why."""

    limit: float
    why: str


class Window:
    """Successes counted over a stretch of time without idle gaps."""

    def __init__(self) -> None:
        self._closed_until_s = -math.inf
        self._began_s = math.nan  # until the first success
        self._last_s = 0.0
        self._latency_sum_s = 0.0
        self._idle = 0
        self.count = 0

    @property
    def mean_s(self) -> float:
        """Mean latency."""
        return self._latency_sum_s / self.count

    @property
    def rate(self) -> float:
        """Successes per second, once `is_full`."""
        return self.count / (self._last_s - self._began_s)

    @property
    def is_busy(self) -> bool:
        """Whether most of it was seen under full load."""
        return 2 * self._idle <= self.count

    def add(self, sample: AttemptSample, *, busy: bool, latency_s: float) -> None:
        """Count a success; the first one only starts the clock."""
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
    """Stops growth when latency says that a queue builds up inside the server.

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
        """Whether the success `sample` gives no reason to stay."""
        return not self.crowded and self._before is None and sample.sent_s >= self._advised_s

    def interrupt(self, now_s: float, latency_s: float) -> None:
        """Forget the open window and the trial: the limit was changed by somebody else."""
        self._before = self._cut = None
        self._window.restart(not_before_s=now_s + latency_s)
        self._next_trial_s = max(self._next_trial_s, now_s + _TRIAL_EVERY_S)

    def observe(self, sample: AttemptSample, at: LimitState, *, saturated: bool) -> Advice | None:
        """A limit to take over, or None. Successes under little load give no advice."""
        if self._cut is not None and sample.sent_s < self._advised_s:
            return None  # it stood in the queue that was cut
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
        doubtful = not at.walled or mean_s > _DOUBTFUL * self._base_s
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
_FAST: Final = 0.6
_STEEPEST: Final = 0.25


class Ramp:
    """How fast a limit grows: by half a round in the fast start, later by a step a round."""

    def __init__(self) -> None:
        self.ramping = True
        self._step = 1.0

    def gain(self, limit: float) -> float:
        """What one more success adds to `limit`."""
        return _FAST if self.ramping else self._step / limit

    def quicken(self, limit: float) -> None:
        """Nothing stood in the way: longer steps, up to a quarter of `limit` a round."""
        self._step = min(self._step * (1 + 1 / limit), max(1.0, _STEEPEST * limit))

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
    `LatencyGradient`. Only successes of requests that were sent with 80 % of the slots held are a
    reason to grow; cancellations, timeouts and 5xx say nothing.

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
        self._climb = Ramp()
        self._ceiling = RejectionCeiling()
        self._share = RefusedShare()
        self._guard = LatencyGradient()
        self._uncut: tuple[float, bool] | None = None  # limit and ramp before the last cut

    @property
    def limit(self) -> int:
        """The number of slots; `why` says what changed it last."""
        return int(self._value)

    @property
    def frees_refused(self) -> bool:
        """Whether refusals are known not to come from how many are in flight."""
        return not (self._ceiling.is_suspected or self._share.is_suspected)

    def sent(self, number: int, others: int) -> None:
        """Take note of the send of that number, with `others` on the wire."""
        self._ceiling.sent(number, others)
        self._follow(self._share.sent(number))

    def observe(self, sample: AttemptSample) -> None:
        """Take note of an attempt that ended."""
        if sample.ending is AttemptOutcome.OVERLOADED:
            self._refused(sample)
            return
        if self._ceiling.ended(sample):
            self._uncut_to("as many were accepted after all")
        if sample.ending is AttemptOutcome.SUCCEEDED:
            self._learn(sample)

    def recover(self) -> None:
        """The endpoint was away and is back: what it refused before has taught nothing."""
        self._ceiling.forget()
        self._share.forget()
        self._uncut_to("the endpoint is back")

    def _refused(self, sample: AttemptSample) -> None:
        latency_s = self._latency_s or 1.0
        accepted = self._ceiling.refused(sample, self._value, latency_s=latency_s)
        if accepted is None or self._share.on_trial:
            self._follow(self._share.refused(sample, self._value), sample.ended_s)
            return
        self._share.forget()
        if accepted < self._value:
            self._cut(accepted, f"429 with {accepted} accepted", sample.ended_s)

    def _follow(self, verdict: RefusalVerdict | None, now_s: float = 0.0) -> None:
        """Take over what the share of refusals says."""
        if verdict is None:
            return
        if verdict.finding is RefusalFinding.TRY:
            self._uncut = None
            self._cut(verdict.limit, verdict.finding.value, now_s)
        elif verdict.finding is RefusalFinding.INDEPENDENT:
            self._ceiling.restart()
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

    def _learn(self, sample: AttemptSample) -> None:
        took_s = sample.ended_s - sample.sent_s
        before_s = took_s if self._latency_s is None else self._latency_s
        self._latency_s = latency_s = before_s + _SMOOTHING * (took_s - before_s)
        saturated = sample.occupancy >= _SATURATED
        value = self._value
        standing = LimitState(value, self._climb.ramping, self._ceiling.is_near(value), latency_s)
        advice = self._guard.observe(sample, standing, saturated=saturated)
        if advice is not None:
            self._climb.calm()
            self._uncut = None
            self._set(advice.limit, advice.why)
        elif not self._may_grow(sample):
            self._climb.shorten()
        elif saturated and self._ceiling.may_probe(sample):
            self._grow()

    def _may_grow(self, sample: AttemptSample) -> bool:
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
