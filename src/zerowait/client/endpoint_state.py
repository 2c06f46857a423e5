"""What the requests of a job share on their way to one model at one endpoint."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from zerowait.client.cancel_scope import CancelScope
from zerowait.client.hedging import HedgeRule, HedgeScheduler
from zerowait.client.limits.adaptive import START, AdaptiveLimit
from zerowait.client.limits.breaker import Breaker
from zerowait.client.limits.limiter import FixedLimit, Gauge, Limiter
from zerowait.client.limits.quota import Quota, Unit
from zerowait.client.target import target
from zerowait.config.endpoint import Endpoint
from zerowait.config.traffic import Traffic
from zerowait.events import LimitChanged, Listener, QuotaLearned, ignore_event

T = TypeVar("T")
_NEXT_PROBE_S: Final = 0.25


class QueueExits:
    """The way out of an endpoint's queues, for all who stand there when it is left alone."""

    def __init__(self) -> None:
        self._scopes: dict[CancelScope, None] = {}
        self._at_news: list[Callable[[], None]] = []

    async def of(self, waiting: Awaitable[T]) -> T | None:
        """What `waiting` gives, or None: the endpoint was left alone, and it was cancelled."""
        scope = CancelScope()
        self._scopes[scope] = None
        try:
            with scope:
                return await waiting
        finally:
            self._scopes.pop(scope, None)
        return None

    def open(self) -> None:
        """Let everybody out, in the order in which they came."""
        scopes, self._scopes = self._scopes, {}
        for scope in scopes:
            scope.end()

    def when_news(self, call: Callable[[], None]) -> None:
        """Call `call` each time when the endpoint is back, or nothing more comes from it."""
        self._at_news.append(call)

    def tell(self) -> None:
        """There is news of the endpoint."""
        for call in self._at_news:
            call()


