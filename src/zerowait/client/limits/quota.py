"""The provider's requests and tokens per minute: waited for on our side, before a slot is taken."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from zerowait.client.headers import LONGEST_QUOTA_S, header_number
from zerowait.pictures import pictures_in

_BURST_S: Final = 1.0
_ROUNDING: Final = 1e-6
_BYTES_PER_TOKEN: Final = 4.0
_SMOOTHING: Final = 0.02
_KNOWN: Final = 20


class TokenBucket:
    """`per_minute` units, refilled evenly; it holds one second's worth, and starts full.

    A cost above the capacity is granted when the bucket is full, and the next ones wait until the
    debt is paid.

    >>> bucket = TokenBucket(60.0, now_s=0.0)
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


class TokenEstimate:
    """How many tokens a request will cost: learned from the cost of earlier ones.

    The prompt is estimated from its bytes, those of pictures left out, the answer from the mean of
    the answers so far; before 20 are known, from the ``max_tokens`` that the request allows.

    >>> TokenEstimate().of(b'{"max_tokens": 100}')
    104.75
    """

    def __init__(self) -> None:
        self._known = 0
        self._tokens_per_byte = 1.0 / _BYTES_PER_TOKEN
        self._completion = 0.0

    def of(self, request: bytes) -> float:
        """The estimated tokens of a request, from its encoded body."""
        prompt = (len(request) - pictures_in(request)[1]) * self._tokens_per_byte
        return prompt + (self._completion if self._known >= _KNOWN else _allowed(request))

    def observe(self, request: bytes, prompt_tokens: int, completion_tokens: int) -> None:
        """Learn from what `request` did cost."""
        self._known += 1
        share = max(_SMOOTHING, 1.0 / self._known)
        self._completion += share * (completion_tokens - self._completion)
        if prompt_tokens > 0:
            ratio = prompt_tokens / max(1, len(request) - pictures_in(request)[1])
            self._tokens_per_byte += share * (ratio - self._tokens_per_byte)


def _allowed(request: bytes) -> float:
    try:
        asked = _request.decode(request)
    except msgspec.MsgspecError:
        return 0.0
    return float(asked.max_tokens or asked.max_completion_tokens or 0)


Unit: TypeAlias = Literal["requests", "tokens"]
PerMinute: TypeAlias = float | Literal["off"] | None
"""A number that the user set, ``off``, or None: learn it from the provider's headers."""
_FEWEST: Final[Mapping[Unit, float]] = {"requests": 1.0, "tokens": 1000.0}
"""Less is no quota per minute, and would stop all requests."""


class Reservation:
    """One request's share of the quota: reserved by an estimate, settled by its real cost."""

    __slots__ = ("is_ahead", "tokens", "units")

    def __init__(self, tokens: float, units: int = 0) -> None:
        self.tokens = tokens
        self.units = units  # how many quotas were known when it was made
        self.is_ahead = False  # reserved, and not sent yet


_WaiterQueue: TypeAlias = OrderedDict[asyncio.Future[None], Reservation]


