"""A token bucket, and the guess of how many tokens a request will cost. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

_BURST_S: Final = 1.0
_ROUNDING: Final = 1e-6
_BYTES_PER_TOKEN: Final = 4.0
_SMOOTHING: Final = 0.02
_KNOWN: Final = 20


class Bucket:
    """`per_minute` units, refilled evenly; it holds one second's worth, and starts full.

    Whoever wants more than it holds gets it when it is full, and those who follow wait until the
    debt is paid.

    >>> bucket = Bucket(60.0, now_s=0.0)
    >>> bucket.take(1.0)
    >>> bucket.missing_s(1.0, now_s=0.25)
    0.75
    """

    def __init__(self, per_minute: float, *, now_s: float) -> None:
        self.per_minute = per_minute
        self._at_s = now_s
        self._level = self._capacity

    @property
    def _rate(self) -> float:
        return self.per_minute / 60.0

    @property
    def _capacity(self) -> float:
        return max(self._rate * _BURST_S, 1.0)

    def missing_s(self, cost: float, *, now_s: float) -> float:
        """Seconds until `cost` may be taken; 0 when it may be taken now."""
        self._refill(now_s)
        missing = min(cost, self._capacity) - self._level
        return missing / self._rate if missing > _ROUNDING else 0.0

    def take(self, cost: float) -> None:
        """Take `cost`, or give back what a negative one says."""
        self._level = min(self._level - cost, self._capacity)

    def change(self, per_minute: float, *, now_s: float) -> None:
        """From now on `per_minute`."""
        self._refill(now_s)
        self.per_minute = per_minute
        self._level = min(self._level, self._capacity)

    def dry_until(self, until_s: float, *, now_s: float) -> None:
        """Nothing is left, and there will not be one unit before `until_s`."""
        self._refill(now_s)
        self._level = min(self._level, 1.0 - (until_s - now_s) * self._rate)

    def _refill(self, now_s: float) -> None:
        self._level = min(self._level + (now_s - self._at_s) * self._rate, self._capacity)
        self._at_s = now_s


class _Asked(msgspec.Struct):
    max_tokens: int | None = None
    max_completion_tokens: int | None = None


_request = msgspec.json.Decoder(_Asked)


class Guess:
    """How many tokens a request will cost: learned from what earlier ones did cost.

    The prompt is guessed from its bytes, the answer from the mean of the answers so far; before
    20 are known, from the ``max_tokens`` that the request allows.

    >>> Guess().of(b'{"max_tokens": 100}')
    104.75
    """

    def __init__(self) -> None:
        self._known = 0
        self._tokens_per_byte = 1.0 / _BYTES_PER_TOKEN
        self._completion = 0.0

    def of(self, request: bytes) -> float:
        """The guess for a request's encoded body."""
        prompt = len(request) * self._tokens_per_byte
        return prompt + (self._completion if self._known >= _KNOWN else _allowed(request))

    def observe(self, request: bytes, prompt_tokens: int, completion_tokens: int) -> None:
        """Learn from what `request` did cost."""
        self._known += 1
        share = max(_SMOOTHING, 1.0 / self._known)
        self._completion += share * (completion_tokens - self._completion)
        if prompt_tokens > 0:
            ratio = prompt_tokens / max(1, len(request))
            self._tokens_per_byte += share * (ratio - self._tokens_per_byte)


def _allowed(request: bytes) -> float:
    try:
        asked = _request.decode(request)
    except msgspec.MsgspecError:
        return 0.0
    return float(asked.max_tokens or asked.max_completion_tokens or 0)
