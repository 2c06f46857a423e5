"""The judge client: sends one chat request with admission, load balancing, retries and hedging."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal

import msgspec

from zerowait.client.attempt import Admission, AttemptResult, HedgedRequest, Sender
from zerowait.client.endpoint_pool import EndpointPool
from zerowait.client.endpoint_state import EndpointStates, PooledEndpoint
from zerowait.client.failures import FailureHandler
from zerowait.client.http.proxy import proxy_for
from zerowait.client.limits.limiter import AttemptOutcome, Limiter, Slot
from zerowait.client.limits.quota import Reservation
from zerowait.client.request_state import FormRefusedError, RequestCounts, RequestState
from zerowait.client.retry import meaning
from zerowait.client.secret import Secret
from zerowait.client.target import target
from zerowait.client.transport import Reply, Transport, TransportError
from zerowait.completion import Completion
from zerowait.config.endpoint import Api, Endpoint
from zerowait.config.traffic import Traffic
from zerowait.events import FailedAttempt, Listener, ignore_event
from zerowait.types import Abstain


class JudgeReply(msgspec.Struct, frozen=True, kw_only=True):
    """A judge's reply, with the number of attempts and the latency.

    Args:
        reply: a 200 whose body is a whole chat completion.
        completion: that body, decoded.
        attempts: requests sent, hedged copies included.
        latency_s: of the attempt that succeeded, in seconds.
        queue_s: seconds spent waiting for a slot or for quota.
        endpoint: the name of the endpoint that answered.
    """

    reply: Reply
    completion: Completion
    attempts: int
    latency_s: float
    queue_s: float
    endpoint: str


@dataclass(kw_only=True, eq=False)
class JudgeClient:
    """Sends the requests of one judge to one or several endpoints that serve the same model.

    Args:
        endpoints: all serve the same model and share the load; a failing one is ejected for a
            while by its circuit breaker.
        keys: each endpoint's API key, in the same order; none when empty.
        transport: sends the requests; closed by its owner, not by this client.
        endpoint_states: the limiter, quota and circuit breaker of each endpoint, shared by all
            judges of a job.
        decode: the typed completion in the body of a 2xx, or None; a body without one, or one
            whose completion has a `failure`, is a failed attempt.
        translate: turns a chat request's body into one for the API that an endpoint speaks.
        usage: the prompt and completion tokens to book for a request's body and its reply.
        traffic: timeout, deadline and number of attempts.
        listener: receives an event for every attempt.
        jitter: the source of randomness for waits.
        wall: Unix time in seconds, for a Retry-After that is a date.
    """

    endpoints: Sequence[Endpoint]
    keys: Sequence[Secret | None] = ()
    transport: Transport
    endpoint_states: EndpointStates
    decode: Callable[[bytes], Completion | None]
    translate: Callable[[bytes, Api], bytes] = lambda body, _: body
    usage: Callable[[bytes, Completion], tuple[int, int]] = lambda _, __: (0, 0)
    traffic: Traffic = field(default_factory=Traffic)
    listener: Listener = ignore_event
    jitter: Random = field(default_factory=Random, repr=False)
    wall: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        keys = self.keys or [None] * len(self.endpoints)
        endpoints = [
            PooledEndpoint(
                endpoint,
                target(endpoint, key=key, proxy=proxy_for(endpoint, self.traffic.proxy)),
                self.endpoint_states.of(endpoint),
                self._translation(endpoint),
            )
            for endpoint, key in zip(self.endpoints, keys, strict=True)
        ]
        self._states = [endpoint.state for endpoint in endpoints]
        self._pool = EndpointPool(endpoints, self.traffic.deadline_s)
        self._sender = Sender(
            self.transport,
            self.decode,
            self.usage,
            self.listener,
            self.wall,
            endings=[word for endpoint in self.endpoints for word in endpoint.endings],
        )
        self._failures = FailureHandler(
            self._pool,
            self._sender.retry_after_s,
            self.traffic,
            self.listener,
            jitter=self.jitter,
            wall=self.wall,
        )

    async def ask(
        self,
        body: bytes,
        *,
        deadline_s: float | None = None,
        sent: Callable[[], None] | None = None,
        counts: RequestCounts | None = None,
        form: str = "",
    ) -> JudgeReply | Abstain:
        """The judge's reply to `body`, or an Abstain that says why there is none.

        Each turn of the loop: wait out the last failure, wait for an endpoint whose circuit breaker
        is closed, reserve its quota and take a slot, then send attempts (`_attempts`).

        The slot is held over all attempts and the waits between them: giving it back during a wait
        would let other requests run into the same rejections. It is given back, and a new one
        waited for, only where a 429 has left fewer slots than are held, or where the circuit
        breakers of all endpoints are open. Cancelling the call frees it.

        Args:
            body: the encoded chat request, with the first endpoint's name of the model.
            deadline_s: seconds from the first send, or from when all circuit breakers are open
                before it; the time in our queues never counts. Default: ``traffic.deadline_s``.
            sent: called at the first send, from when on the answer may cost money.
            counts: what the request took is added to it, however it ends.
            form: of the answer that the endpoint is asked to enforce, by name; empty for none.

        Raises:
            FormRefusedError: the endpoint does not enforce that form.
        """
        clock = asyncio.get_running_loop().time
        allowed_s = self.traffic.deadline_s if deadline_s is None else deadline_s
        endpoint = self._pool.only or self._pool.first(clock())
        request = RequestState(endpoint, body, allowed_s, sent, counts, form)
        try:
            while True:
                if request.wait_s > 0:
                    await asyncio.sleep(request.take_wait_s())
                if not request.endpoint.state.breaker.may_ask(clock()):
                    failed = await self._pool.wait_for_endpoint(request)
                    if failed is not None:
                        return failed
                if request.endpoint.state.breaker.is_open and self._pool.only is None:
                    self._probe_by_health_check(request, clock())
                slot = Slot(request.endpoint.state.limiter, again=request.sends > 0)
                at_once = request.try_reserve() and slot.try_enter()
                if not at_once and not await self._wait_for_slot(request, slot):
                    continue
                try:
                    request.start_deadline(clock())
                    ended = await self._attempts(request, slot)
                finally:
                    slot.release()
                if ended is not None:
                    return ended
        finally:
            request.end()

    def refuses(self, form: str) -> bool:
        """Whether one of the endpoints has refused to enforce this form of answer.

        One is enough, so that all verdicts of a judge are asked for in the same way.
        """
        for state in self._states:  # noqa: SIM110 - asked for each sample: no generator
            if form in state.refused_forms:
                return True
        return False

    def learn_refusal(self, endpoint: str, form: str) -> None:
        """Another process learned that the endpoint of this name refuses a form of answer."""
        for state in self._states:
            if state.name == endpoint:
                state.refused_forms.add(form)

    async def _wait_for_slot(self, request: RequestState, slot: Slot) -> bool:
        """Whether the slot is held and may be used; not if a circuit changed meanwhile."""
        if not await self._queue(request, _admission(request, slot)):
            self._pool.select_again(request)
            return False
        if self._pool.may_use_slot(request) and request.renew_reservation():
            if self._pool.only is None:
                self._check_others(request, asyncio.get_running_loop().time())
            return True
        slot.release()
        return False

    async def _attempts(self, request: RequestState, slot: Slot) -> JudgeReply | Abstain | None:
        """Send attempts while the slot may be kept: the final result, or None for another slot."""
        limiter = request.endpoint.state.limiter
        while True:
            ended = await self._attempt(request, slot)
            if ended is not None:
                return ended
            if _gives_slot_back(request, limiter):
                return None
            if request.wait_s > 0:
                await asyncio.sleep(request.take_wait_s())
                if _gives_slot_back(request, limiter):
                    return None

    async def _attempt(self, request: RequestState, slot: Slot) -> JudgeReply | Abstain | None:
        """Send one attempt: the final result, or None if the request is sent again."""
        reserved = request.try_reserve(has_slot=True)
        if not reserved and not await self._queue(request, _reservation(request)):
            return None
        endpoint = request.endpoint
        if request.form in endpoint.state.refused_forms:  # while it waited in the queue
            raise FormRefusedError(endpoint.target.name, "it has refused this form before")
        now_s = asyncio.get_running_loop().time()
        breaker, hedges = endpoint.state.breaker, endpoint.state.hedges
        if (breaker.is_open or request.sends) and (
            check := breaker.health_check_body(now_s, failed_s=request.doubtful_s)
        ):
            return await self._check_first(request, check)
        reservation = request.start_attempt(now_s)
        queue_s = request.queue_s if request.sends == 1 else 0.0
        admission = Admission(slot, reservation, queue_s, is_suspect=request.own_failures > 0)
        body = request.body if endpoint.translate is None else endpoint.translate(request.body)
        timeout_s = min(self.traffic.timeout_s, request.deadline_s - now_s)
        breaker.request_sent(now_s)
        try:
            if hedges is None:
                result = await self._sender.send(endpoint, body, admission, timeout_s=timeout_s)
            else:
                hedged = HedgedRequest(self._sender, endpoint, body, request.deadline_s)
                result = await hedged.run(admission, hedges, timeout_s)
                if hedged.sent:
                    request.add_copies(hedged.sent)
        finally:
            if breaker.request_ended():
                endpoint.state.circuit.changed()
        if result.completion is None or isinstance(result.reply, TransportError):
            request.end_attempt(others=slot.others)
            if request.counts is not None:
                self._keep_failure(request, request.counts, result)
            return self._failures.after(result.reply, request)
        closes = breaker.succeeded(
            request.sent_s, others=slot.others, body=body, latency_s=result.latency_s
        )
        if closes:
            self._failures.close_circuit(endpoint, probed=request.sent_s > breaker.opened_s)
        return JudgeReply(
            reply=result.reply,
            completion=result.completion,
            attempts=request.sends,
            latency_s=result.latency_s,
            queue_s=request.queue_s,
            endpoint=endpoint.target.name,
        )

    def _probe_by_health_check(self, request: RequestState, now_s: float) -> None:
        """Move the request to a healthy endpoint; a health check probes its own one instead.

        So no request has to find out whether an endpoint still hangs. Where no endpoint is healthy,
        the request stays, and is the probe itself.
        """
        healthy = self._pool.healthy(now_s)
        if healthy is None:
            return
        self._start_check(request.endpoint, request, now_s)
        request.move(healthy)

    def _check_others(self, request: RequestState, now_s: float) -> None:
        """Probe the endpoints that are ejected by health checks, whenever a request is sent.

        The requests of a batch wait in the queues of the other endpoints. Without this, only those
        that are yet to come would find out that an endpoint is back.
        """
        for endpoint in self._pool.ejected(request, now_s):
            self._start_check(endpoint, request, now_s)

    def _start_check(self, endpoint: PooledEndpoint, request: RequestState, now_s: float) -> None:
        """Begin a health check of `endpoint`, unless one is under way or its quota is used up."""
        breaker = endpoint.state.breaker
        if breaker.is_check_running(now_s):
            return
        translate = endpoint.translate or bytes
        body = breaker.answered_body or translate(request.body)
        reservation = endpoint.state.quota.try_reserve(body, has_slot=True)
        if reservation is not None:
            breaker.check_started(now_s)
            self.endpoint_states.start_check(self._health_check(endpoint, body, reservation))

    async def _check_first(self, request: RequestState, body: bytes) -> Abstain | None:
        """Send a health check in the place of the request, and wait until it has ended.

        It is no attempt of the request, which is sent once it is answered, but it uses up the
        request's quota reservation, since the provider counts it. Its time is not the request's: it
        goes on where the request is cancelled, or reaches its deadline and abstains.
        """
        endpoint, reservation = request.endpoint, request.spend_reservation()
        breaker, was_open = endpoint.state.breaker, endpoint.state.breaker.is_open
        check = self.endpoint_states.start_check(self._health_check(endpoint, body, reservation))
        left_s = request.deadline_s - asyncio.get_running_loop().time()
        await asyncio.wait([check], timeout=left_s)
        if not check.done():
            return self._pool.past_deadline(request)
        if not check.cancelled():
            check.result()
        if not breaker.is_open:
            request.checked(was_open=was_open)
        return None

    async def _health_check(
        self, endpoint: PooledEndpoint, body: bytes, reservation: Reservation
    ) -> None:
        """Send a health check, and tell the circuit breaker how it ended.

        It takes no slot of the requests, and as long as any request may.

        Args:
            endpoint: that is probed.
            body: of a request that the endpoint has answered, if there is one.
            reservation: its share of the quota.

        Raises:
            ZerowaitError: it could not be sent: the budget is spent, say.
        """
        breaker, slot = endpoint.state.breaker, endpoint.state.limiter.slot()
        clock = asyncio.get_running_loop().time
        sent_s, timeout_s = clock(), min(self.traffic.timeout_s, self.traffic.deadline_s)
        breaker.check_started(sent_s)
        breaker.request_sent(sent_s)
        body = _varied(body, f"\n(health check {self.jitter.getrandbits(32):08x})")
        admission = Admission(slot, reservation, is_suspect=True)
        try:
            result = await self._sender.send(endpoint, body, admission, timeout_s=timeout_s)
        finally:
            slot.ended(AttemptOutcome.SAYS_NOTHING)
            if breaker.request_ended(is_check=True):
                endpoint.state.circuit.changed()
        if result.completion is None:
            self._failures.after_health_check(result.reply, endpoint, sent_s)
        elif breaker.succeeded(clock(), others=slot.others):
            # also where requests failed that were sent later
            self._failures.close_circuit(endpoint, probed=True)

    def _keep_failure(
        self, request: RequestState, counts: RequestCounts, result: AttemptResult
    ) -> None:
        """Note the attempt that failed; all of it where `counts` keeps failed attempts."""
        reply, target = result.reply, request.endpoint.target
        counts.status = 0 if isinstance(reply, TransportError) else reply.status
        if counts.failed is None:
            return
        counts.failed.append(
            FailedAttempt(
                number=request.sends,
                at=self.wall(),
                endpoint=target.name,
                status=counts.status,
                latency_s=result.latency_s,
                why=target.redact(meaning(reply)[1]),
                reply=b"" if isinstance(reply, TransportError) else reply.body,
            )
        )

    async def _queue(self, request: RequestState, admission: Awaitable[Literal[True]]) -> bool:
        """Whether `admission` came; False if the request has to look for an endpoint again."""
        clock = asyncio.get_running_loop().time
        queued_s = clock()
        admitted = await request.endpoint.state.circuit.unless_woken(admission)
        request.add_queue_time(clock() - queued_s)
        return admitted is not None

    def _translation(self, endpoint: Endpoint) -> Callable[[bytes], bytes] | None:
        """Rewrites a request's body for `endpoint`: its model's name and API; None: as it is."""
        api, model, translate = endpoint.speaks, endpoint.model, self.translate
        if model != self.endpoints[0].model:
            return lambda body: translate(_renamed(body, model), api)
        return None if api == "chat" else lambda body: translate(body, api)


def _renamed(body: bytes, model: str) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(body) | {"model": model})


def _varied(body: bytes, words: str) -> bytes:
    """The request `body` with `words` at the end of its prompt, so that no cache has its answer.

    >>> _varied(b'{"messages":[{"content":"Judge."}]}', " Again.")
    b'{"messages":[{"content":"Judge. Again."}]}'
    """
    try:
        request = msgspec.json.decode(body)
    except msgspec.DecodeError:  # not ours
        return body
    match request:
        case {"messages": [*_, {"content": str(text)} as last]} | {
            "input": [*_, {"content": str(text)} as last]
        }:
            last["content"] = text + words
        case {"messages": [*_, {"content": [*parts]}]} | {"input": [*_, {"content": [*parts]}]}:
            for part in reversed(parts):
                if "text" in part:  # and no picture
                    part["text"] += words
                    break
        case {"prompt": str(text)}:  # of a base model, which continues the last line
            before, _, last_line = text.rpartition("\n\n")
            request["prompt"] = f"{before}{words}\n\n{last_line}"
        case {"text_2": str(text)}:  # of a reward model that compares two texts
            request["text_2"] = text + words
        case {"input": str(text)}:
            request["input"] = text + words
        case _:
            return body
    return msgspec.json.encode(request)


async def _admission(request: RequestState, slot: Slot) -> Literal[True]:
    """Wait in the endpoint's queues until quota is reserved and the slot is held."""
    if request.reservation is None:
        await request.reserve()
    await slot.enter()
    return True


async def _reservation(request: RequestState) -> Literal[True]:
    """Wait for quota with a slot at hand."""
    await request.reserve(has_slot=True)
    return True


def _gives_slot_back(request: RequestState, limiter: Limiter) -> bool:
    """Whether a request that failed goes on with another slot: elsewhere, or later."""
    state = request.endpoint.state
    return (
        (request.rejected and limiter.wants_back)
        or state.limiter is not limiter
        or not state.breaker.may_ask(asyncio.get_running_loop().time())
    )
