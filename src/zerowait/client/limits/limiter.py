"""A concurrency limiter: as many slots as a rule allows, first come, first served.

The rule for how many (`Limit`) sees samples and holds a number. The `Limiter` holds slots and
waiters. Both belong to one event loop.
"""
# ruff: noqa: SLF001 - a slot and its limiter are the two halves of one limiter

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum
from types import TracebackType
from typing import Protocol, Self, TypeAlias

import msgspec

_WaiterQueue: TypeAlias = "OrderedDict[asyncio.Future[None], None]"


class AttemptOutcome(Enum):
    """What the end of an attempt says about the limit."""

    SUCCEEDED = "succeeded"
    OVERLOADED = "overloaded"
    SAYS_NOTHING = "says nothing"


class AttemptSample(msgspec.Struct, frozen=True):
    """One attempt, as a limit rule sees it; times are the loop's, in seconds.

    Args:
        ending: what its end says.
        sent_s: when it was sent.
        ended_s: when it ended.
        occupancy: held slots / limit at the send: a limit that was not used has proved nothing.
        on_wire: other attempts that are still unanswered; those that wait to be sent again are
            not among them.
        retry_after_s: the wait that an overloaded provider asked for; 0 for none.
        others: other attempts that were unanswered at the send.
        number: of the send, counting from 1.
    """

    ending: AttemptOutcome
    sent_s: float
    ended_s: float
    occupancy: float
    on_wire: int
    retry_after_s: float = 0.0
    others: int = 0
    number: int = 0


class Limit(Protocol):
    """A rule for how many slots may be held."""

    @property
    def limit(self) -> int:
        """The number of slots, at least 1; it may change with every `observe`."""
        ...

    @property
    def frees_rejected(self) -> bool:
        """Whether a rejected request gives its slot back while it waits to be sent again."""
        ...

    def sent(self, number: int, others: int) -> None:
        """Take note of the send of that number, with `others` on the wire."""
        ...

    def observe(self, sample: AttemptSample) -> None:
        """Take note of an attempt that ended."""
        ...

    def recover(self) -> None:
        """Take note that the endpoint was away and is back."""
        ...


class FixedLimit:
    """Always `limit` slots.

    Raises:
        ValueError: `limit` is below 1.
    """

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"a limit must be at least 1, not {limit}")
        self.limit = limit
        self.frees_rejected = False

    def sent(self, number: int, others: int) -> None:
        """Nothing."""

    def observe(self, sample: AttemptSample) -> None:
        """Nothing: a fixed limit does not learn."""

    def recover(self) -> None:
        """Nothing."""


class Gauge:
    """How many slots are held now, and were at most, over one limiter or several."""

    __slots__ = ("now", "peak")

    def __init__(self) -> None:
        self.now = 0
        self.peak = 0

    def add(self, count: int) -> None:
        """`count` more are held."""
        self.now += count
        self.peak = max(self.peak, self.now)


