"""Which of a judge's endpoints is asked next. Pure: it reads the lanes' state, and changes none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from zerowait.client.sender import Road


class Choice:
    """The order of a judge's endpoints, by index into `roads`.

    Of those that are not left alone, the ones with the lowest ``priority`` share the judgements in
    proportion to their ``weight``. One that is full is passed over while another has room.
    """

    def __init__(self, roads: Sequence[Road]) -> None:
        self._roads = roads

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

    def _best(self, indices: Iterable[int], now_s: float) -> int | None:
        able = [i for i in indices if self.may_stay(i, now_s)]
        return min(able, key=self._rank, default=None)

    def _rank(self, index: int) -> tuple[int, bool, float]:
        endpoint, lane = self._roads[index].endpoint, self._roads[index].lane
        is_full = lane.limiter.in_flight >= lane.limiter.limit or lane.quota.waiting > 0
        return endpoint.priority, is_full, (lane.load.now + 1) / endpoint.weight
