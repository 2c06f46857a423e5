"""The state that all requests to one model at one endpoint share: its limits and its breaker."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from random import Random
from typing import Final, TypeVar

import msgspec

from zerowait.client.cancel_scope import CancelScope
from zerowait.client.hedging import HedgeRule, HedgeScheduler
from zerowait.client.limits.adaptive import START, AdaptiveLimit
from zerowait.client.limits.breaker import Breaker
from zerowait.client.limits.limiter import FixedLimit, Gauge, Limiter
from zerowait.client.limits.quota import Quota, Unit
from zerowait.client.target import Target, target
from zerowait.config.endpoint import Endpoint
from zerowait.config.traffic import Traffic
from zerowait.events import LimitChanged, Listener, QuotaLearned, ignore_event

_LOG = logging.getLogger(__name__)

T = TypeVar("T")
_NEXT_PROBE_S: Final = 0.25


class CircuitSignal:
    """Tells waiting requests when the circuit breaker of their endpoint opens or closes."""

    def __init__(self) -> None:
        self._scopes: dict[CancelScope, None] = {}
        self._callbacks: list[Callable[[], None]] = []

    async def unless_woken(self, waiting: Awaitable[T]) -> T | None:
        """The result of `waiting`; None if `wake` came first, which cancels `waiting`."""
        scope = CancelScope()
        self._scopes[scope] = None
        try:
            with scope:
                return await waiting
        finally:
            self._scopes.pop(scope, None)
        return None

    def wake(self) -> None:
        """Wake every request in the endpoint's queues, in the order in which they came.

        The circuit has opened, or that of another endpoint has closed, where they may go instead.
        """
        scopes, self._scopes = self._scopes, {}
        for scope in scopes:
            scope.end()

    def when_changed(self, call: Callable[[], None]) -> None:
        """Call `call` each time when the circuit closes, or no reply is outstanding any more."""
        self._callbacks.append(call)

    def changed(self) -> None:
        """The circuit closed, or no reply is outstanding any more."""
        for call in self._callbacks:
            call()


class BreakerQueue:
    """The queue of requests while the circuit breakers of all their endpoints are open.

    One leaves as a probe each time when a breaker allows one, and all leave when one closes; first
    come, first served. It belongs to one event loop.

    Args:
        breakers: of the endpoints.
    """

    def __init__(self, breakers: Sequence[Breaker]) -> None:
        self._breakers = breakers
        self._waiters: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self, until_s: float) -> None:
        """Return when it is this request's turn, or at `until_s` on the loop's clock."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiters[turn] = None
        self._set_timer(loop.time())
        try:
            async with asyncio.timeout_at(until_s):
                await turn
        except TimeoutError:
            pass
        finally:
            self._waiters.pop(turn, None)

    def release_all(self) -> None:
        """A circuit has changed: all leave the queue and look."""
        while self._waiters:
            self._release()

    def _release(self) -> None:
        turn, _ = self._waiters.popitem(last=False)
        if not turn.done():  # done: its caller was cancelled and has not run since
            turn.set_result(None)

    def _on_timer(self) -> None:
        now_s = asyncio.get_running_loop().time()
        self._timer = None
        if self._waiters and any(breaker.may_ask(now_s) for breaker in self._breakers):
            self._release()
            now_s += _NEXT_PROBE_S  # the probe may be cancelled before it is sent
        if self._waiters:
            self._set_timer(now_s)

    def _set_timer(self, now_s: float) -> None:
        due_s = max(now_s, min(breaker.until_s for breaker in self._breakers))
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(due_s, self._on_timer)


_AHEAD: Final = 8


class EndpointState(msgspec.Struct, frozen=True):
    """The shared state of one model at one endpoint, for all judges that use it.

    Args:
        name: of the endpoint, without secrets.
        limiter: how many requests may be in flight.
        quota: how many requests and tokens per minute.
        hedges: sends copies of late requests; None where hedging is off.
        breaker: the circuit breaker.
        circuit: wakes waiting requests when the breaker opens or closes.
        load: requests assigned to it that have not ended, those in its queues included.
        warned: warnings that were given once, and are not repeated.
        refused_forms: forms of structured output that it has refused, and is not asked for again.
    """

    name: str
    limiter: Limiter
    quota: Quota
    hedges: HedgeScheduler | None
    breaker: Breaker
    circuit: CircuitSignal
    load: Gauge
    warned: set[str]
    refused_forms: set[str]


class PooledEndpoint(msgspec.Struct, frozen=True):
    """One endpoint of a judge.

    Args:
        config: as it is configured.
        target: URL, headers and secrets.
        state: shared by all judges that use it.
        translate: a chat request's body as this endpoint understands it; None: as it is.
    """

    config: Endpoint
    target: Target
    state: EndpointState
    translate: Callable[[bytes], bytes] | None = None


