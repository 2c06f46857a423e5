"""What latency teaches: past its knee a server gives no more answers, only later ones. Pure."""

from __future__ import annotations

import math
from typing import Final

import msgspec

from zerowait.client.limiter import Sample

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


class Standing(msgspec.Struct, frozen=True):
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

    def add(self, sample: Sample, *, busy: bool, latency_s: float) -> None:
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


class Guard:
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

    def allows_growth(self, sample: Sample) -> bool:
        """Whether the success `sample` gives no reason to stay."""
        return not self.crowded and self._before is None and sample.sent_s >= self._advised_s

    def interrupt(self, now_s: float, latency_s: float) -> None:
        """Forget the open window and the trial: the limit was changed by somebody else."""
        self._before = self._cut = None
        self._window.restart(not_before_s=now_s + latency_s)
        self._next_trial_s = max(self._next_trial_s, now_s + _TRIAL_EVERY_S)

    def observe(self, sample: Sample, at: Standing, *, saturated: bool) -> Advice | None:
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

    def _judge(self, window: Window, at: Standing, now_s: float) -> Advice | None:
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
