"""Hedging: when a request is late, and when a copy of it may be sent."""

from __future__ import annotations

import asyncio
import math
from bisect import bisect_left, insort
from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Final, Protocol, TypeAlias

from zerowait.client.limits.limiter import Limiter, Slot
from zerowait.client.limits.quota import Quota, Reservation
from zerowait.client.retry import LONGEST_CAP_S, SHORTEST_CAP_S

WINDOW: Final = 1024
KNOWN_AT_LEAST: Final = 100
_SAVED_AT_MOST: Final = 1024
_SUMMARY: Final = 128


class Latencies:
    """The latest 1,024 latencies, with their quantiles at hand.

    >>> latencies = Latencies()
    >>> for hundredth in range(1, 101):
    ...     latencies.add(hundredth / 100)
    >>> latencies.quantile(0.95)
    0.95
    """

    def __init__(self) -> None:
        self._by_age: deque[float] = deque()
        self._by_size: list[float] = []

    def __len__(self) -> int:
        return len(self._by_size)

    def add(self, latency_s: float) -> None:
        """Keep one more; the oldest is dropped beyond 1,024."""
        if len(self._by_age) == WINDOW:
            del self._by_size[bisect_left(self._by_size, self._by_age.popleft())]
        self._by_age.append(latency_s)
        insort(self._by_size, latency_s)

    def quantile(self, share: float, *, longer: int = 0) -> float | None:
        """The latency that `share` do not exceed, of those known and of `longer` longer ones.

        None when only a longer one could be it.
        """
        rank = max(1, math.ceil(share * (len(self._by_size) + longer)))
        return self._by_size[rank - 1] if rank <= len(self._by_size) else None

    def summary(self) -> list[float]:
        """At most 128 of them that have the same quantiles."""
        known = self._by_size
        if len(known) <= _SUMMARY:
            return list(known)
        return [known[(2 * n + 1) * len(known) // (2 * _SUMMARY)] for n in range(_SUMMARY)]


class HedgeRule:
    """A request that has taken longer than `share` of the others may be sent again.

    Those that are late now count among the others: a request is not late where many are, and a
    whole server that slows down is not sent more. Copies are at most `extra` of the requests that
    were sent. So that these few are spent on the longest waits and not on the first that come, the
    wait is never shorter than what ``1 - extra`` of the requests take, and the fewer copies are
    left, the longer it is: with none left it would be twice as long.

    Args:
        share: the quantile, in (0, 1); None when `after_s` is given.
        extra: copies per request, at most.
        after_s: a fixed wait instead of a quantile.

    Reference:
        Dean and Barroso 2013, "The tail at scale" (hedged requests).
    """

    def __init__(
        self, *, share: float | None = 0.95, extra: float = 0.05, after_s: float | None = None
    ) -> None:
        self._share = max(share or 0.0, 1.0 - extra)
        self._extra = extra
        self._fixed_s = after_s
        self._latencies = Latencies()
        self._saved = 0.0
        self._saved_at_most = max(1.0, extra * _SAVED_AT_MOST)
        self._observed = 0
        self.is_ready = False  # enough latencies are known

    def observe(self, latency_s: float) -> None:
        """A first send was answered after `latency_s`, or timed out then."""
        self._latencies.add(latency_s)
        self._observed += 1
        self.is_ready = self._observed >= KNOWN_AT_LEAST

    @property
    def latencies_s(self) -> list[float]:
        """What is known of the latencies, for the next process."""
        return self._latencies.summary()

    def recall(self, latencies_s: Iterable[float]) -> None:
        """Begin with the latencies that an earlier process knew; new ones soon outnumber them."""
        for latency_s in latencies_s:
            self.observe(latency_s)

    def sent(self) -> None:
        """A request was sent for the first time, which pays for a part of a copy."""
        self._saved = min(self._saved + self._extra, self._saved_at_most)

    def after_s(self, late: int) -> float | None:
        """Seconds after which a request is late, while `late` of them are; None: never.

        None is late before 100 latencies are known, that is before `is_ready`.
        """
        if not self.is_ready:
            return None
        ordinary_s = self._latencies.quantile(self._share, longer=late)
        if ordinary_s is None or self._fixed_s is None:
            return ordinary_s
        return max(ordinary_s, self._fixed_s)

    @property
    def copies(self) -> int:
        """How many copies the requests sent so far pay for."""
        return int(self._saved + 1e-9)

    def patience(self, in_flight: int) -> float:
        """How many times as long as a late request one has to take before it is copied.

        1 where there is a copy for each of the `in_flight` requests that may still need one. Else
        from 1, when as many copies are left as can be, to 2, when none is: most late requests are
        answered soon without a copy, and a straggler that comes after them needs one more.
        """
        if in_flight <= self.copies:
            return 1.0
        return 2.0 - min(1.0, self._saved / self._saved_at_most)

    def copied(self) -> None:
        """A copy was sent."""
        self._saved -= 1.0

    def taken_back(self) -> None:
        """A copy was rejected: it is paid back."""
        self._saved += 1.0


MOST_COPIES: Final = 2
_ROUNDING_S: Final = 1e-9


class HedgeableRequest(Protocol):
    """A request that can be copied; these attributes are the scheduler's.

    Args:
        queue: where it waits for its next copy; None while it waits in none.
        since_s: when it entered that queue.
        copies: those that may still be answered.
        rejections: copies that the server rejected.
    """

    queue: HedgeQueue | None
    since_s: float
    copies: int
    rejections: int

    @property
    def body(self) -> bytes:
        """What is sent."""
        ...

    def copy(self, slot: Slot, reservation: Reservation) -> None:
        """Send it once more, and give both back when that has ended."""
        ...


HedgeQueue: TypeAlias = "OrderedDict[HedgeableRequest, None]"


class HedgeScheduler:
    """The requests in flight at one endpoint, the longest first, and the copies of the late ones.

    Copies take only slots and quota that no request waits for. A request that is not late costs
    its entry in a queue and nothing else.

    Args:
        rule: when a request is late, and how many may be copied.
        limiter: hands out slots.
        quota: hands out reservations.
    """

    def __init__(self, rule: HedgeRule, limiter: Limiter, quota: Quota) -> None:
        self.rule = rule
        self._limiter = limiter
        self._quota = quota
        self._waiting: HedgeQueue = OrderedDict()  # late, and without the next copy
        # By the number of copies sent
        self._queues: list[HedgeQueue] = [OrderedDict() for _ in range(MOST_COPIES + 1)]
        # Requests whose copy was rejected
        self._backing_off: dict[HedgeableRequest, asyncio.TimerHandle] = {}
        self._timer: asyncio.TimerHandle | None = None
        limiter.when_spare(self._follow_if_late)

    def enter(self, request: HedgeableRequest, now_s: float) -> None:
        """`request` is sent at `now_s`, for the first time."""
        self.rule.sent()
        request.since_s = now_s
        request.queue = self._queues[0]
        request.queue[request] = None
        if self._timer is None and self.rule.is_ready:
            self._set_timer()

    def leave(self, request: HedgeableRequest, latency_s: float | None) -> None:
        """`request` has ended.

        Args:
            request: that had entered.
            latency_s: how long its first send took; None where that is unknown.
        """
        if request.queue is self._queues[0]:
            del request.queue[request]
            request.queue = None
        else:
            self._take_out(request)
        if latency_s is not None:
            self.rule.observe(latency_s)
        if self.rule.is_ready:
            self._follow_if_late()

    def rejected(self, request: HedgeableRequest, retry_after_s: float) -> None:
        """A copy of `request` was rejected, so it does not count: another may follow after a wait.

        Args:
            request: still without an answer.
            retry_after_s: the Retry-After; without one, 0, the wait is 0.5 s and doubles each time.
        """
        self._take_out(request)
        self.rule.taken_back()
        request.copies -= 1
        wait_s = retry_after_s or min(
            LONGEST_CAP_S, SHORTEST_CAP_S * 2.0 ** min(request.rejections, 10)
        )
        request.rejections += 1
        loop = asyncio.get_running_loop()
        self._backing_off[request] = loop.call_later(wait_s, self._return, request)

    def _return(self, request: HedgeableRequest) -> None:
        """`request` has waited long enough after the rejection of its copy."""
        del self._backing_off[request]
        request.since_s = -math.inf  # it was late before
        request.queue = self._waiting
        self._waiting[request] = None
        self._follow()

    def _take_out(self, request: HedgeableRequest) -> None:
        timer = self._backing_off.pop(request, None)
        if timer is not None:
            timer.cancel()
        if request.queue is not None:
            del request.queue[request]
            request.queue = None

    def _follow_if_late(self) -> None:
        if self.rule.is_ready and (self._waiting or self._timer is None):
            self._follow()

    def _follow(self) -> None:
        """Copy what is late, as far as the rule and the room allow."""
        self._find_late()
        while self._waiting and self._copy_one():
            pass
        if self._timer is None:
            self._set_timer()

    def _after_s(self) -> float:
        late = (
            len(self._waiting)
            + len(self._backing_off)
            + sum(len(queue) for queue in self._queues[1:])
        )
        after_s = self.rule.after_s(late)
        return math.inf if after_s is None else after_s

    def _find_late(self) -> None:
        latest_s = asyncio.get_running_loop().time() - self._after_s() + _ROUNDING_S
        for queue in self._queues[:MOST_COPIES]:
            while queue and (request := next(iter(queue))).since_s <= latest_s:
                del queue[request]
                request.queue = self._waiting
                self._waiting[request] = None

    def _copy_one(self) -> bool:
        request = next(iter(self._waiting))
        if not self._is_worth_a_copy(request):
            return False
        reservation = self._quota.try_reserve(request.body)
        if reservation is None:
            return False
        slot = self._limiter.spare_slot()
        if slot is None:
            self._quota.give_back(reservation)
            return False
        del self._waiting[request]
        request.copies += 1
        self._enter_queue(request, self._queues[request.copies])
        self.rule.copied()
        request.copy(slot, reservation)
        return True

    def _is_worth_a_copy(self, request: HedgeableRequest) -> bool:
        """Whether the longest wait has become long enough."""
        if self.rule.copies < 1:
            return False
        age_s = asyncio.get_running_loop().time() - request.since_s
        return age_s >= self._patience() * self._after_s() - _ROUNDING_S

    def _patience(self) -> float:
        queues = (self._waiting, *self._queues[:MOST_COPIES])
        return self.rule.patience(sum(len(queue) for queue in queues))

    def _enter_queue(self, request: HedgeableRequest, queue: HedgeQueue) -> None:
        request.since_s = asyncio.get_running_loop().time()
        request.queue = queue
        queue[request] = None

    def _set_timer(self) -> None:
        """Come back when the next request becomes late."""
        loop, after_s = asyncio.get_running_loop(), self._after_s()
        queues = self._queues[:MOST_COPIES]
        due_s = [next(iter(queue)).since_s + after_s for queue in queues if queue]
        if self._waiting:
            due_s.append(next(iter(self._waiting)).since_s + self._patience() * after_s)
        next_s = min((when for when in due_s if when > loop.time()), default=math.inf)
        if next_s < math.inf:
            self._timer = loop.call_at(next_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._follow()