class EndpointStates:
    """The endpoint states of a job, made when they are first used.

    A fixed ``concurrency`` is one limiter for all endpoints; with ``auto`` each has its own.

    Args:
        traffic: the limits.
        listener: receives every change of a limit.
        limiter: for all endpoints, instead of what `traffic` configures.
        parts: how many processes share the limits. Each begins with a single slot; `divide` sets
            its share.
        jitter: the source of randomness for the rests of circuit breakers.
    """

    def __init__(
        self,
        traffic: Traffic,
        *,
        listener: Listener = ignore_event,
        limiter: Limiter | None = None,
        parts: int = 1,
        jitter: Random | None = None,
    ) -> None:
        self._traffic = traffic
        self._listener = listener
        self._total = Gauge()
        self._recalled: Mapping[str, Sequence[float]] = {}
        self._states: dict[tuple[str, str, str | None], EndpointState] = {}
        self._shared = limiter
        self._parts = parts
        self._jitter = jitter or Random()
        self._checks: set[asyncio.Task[None]] = set()
        self.slots = traffic.slots if parts == 1 else 1
        if limiter is None and traffic.concurrency != "auto":
            self._shared = Limiter(FixedLimit(traffic.concurrency), total=self._total)
        if self._shared is not None:
            self._shared.cap(self.slots)

    def of(self, endpoint: Endpoint) -> EndpointState:
        """The state of `endpoint` and its model, the same each time; each API key has its own."""
        key = (endpoint.url, endpoint.model, endpoint.api_key_env)
        state = self._states.get(key)
        if state is None:
            name = target(endpoint).name
            limiter, quota = self._shared or self._adaptive(name), self._quota(name)
            hedges = self._hedges(limiter, quota)
            if hedges is not None:
                hedges.rule.recall(self._recalled.get(f"{name} {endpoint.model}", ()))
            breaker, circuit = Breaker(jitter=self._jitter), CircuitSignal()
            state = EndpointState(
                name, limiter, quota, hedges, breaker, circuit, Gauge(), set(), set()
            )
            self._states[key] = state
        return state

    def divide(self, slots: int) -> None:
        """Use `slots` of the job's slots from now on, and as large a share of its quotas."""
        self.slots = slots
        for limiter in self._limiters():
            limiter.cap(slots)
        for state in self._states.values():
            state.quota.divide(self._part)

    def start_check(self, check: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """The task of a health check, which begins at once; `aclose` cancels it."""
        task = asyncio.get_running_loop().create_task(check, name="zerowait health check")
        self._checks.add(task)
        task.add_done_callback(self._check_ended)
        return task

    def _check_ended(self, task: asyncio.Task[None]) -> None:
        self._checks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            # the budget is spent, say: a request that needs it reports that to its caller
            _LOG.debug("no health check: %s", task.exception())

    async def aclose(self) -> None:
        """Cancel the health checks that are under way. Idempotent."""
        for task in self._checks:
            task.cancel()
        if self._checks:
            await asyncio.wait(self._checks)

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
        quotas = sum(state.quota.waiting for state in self._states.values())
        return quotas + sum(limiter.waiting for limiter in self._limiters())

    @property
    def limit(self) -> int:
        """How many slots there are now, over all endpoints."""
        return sum(limiter.limit for limiter in self._limiters())

    def limits(self) -> dict[str, int]:
        """The limit of each endpoint that has its own, by endpoint and model."""
        found: Counter[str] = Counter()
        if self._shared is None:
            for (_, model, _), state in self._states.items():
                found[f"{state.name} {model}"] += state.limiter.limit
        return dict(found)

    def recall(self, latencies_s: Mapping[str, Sequence[float]]) -> None:
        """Latencies that an earlier process knew, for endpoints that are first used from now on.

        Args:
            latencies_s: by endpoint and model, as `latencies_s` gives them.
        """
        self._recalled = latencies_s

    def latencies_s(self) -> dict[str, list[float]]:
        """The known latencies in seconds, by endpoint and model; none where hedging is off."""
        return {
            f"{state.name} {model}": known
            for (_, model, _), state in self._states.items()
            if state.hedges is not None and (known := state.hedges.rule.latencies_s)
        }

    @property
    def _part(self) -> float:
        return self.slots / self._traffic.slots

    def _limiters(self) -> Iterable[Limiter]:
        if self._shared is not None:
            return (self._shared,)
        return [state.limiter for state in self._states.values()]

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

        # where endpoints share slots, one that reserves few ahead would starve behind the backlog
        ahead = _AHEAD if self._shared is None else None
        quota = Quota(self._traffic.rpm, self._traffic.tpm, ahead=ahead, learned=learned)
        if self._parts > 1:
            quota.divide(self._part)
        return quota

    def _hedges(self, limiter: Limiter, quota: Quota) -> HedgeScheduler | None:
        hedge = self._traffic.hedge
        if hedge == "off":
            return None
        rule = HedgeRule(share=hedge.share, after_s=hedge.after_s, extra=hedge.extra)
        return HedgeScheduler(rule, limiter, quota)
