"""Which of a judge's endpoints is asked next. Pure: it reads the lanes' state, and changes none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from zerowait.client.sender import Road


class Choice:
    """The order of a judge's endpoints, by index into `roads`.

    Of those that are not left alone, the ones with the lowest ``priority`` share the judgements in
    proportion to their ``weight``. One that is full is passed over while another has room.

    Args:
        roads: to the endpoints.
        patience_s: how long one that worked before is waited for.
    """

    def __init__(self, roads: Sequence[Road], patience_s: float) -> None:
        self._roads = roads
        self._patience_s = patience_s

    def first(self, now_s: float) -> int:
        """Where a new judgement goes."""
        if len(self._roads) == 1:
            return 0
        best = self._best(range(len(self._roads)), now_s)
        return 0 if best is None else best

    def beside(self, index: int, now_s: float) -> int | None:
        """Where a judgement goes that cannot go on at `index`, or None: everybody else rests."""
        return self._best((i for i in range(len(self._roads)) if i != index), now_s)

    def may_stay(self, index: int, now_s: float) -> bool:
        """Whether the endpoint at `index` is not left alone."""
        return self._roads[index].lane.breaker.may_ask(now_s)

    def expected_until_s(self) -> float:
        """Until when it is worth waiting for one of them, if none comes back before."""
        return max(road.lane.breaker.expected_until_s(self._patience_s) for road in self._roads)

    def rests_s(self, now_s: float) -> float:
        """How long until one of them may be asked."""
        return max(0.0, min(road.lane.breaker.until_s for road in self._roads) - now_s)

    def barred_s(self, now_s: float) -> float:
        """For how long all endpoints have asked not to be asked; 0 when one has not."""
        return max(0.0, min(road.lane.breaker.named_until_s for road in self._roads) - now_s)

    @property
    def is_spent(self) -> bool:
        """Whether the accounts at all endpoints are used up."""
        return all(road.lane.breaker.is_spent for road in self._roads)

    @property
    def in_flight(self) -> int:
        """Requests sent to the endpoints that have not ended, whichever judge's."""
        return sum(road.lane.breaker.in_flight for road in self._roads)

    def _best(self, indices: Iterable[int], now_s: float) -> int | None:
        able = [i for i in indices if self.may_stay(i, now_s)]
        return min(able, key=self._rank, default=None)

    def _rank(self, index: int) -> tuple[int, bool, float]:
        endpoint, lane = self._roads[index].endpoint, self._roads[index].lane
        is_full = lane.limiter.in_flight >= lane.limiter.limit or lane.quota.waiting > 0
        return endpoint.priority, is_full, (lane.load.now + 1) / endpoint.weight