class Quota:
    """Requests and tokens per minute, handed out in the order in which they were asked for.

    Where the user set no number, ``x-ratelimit-limit-requests`` and ``-tokens`` are taken as per
    minute. Every operation takes constant time.

    Args:
        requests: per minute.
        tokens: per minute, prompt and answer.
        ahead: how many may have their share and not be sent yet, because they wait for a slot:
            they would leave all at once. None: as many as come.
        learned: called with the unit and the number when the headers name a new one.
    """

    def __init__(
        self,
        requests: PerMinute = None,
        tokens: PerMinute = None,
        *,
        ahead: int | None = None,
        learned: Callable[[Unit, float], None] | None = None,
    ) -> None:
        self._given: dict[Unit, PerMinute] = {"requests": requests, "tokens": tokens}
        self._buckets: dict[Unit, TokenBucket] = {}
        self._whole: dict[Unit, float] = {}
        self._share = 1.0
        self._learned = learned
        self._may_be_ahead = math.inf if ahead is None else ahead
        self._ahead = 0
        self._estimate = TokenEstimate()
        self._waiters: _WaiterQueue = OrderedDict()
        # Callers that hold a slot go first, because others wait for their slots
        self._slot_holders: _WaiterQueue = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None
        for unit, per_minute in self._given.items():
            if per_minute is not None and per_minute != "off":
                self._whole[unit] = per_minute
                self._buckets[unit] = TokenBucket(per_minute, now_s=0.0)

    @property
    def waiting(self) -> int:
        """Callers that wait for their share."""
        return len(self._slot_holders) + len(self._waiters)

    def per_minute(self, unit: Unit) -> float | None:
        """What is kept to now, set or learned, or None."""
        bucket = self._buckets.get(unit)
        return None if bucket is None else bucket.per_minute

    def divide(self, share: float) -> None:
        """From now on only this share of what is set or learned, in (0, 1], is handed out here."""
        self._share = share
        for unit, bucket in self._buckets.items():
            bucket.change(self._whole[unit] * share, now_s=_now_s())
        self._follow()

    async def reserve(self, body: bytes, *, has_slot: bool = False) -> Reservation:
        """The share that the request `body` is estimated to need, once there is enough.

        Args:
            body: the encoded request.
            has_slot: the caller holds a slot, which others wait for: it goes first.
        """
        reservation = self.try_reserve(body, has_slot=has_slot)
        if reservation is not None:
            return reservation
        reservation = self._reservation_for(body)
        queue = self._slot_holders if has_slot else self._waiters
        waiter = asyncio.get_running_loop().create_future()
        queue[waiter] = reservation
        self._follow()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.give_back(reservation)  # granted just as the caller was cancelled
            else:
                queue.pop(waiter, None)
                self._follow()
            raise
        return reservation

    def try_reserve(self, body: bytes, *, has_slot: bool = False) -> Reservation | None:
        """The same without waiting, or None when others wait or there is not enough."""
        if not self._buckets:
            return Reservation(0.0)
        reservation = self._reservation_for(body)
        others = self._slot_holders or (not has_slot and self._waiters)
        is_full = not has_slot and self._ahead >= self._may_be_ahead
        if others or is_full or self._missing_s(reservation) > 0:
            return None
        self._take(reservation, has_slot=has_slot)
        return reservation

    def is_current(self, reservation: Reservation) -> bool:
        """Whether no quota became known since `reservation` was made."""
        return reservation.units == len(self._buckets)

    def give_back(self, reservation: Reservation) -> None:
        """The request of `reservation` was never sent."""
        if self.is_current(reservation):
            self._pay(reservation, -1)
        self.sent(reservation)

    def sent(self, reservation: Reservation) -> None:
        """The request of `reservation` leaves now."""
        if reservation.is_ahead:
            reservation.is_ahead = False
            self._ahead -= 1
            if self._waiters:
                self._follow()

    def rejected(self, reservation: Reservation) -> None:
        """The request of `reservation` was turned away, which cost it no tokens."""
        self._settle_tokens(reservation, 0.0)

    @property
    def counts_tokens(self) -> bool:
        """Whether it matters what answers cost."""
        return "tokens" in self._buckets

    def settle(self, reservation: Reservation, request: bytes, usage: tuple[int, int]) -> None:
        """The request of `reservation` was answered: book what it did cost.

        Args:
            reservation: what was reserved for it.
            request: its body.
            usage: its prompt and completion tokens; zeros where the reply does not say.
        """
        if self.counts_tokens and any(usage):
            self._estimate.observe(request, *usage)
            self._settle_tokens(reservation, sum(usage))

    def learn_from_headers(
        self, headers: Mapping[str, str], reservation: Reservation, *, dry_s: float
    ) -> None:
        """Learn from the headers of the reply to the request of `reservation`.

        Args:
            headers: with names in lower case.
            reservation: what the request needed.
            dry_s: the wait that a 429 asked for; it holds for all where a quota is used up. One of
                more than a minute is not about a quota per minute, and is the breaker's matter.
        """
        now_s = _now_s()
        for unit, given in self._given.items():
            if given is None:
                self._learn(unit, header_number(headers.get(f"x-ratelimit-limit-{unit}")), now_s)
            bucket = self._buckets.get(unit)
            if bucket is None or not 0 < dry_s <= LONGEST_QUOTA_S:
                continue
            remaining = header_number(headers.get(f"x-ratelimit-remaining-{unit}"))
            if remaining is not None and remaining < (
                1.0 if unit == "requests" else reservation.tokens
            ):
                bucket.dry_until(now_s + dry_s, now_s=now_s)

    def _learn(self, unit: Unit, per_minute: float | None, now_s: float) -> None:
        bucket = self._buckets.get(unit)
        if per_minute is None or per_minute < _FEWEST[unit] or self._whole.get(unit) == per_minute:
            return
        self._whole[unit] = per_minute
        if bucket is None:
            self._buckets[unit] = TokenBucket(per_minute * self._share, now_s=now_s)
        else:
            bucket.change(per_minute * self._share, now_s=now_s)
        if self._learned is not None:
            self._learned(unit, per_minute)
        self._follow()

    def _reservation_for(self, body: bytes) -> Reservation:
        tokens = self._estimate.of(body) if "tokens" in self._buckets else 0.0
        return Reservation(tokens, len(self._buckets))

    def _missing_s(self, reservation: Reservation) -> float:
        now_s = _now_s()
        return max(
            bucket.missing_s(1.0 if unit == "requests" else reservation.tokens, now_s=now_s)
            for unit, bucket in self._buckets.items()
        )

    def _take(self, reservation: Reservation, *, has_slot: bool) -> None:
        self._pay(reservation, 1)
        if not has_slot:
            reservation.is_ahead = True
            self._ahead += 1

    def _pay(self, reservation: Reservation, sign: int) -> None:
        for unit, bucket in self._buckets.items():
            bucket.take(sign * (1.0 if unit == "requests" else reservation.tokens))

    def _settle_tokens(self, reservation: Reservation, cost: float) -> None:
        bucket = self._buckets.get("tokens")
        if bucket is not None:
            bucket.take(cost - reservation.tokens)
            reservation.tokens = cost
            self._follow()

    def _follow(self) -> None:
        """Let in whom the buckets allow now, and come back when they allow the next one."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while queue := self._next_queue():
            waiter, reservation = next(iter(queue.items()))
            if not waiter.done():  # done: its caller was cancelled and has not run since
                missing_s = self._missing_s(reservation)
                if missing_s > 0:
                    loop = asyncio.get_running_loop()
                    self._timer = loop.call_later(missing_s, self._follow)
                    return
                self._take(reservation, has_slot=queue is self._slot_holders)
                waiter.set_result(None)
            del queue[waiter]

    def _next_queue(self) -> _WaiterQueue | None:
        if self._slot_holders:
            return self._slot_holders
        return self._waiters if self._ahead < self._may_be_ahead else None


def _now_s() -> float:
    return asyncio.get_running_loop().time()
