"""A limit that finds what a provider bears. Pure: every time comes with a sample."""

from __future__ import annotations

from typing import Final

from zerowait.client.guard import Guard, Standing
from zerowait.client.limiter import Ending, Sample
from zerowait.client.wall import Wall

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

    It grows by half a round trip after round trip until something stands in the way. A 429 sets it
    to what was accepted, once for all requests that were on their way; from there it asks for one
    more a round, ever more patiently (up to 4 s) at a wall that it knows, faster beyond it. Latency
    stops it where a server queues instead of refusing; see `Guard`. Only successes of requests that
    were sent with 80 % of the slots held are a reason to grow; cancellations, timeouts and 5xx say
    nothing.

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
        self._wall = Wall()
        self._guard = Guard()

    @property
    def limit(self) -> int:
        """The number of slots; `why` says what changed it last."""
        return int(self._value)

    def observe(self, sample: Sample) -> None:
        """Take note of an attempt that ended."""
        if sample.ending is Ending.OVERLOADED:
            self._cut(sample)
            return
        self._wall.left()
        if sample.ending is Ending.SUCCEEDED:
            self._learn(sample)

    def _cut(self, sample: Sample) -> None:
        latency_s = self._latency_s or 1.0
        accepted = self._wall.hit(sample, latency_s=latency_s)
        self._climb.calm()
        self._guard.interrupt(sample.ended_s, latency_s)
        if accepted < self._value:
            self._set(accepted, f"429 with {accepted} accepted")

    def _learn(self, sample: Sample) -> None:
        took_s = sample.ended_s - sample.sent_s
        before_s = took_s if self._latency_s is None else self._latency_s
        self._latency_s = latency_s = before_s + _SMOOTHING * (took_s - before_s)
        saturated = sample.occupancy >= _SATURATED
        value = self._value
        standing = Standing(value, self._climb.ramping, self._wall.is_near(value), latency_s)
        advice = self._guard.observe(sample, standing, saturated=saturated)
        if advice is not None:
            self._climb.calm()
            self._set(advice.limit, advice.why)
        elif not self._guard.allows_growth(sample):
            self._climb.shorten()
        elif saturated and self._wall.may_probe(sample):
            self._grow()

    def _grow(self) -> None:
        self._set(self._value + self._climb.gain(self._value), "answers came as fast as before")
        if not self._climb.ramping and self._wall.is_behind(self._value):
            self._climb.quicken(self._value)

    def _set(self, value: float, why: str) -> None:
        before = self.limit
        self._value = min(max(value, self._lowest), self._highest)
        if self.limit != before:
            self.why = why