class BreakerQueue:
    """Where judgements wait while all endpoints of their judge are left alone.

    One is let go as a probe each time when an endpoint may be asked, and all when one is back;
    first come, first served. It belongs to one loop.

    Args:
        breakers: of the endpoints.
    """

    def __init__(self, breakers: Sequence[Breaker]) -> None:
        self._breakers = breakers
        self._line: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self, until_s: float) -> None:
        """Return when it is this one's turn, or at `until_s`."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._line[turn] = None
        self._set_timer(loop.time())
        try:
            async with asyncio.timeout_at(until_s):
                await turn
        except TimeoutError:
            pass
        finally:
            self._line.pop(turn, None)

    def follow(self) -> None:
        """There is news of an endpoint: let all go and see."""
        while self._line:
            self._release()

    def _release(self) -> None:
        turn, _ = self._line.popitem(last=False)
        if not turn.done():  # done: its caller was cancelled and has not run since
            turn.set_result(None)

    def _ring(self) -> None:
        now_s = asyncio.get_running_loop().time()
        self._timer = None
        if self._line and any(breaker.may_ask(now_s) for breaker in self._breakers):
            self._release()
            now_s += _NEXT_PROBE_S  # it may be given up before it is sent
        if self._line:
            self._set_timer(now_s)

    def _set_timer(self, now_s: float) -> None:
        due_s = max(now_s, min(breaker.until_s for breaker in self._breakers))
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(due_s, self._ring)


_AHEAD: Final = 8


class EndpointState(msgspec.Struct, frozen=True):
    """One model at one endpoint; all judges that ask it share the lane.

    Args:
        name: the endpoint's.
        limiter: how many may be in flight.
        quota: how many per minute.
        watch: sends late requests again; None where hedging is off.
        breaker: whether it is left alone.
        exits: out of its queues, when it is.
        load: judgements that were given to it and have not ended, those in its queues included.
        told: what was said of it once, and is not said again.
    """

    name: str
    limiter: Limiter
    quota: Quota
    watch: HedgeScheduler | None
    breaker: Breaker
    exits: QueueExits
    load: Gauge
    told: set[str]


class EndpointStates:
    """The lanes of a job, made as they are asked for.

    A fixed ``concurrency`` is one limiter for all lanes; with ``auto`` each lane has its own.

    Args:
        traffic: how hard the judges may be asked.
        listener: hears of every change of a limit.
        limiter: for all lanes, instead of what `traffic` asks for.
        parts: of how many processes these are the lanes of one, which share the limits. Each
            begins with a single slot; `divide` says what it gets.
    """

    def __init__(
        self,
        traffic: Traffic,
        *,
        listener: Listener = ignore_event,
        limiter: Limiter | None = None,
        parts: int = 1,
    ) -> None:
        self._traffic = traffic
        self._listener = listener
        self._total = Gauge()
        self._recalled: Mapping[str, Sequence[float]] = {}
        self._lanes: dict[tuple[str, str, str | None], EndpointState] = {}
        self._shared = limiter
        self._parts = parts
        self.slots = traffic.slots if parts == 1 else 1
        if limiter is None and traffic.concurrency != "auto":
            self._shared = Limiter(FixedLimit(traffic.concurrency), total=self._total)
        if self._shared is not None:
            self._shared.cap(self.slots)

    def lane(self, endpoint: Endpoint) -> EndpointState:
        """The lane of `endpoint` and its model, the same one each time; keys have their own."""
        key = (endpoint.url, endpoint.model, endpoint.api_key_env)
        lane = self._lanes.get(key)
        if lane is None:
            name = target(endpoint).name
            limiter, quota = self._shared or self._adaptive(name), self._quota(name)
            watch = self._watch(limiter, quota)
            if watch is not None:
                watch.rule.recall(self._recalled.get(f"{name} {endpoint.model}", ()))
            lane = EndpointState(
                name, limiter, quota, watch, Breaker(), QueueExits(), Gauge(), set()
            )
            self._lanes[key] = lane
        return lane

    def divide(self, slots: int) -> None:
        """From now on `slots` of the job's are ours, and as large a part of its quotas."""
        self.slots = slots
        for limiter in self._limiters():
            limiter.cap(slots)
        for lane in self._lanes.values():
            lane.quota.divide(self._part)

    @property
    def held(self) -> int:
        """The most slots that any one limiter has handed out now."""
        return max((limiter.in_flight for limiter in self._limiters()), default=0)

    @property
    def in_flight(self) -> int:
        """Slots held now."""
        return self._total.now

    @property
    def peak(self) -> int:
        """The most slots ever held at once."""
        return self._total.peak

    @property
    def waiting(self) -> int:
        """Callers that wait for a slot or for quota."""
        quotas = sum(lane.quota.waiting for lane in self._lanes.values())
        return quotas + sum(limiter.waiting for limiter in self._limiters())

    @property
    def limit(self) -> int:
        """How many slots there are now, over all lanes."""
        return sum(limiter.limit for limiter in self._limiters())

    def limits(self) -> dict[str, int]:
        """The limit of each lane that has one of its own, by endpoint and model."""
        found: Counter[str] = Counter()
        if self._shared is None:
            for (_, model, _), lane in self._lanes.items():
                found[f"{lane.name} {model}"] += lane.limiter.limit
        return dict(found)

    def recall(self, latencies_s: Mapping[str, Sequence[float]]) -> None:
        """What was known of latencies in an earlier process, for lanes that are made from now on.

        Args:
            latencies_s: by endpoint and model, as `latencies_s` gives them.
        """
        self._recalled = latencies_s

    def latencies_s(self) -> dict[str, list[float]]:
        """What is known of the latencies, by endpoint and model; nothing where hedging is off."""
        return {
            f"{lane.name} {model}": known
            for (_, model, _), lane in self._lanes.items()
            if lane.watch is not None and (known := lane.watch.rule.latencies_s)
        }

    @property
    def _part(self) -> float:
        return self.slots / self._traffic.slots

    def _limiters(self) -> Iterable[Limiter]:
        if self._shared is not None:
            return (self._shared,)
        return [lane.limiter for lane in self._lanes.values()]

    def _adaptive(self, name: str) -> Limiter:
        highest = self._traffic.max_concurrency
        start = max(1, min(START, highest) // self._parts)
        rule = AdaptiveLimit(start=start, highest=highest)

        def changed(before: int, after: int) -> None:
            self._listener(LimitChanged(endpoint=name, before=before, after=after, why=rule.why))

        limiter = Limiter(rule, total=self._total, changed=changed)
        limiter.cap(self.slots)
        return limiter

    def _quota(self, name: str) -> Quota:
        def learned(unit: Unit, per_minute: float) -> None:
            self._listener(QuotaLearned(endpoint=name, unit=unit, per_minute=per_minute))

        # where lanes share slots, one that sends few ahead would starve behind the others' backlog
        ahead = _AHEAD if self._shared is None else None
        quota = Quota(self._traffic.rpm, self._traffic.tpm, ahead=ahead, learned=learned)
        if self._parts > 1:
            quota.divide(self._part)
        return quota

    def _watch(self, limiter: Limiter, quota: Quota) -> HedgeScheduler | None:
        hedge = self._traffic.hedge
        if hedge == "off":
            return None
        rule = HedgeRule(share=hedge.share, after_s=hedge.after_s, extra=hedge.extra)
        return HedgeScheduler(rule, limiter, quota)
