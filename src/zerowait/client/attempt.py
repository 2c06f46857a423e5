"""One send: what it tells the limit, the quota and the listener, and what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from zerowait.attribution import attributed
from zerowait.client.endpoint_state import EndpointState
from zerowait.client.headers import retry_after_s
from zerowait.client.limits.limiter import AttemptOutcome, Slot
from zerowait.client.limits.quota import Reservation
from zerowait.client.retry import asked_wait_s, is_overload
from zerowait.client.target import Target
from zerowait.client.transport import Reply, Request, Transport, TransportError
from zerowait.config.endpoint import Endpoint
from zerowait.errors import ZerowaitError
from zerowait.events import Listener, RequestEnded
from zerowait.types import FailureKind

_SHOWN: Final = 200


class PooledEndpoint(msgspec.Struct, frozen=True):
    """An endpoint with what is sent there and what its requests share."""

    endpoint: Endpoint
    target: Target
    lane: EndpointState


class Admission(msgspec.Struct, frozen=True):
    """What a send needs.

    Args:
        slot: its place among those in flight.
        claim: its share of the quota.
        queue_s: spent waiting for them.
        is_suspect: the request was refused before while others were accepted: that it is refused
            once more says nothing about the limit.
    """

    slot: Slot
    claim: Reservation
    queue_s: float = 0.0
    is_suspect: bool = False


class AttemptResult(msgspec.Struct, frozen=True):
    """What came of a send; `is_answer` if it is what was asked for."""

    reply: Reply | TransportError
    latency_s: float
    is_answer: bool


class Sender(msgspec.Struct, frozen=True):
    """Sends requests and tells everybody what came of them.

    Args:
        transport: carries them.
        well_formed: whether a 200's body is a chat completion.
        usage: the prompt and completion tokens that a request's reply says it cost, or zeros.
        listener: hears of the end of each.
        wall: Unix time in seconds, for a Retry-After that is a date.
        endings: further words that mean a complete reply.
    """

    transport: Transport
    well_formed: Callable[[bytes], bool]
    usage: Callable[[bytes, bytes], tuple[int, int]]
    listener: Listener
    wall: Callable[[], float]
    endings: Sequence[str] = ()

    async def send(
        self, road: PooledEndpoint, body: bytes, permit: Admission, *, timeout_s: float
    ) -> AttemptResult:
        """What came of one request. Whatever a transport fails with is a result, too.

        Raises:
            ZerowaitError: it could not be sent at all: the budget is spent, the transport closed.
        """
        clock = asyncio.get_running_loop().time
        permit.slot.sent()
        road.lane.quota.sent(permit.claim)
        sent_s = clock()
        reply = await self._carry(road.target, body, timeout_s)
        latency_s = clock() - sent_s
        status = reply.status if isinstance(reply, Reply) else 0
        is_answer = self._is_answer(reply)
        if isinstance(reply, Reply) and not is_answer:
            reply = self._explained(reply)
        result = AttemptResult(reply, latency_s, is_answer)
        self._book(road, body, permit, result)
        self.listener(
            RequestEnded(
                endpoint=road.target.name,
                status=status,
                latency_s=latency_s,
                queue_s=permit.queue_s,
            )
        )
        return result

    def named_s(self, reply: Reply | TransportError) -> float:
        """The wait that the endpoint asks for; 0 when it names none."""
        return asked_wait_s(reply, now_s=self.wall()) or 0.0

    async def _carry(self, place: Target, body: bytes, timeout_s: float) -> Reply | TransportError:
        try:
            request = Request(place.url, place.headers, body, place.proxy)
            reply = await self.transport.send(request, timeout_s=timeout_s)
            return place.scrub(reply)
        except TransportError as error:
            return _bare(error, place)
        except ZerowaitError:
            raise
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return _untold(error, place)  # nobody cancelled us: something of the transport's was
        except Exception as error:  # noqa: BLE001 - a transport may be anybody's
            return _untold(error, place)

    def _is_answer(self, reply: Reply | TransportError) -> bool:
        return (
            not isinstance(reply, TransportError)
            and 200 <= reply.status < 300
            and self.well_formed(reply.body)
        )

    def _explained(self, reply: Reply) -> Reply:
        """`reply` with what it means, and the status that says the same.

        So an error that the body of a 200 tells counts everywhere as if its status had said it.
        """
        found = attributed(
            reply.status,
            reply.body,
            has_wait=retry_after_s(reply.headers, now_s=self.wall()) is not None,
            accepted=self.endings,
        )
        return Reply(found.status, reply.headers, reply.body, found)

    def _book(
        self, road: PooledEndpoint, body: bytes, permit: Admission, result: AttemptResult
    ) -> None:
        reply, quota, claim = result.reply, road.lane.quota, permit.claim
        if isinstance(reply, TransportError):
            permit.slot.ended(AttemptOutcome.SAYS_NOTHING)
            return
        dry_s = 0.0
        ending = AttemptOutcome.SUCCEEDED if result.is_answer else AttemptOutcome.SAYS_NOTHING
        if result.is_answer:
            if quota.counts_tokens:
                quota.settle(claim, body, self.usage(body, reply.body))
        elif is_overload(reply):
            ending, dry_s = AttemptOutcome.OVERLOADED, self.named_s(reply)
        quota.heed(reply.headers, claim, dry_s=dry_s)
        if ending is AttemptOutcome.OVERLOADED:
            quota.refused(claim)
        if ending is AttemptOutcome.OVERLOADED and permit.is_suspect:
            ending = AttemptOutcome.SAYS_NOTHING
        permit.slot.ended(ending, retry_after_s=dry_s)


def _bare(error: TransportError, place: Target) -> TransportError:
    """`error` as a value: without frames, which it would keep alive, and without secrets."""
    error.detail = place.redact(error.detail)
    error.args = (error.detail,)
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def _untold(error: BaseException, place: Target) -> TransportError:
    """What a transport should have raised: its fault costs a judgement, and never the run."""
    late = isinstance(error, TimeoutError)
    words = place.redact(f"{type(error).__name__}: {error}".removesuffix(": "))
    return TransportError(
        FailureKind.TIMEOUT if late else FailureKind.UNREACHABLE,
        f"the transport failed: {words[:_SHOWN]}",
    )