class Limiter:
    """Slots for work that is in flight, handed out in the order in which they were asked for.

    A waiter that is cancelled gives up its place, or its slot if it was granted one at that very
    moment. Every operation takes constant time.

    Args:
        limit: the rule.
        total: counts this limiter's slots together with those of others.
        changed: called with the limit before and after each change that an attempt brought about.
    """

    def __init__(
        self,
        limit: Limit,
        *,
        total: Gauge | None = None,
        changed: Callable[[int, int], None] | None = None,
    ) -> None:
        self._limit = limit
        self._changed = changed
        self._waiters: _WaiterQueue = OrderedDict()
        self._returning: _WaiterQueue = OrderedDict()  # callers that had a slot before go first
        self._spare_callbacks: list[Callable[[], None]] = []
        self._held = Gauge()
        self._total = total or Gauge()
        self._on_wire = 0
        self._sends = 0
        self._cap = sys.maxsize

    @property
    def in_flight(self) -> int:
        """Slots held now."""
        return self._held.now

    @property
    def on_wire(self) -> int:
        """Attempts sent and not yet ended."""
        return self._on_wire

    @property
    def wants_back(self) -> bool:
        """Whether a request that was rejected gives its slot back until it is sent again.

        The limit has fallen below what is held, or the rejections do not depend on how many are in
        flight. Otherwise the slot is held over the wait: other requests would be rejected likewise.
        """
        return self._held.now > self.limit or self._limit.frees_rejected

    @property
    def waiting(self) -> int:
        """Callers that wait for a slot."""
        return len(self._returning) + len(self._waiters)

    @property
    def peak(self) -> int:
        """The most slots ever held at once."""
        return self._held.peak

    @property
    def limit(self) -> int:
        """How many slots there are now: what the rule allows, within the cap."""
        return min(self._limit.limit, self._cap)

    def cap(self, slots: int) -> None:
        """From now on at most `slots`, whatever the rule allows; those that are held stay held."""
        self._cap = slots
        self.follow()

    def slot(self, *, again: bool = False) -> Slot:
        """A slot to enter with ``async with``; each one serves once.

        Args:
            again: for a caller that had one before and gave it back, ahead of those that had none.
        """
        return Slot(self, again=again)

    def spare_slot(self) -> Slot | None:
        """A slot that is held already and must be released; None if others wait or all are held."""
        if self.waiting or self._held.now >= self.limit:
            return None
        self._take()
        return Slot(self)

    def when_spare(self, call: Callable[[], None]) -> None:
        """Call `call` each time when there may be a spare slot."""
        self._spare_callbacks.append(call)

    def follow(self) -> None:
        """Let in as many as the rule allows; call it after the limit was changed from outside."""
        limit = self.limit
        while self._held.now < limit and (queue := self._returning or self._waiters):
            waiter, _ = queue.popitem(last=False)
            if not waiter.done():  # done: its caller was cancelled and has not run since
                self._take()
                waiter.set_result(None)
        if self._spare_callbacks and self._held.now < limit:
            for call in self._spare_callbacks:
                call()

    def _try_acquire(self) -> bool:
        if self._held.now >= self.limit or self._returning or self._waiters:
            return False
        self._take()
        return True

    def _enqueue(self, *, again: bool) -> asyncio.Future[None]:
        """A future in the queue, done when the slot is held."""
        waiter = asyncio.get_running_loop().create_future()
        (self._returning if again else self._waiters)[waiter] = None
        return waiter

    def _cancelled(self, waiter: asyncio.Future[None]) -> None:
        """Take out a waiter whose caller was cancelled, or release the slot that it was granted."""
        if waiter.done() and not waiter.cancelled():
            self._release()  # granted just as the caller was cancelled
        else:
            self._returning.pop(waiter, None)
            self._waiters.pop(waiter, None)

    def _take(self) -> None:
        self._held.add(1)
        self._total.add(1)

    def _release(self) -> None:
        self._held.add(-1)
        self._total.add(-1)
        self.follow()

    def recover(self) -> None:
        """Tell the rule that the endpoint was away and is back."""
        before = self._limit.limit
        self._limit.recover()
        self._changed_from(before)

    def _observe(self, sample: AttemptSample) -> None:
        before = self._limit.limit
        self._limit.observe(sample)
        self._changed_from(before)

    def _changed_from(self, before: int) -> None:
        """Report a changed limit, and let in as many as it allows."""
        after = self._limit.limit
        if after != before and self._changed is not None:
            self._changed(before, after)
        self.follow()


class Slot:
    """The right to have one request in flight, held over its attempts and the waits between.

    Attributes:
        queue_s: seconds spent waiting for it, once entered.
        others: other attempts that were unanswered when the last one was sent.
    """

    __slots__ = ("_again", "_limiter", "_number", "_occupancy", "_sent_s", "others", "queue_s")

    def __init__(self, limiter: Limiter, *, again: bool = False) -> None:
        self.queue_s = 0.0
        self._again = again
        self._limiter = limiter
        self._sent_s: float | None = None
        self._occupancy = 0.0
        self.others = self._number = 0

    async def __aenter__(self) -> Self:
        await self.enter()
        return self

    def try_enter(self) -> bool:
        """Hold the slot without waiting; False: none is free, or others wait for one already."""
        return self._limiter._try_acquire()

    async def enter(self) -> None:
        """Wait until the slot is held; it has to be released."""
        if self.try_enter():
            return
        loop = asyncio.get_running_loop()
        asked_s = loop.time()
        waiter = self._limiter._enqueue(again=self._again)
        try:
            await waiter
        except asyncio.CancelledError:
            self._limiter._cancelled(waiter)
            raise
        self.queue_s = loop.time() - asked_s

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def release(self) -> None:
        """Give the slot back, as leaving ``async with`` does."""
        try:
            self.ended(AttemptOutcome.SAYS_NOTHING)
        finally:
            self._limiter._release()

    def sent(self) -> None:
        """An attempt leaves now."""
        limiter = self._limiter
        self.ended(AttemptOutcome.SAYS_NOTHING)
        self._sent_s = asyncio.get_running_loop().time()
        # of what the rule allows: under a cap that binds, the rule has not been put to the test
        self._occupancy = limiter._held.now / limiter._limit.limit
        limiter._sends += 1
        self._number, self.others = limiter._sends, limiter._on_wire
        limiter._on_wire += 1
        limiter._limit.sent(self._number, self.others)

    def ended(self, ending: AttemptOutcome, *, retry_after_s: float = 0.0) -> None:
        """The attempt that was sent last has ended; without one, nothing happens.

        The rule hears of it now and not at the release, because an overload must count before
        the wait that follows it.
        """
        sent_s, self._sent_s = self._sent_s, None
        if sent_s is None:
            return
        limiter = self._limiter
        limiter._on_wire -= 1
        now_s = asyncio.get_running_loop().time()
        limiter._observe(
            AttemptSample(
                ending,
                sent_s,
                now_s,
                self._occupancy,
                limiter._on_wire,
                retry_after_s,
                self.others,
                self._number,
            )
        )
