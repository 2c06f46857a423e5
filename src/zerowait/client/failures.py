"""After a failed attempt (429, 5xx, timeout): retry, change endpoint or give up; tell the breaker.

A 429 is classified by `zerowait.attribution`, its wait is decided in `retry`, and what it teaches
the concurrency limit is in `limits.rejections` and `limits.adaptive`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import Random
from typing import NoReturn

from zerowait.client.endpoint_pool import EndpointPool, attempts_text
from zerowait.client.endpoint_state import PooledEndpoint
from zerowait.client.limits.breaker import Reason
from zerowait.client.request_state import FormRefusedError, RequestState
from zerowait.client.retry import (
    LONGEST_CAP_S,
    GiveUp,
    RetryContext,
    attribution,
    decide,
    is_client_error,
    is_endpoint_fault,
    is_overload,
    is_rate_limit,
    is_spent,
    is_stale_connection,
    is_timeout,
    is_unprocessed,
    is_unsent,
    may_be_outage,
    meaning,
    refuses_format,
)
from zerowait.client.transport import Reply, TransportError
from zerowait.config.traffic import Traffic
from zerowait.events import (
    AccountExhausted,
    EndingUnknown,
    EndpointEjected,
    EndpointReturned,
    FormRefused,
    Listener,
    RequestRetried,
)
from zerowait.types import Abstain

_LOG = logging.getLogger(__name__)


class FailureHandler:
    """Decides on retries, and reports failures to the circuit breakers.

    Args:
        pool: the endpoints of the judge.
        retry_after_s: the seconds that a reply asks to wait; 0 for none.
        traffic: how many attempts.
        listener: receives every retry, and every opening and closing of a circuit breaker.
        jitter: the source of randomness for waits.
        wall: Unix time in seconds, for a Retry-After that is a date.
    """

    def __init__(
        self,
        pool: EndpointPool,
        retry_after_s: Callable[[Reply | TransportError], float],
        traffic: Traffic,
        listener: Listener,
        *,
        jitter: Random,
        wall: Callable[[], float],
    ) -> None:
        self._pool = pool
        self._retry_after_s = retry_after_s
        self._traffic = traffic
        self._listener = listener
        self._jitter = jitter
        self._wall = wall

    def after(self, failed: Reply | TransportError, request: RequestState) -> Abstain | None:
        """An Abstain, or None if the request is sent again after ``request.wait_s``.

        Raises:
            FormRefusedError: the endpoint refused to enforce the form of the answer.
        """
        now_s = asyncio.get_running_loop().time()
        is_stale = is_stale_connection(failed) and not request.resent
        if not is_stale:
            self._warn_once(failed, request.endpoint)
            self._blame(failed, request, now_s)
        if request.form and refuses_format(failed):
            self._refuse_form(failed, request)
        other = self._other(failed, request.endpoint, now_s)
        target = request.endpoint.target
        context = self._retry_context(failed, request, other, now_s)
        decision = decide(failed, context, jitter=self._jitter)
        why = target.redact(decision.why)
        if isinstance(decision, GiveUp):
            attempts = attempts_text(request.sends)
            return Abstain(decision.kind, f"{target.name}: {why} (after {attempts})")
        rests = context.all_open_for_s is not None
        wait_s = self._pool.rests_s(now_s) if rests else decision.after_s
        self._listener(
            RequestRetried(endpoint=target.name, attempt=request.sends, wait_s=wait_s, why=why)
        )
        if is_stale:
            request.resend()
            return None
        request.retry(
            0.0 if rests else wait_s, rejected=is_overload(failed), counted=decision.counted
        )
        is_crowd = is_overload(failed) and request.others > 0
        if may_be_outage(failed) and not is_crowd and request.endpoint.state.breaker.has_answered:
            request.doubt(attempts=self._traffic.attempts)
        if other is not None:
            request.move(other)
        return None

    def _other(
        self, failed: Reply | TransportError, endpoint: PooledEndpoint, now_s: float
    ) -> PooledEndpoint | None:
        """The endpoint where the request goes on, if that is another one."""
        is_long = self._retry_after_s(failed) > LONGEST_CAP_S  # a quota of the day, say
        is_fault = is_endpoint_fault(failed) or is_timeout(failed)
        is_of_no_use = is_fault or is_spent(failed) or is_long
        if is_of_no_use or not endpoint.state.breaker.may_ask(now_s):
            return self._pool.other(endpoint, now_s)
        return None

    def _retry_context(
        self,
        failed: Reply | TransportError,
        request: RequestState,
        other: PooledEndpoint | None,
        now_s: float,
    ) -> RetryContext:
        breaker = request.endpoint.state.breaker
        rests = other is None and not breaker.may_ask(now_s)
        return RetryContext(
            attempt=request.attempt,
            attempts=self._traffic.attempts,
            remaining_s=request.deadline_s - now_s,
            free=request.free,
            is_down=breaker.has_answered
            and (breaker.is_open or breaker.has_check or is_unsent(failed)),
            own_fault=_is_own(failed, request) and not breaker.is_open,
            all_open_for_s=self._pool.named_rest_s(now_s) if rests else None,
            resent=request.resent,
            changes_endpoint=other is not None,
            now_s=self._wall(),
        )

    def _blame(self, failed: Reply | TransportError, request: RequestState, now_s: float) -> None:
        """Report a failure to the endpoint's circuit breaker, unless it is the request's own."""
        endpoint = request.endpoint
        breaker = endpoint.state.breaker
        overloads = is_overload(failed)
        spent = is_spent(failed)
        if not (spent or overloads or is_endpoint_fault(failed) or is_timeout(failed)):
            if is_client_error(failed) and breaker.close():
                self.close_circuit(endpoint)
            return
        if not spent:
            request.suspect(breaker, rejected=overloads)
            # the last ones of a batch would open it, and no other is left to close it
            is_last = overloads and request.was_passed and not endpoint.state.limiter.waiting
            if (is_last or _is_own(failed, request)) and not breaker.is_open:
                return
        retry_after_s = self._retry_after_s(failed)
        reason = _reason(failed, endpoint)
        by = None if is_unprocessed(failed) and not is_rate_limit(failed) else request
        if spent:
            opens = _spent(endpoint, now_s, reason)
        elif overloads:
            firmly = is_endpoint_fault(failed) or retry_after_s > LONGEST_CAP_S
            opens = breaker.rejected(
                now_s, reason, retry_after_s=retry_after_s, firmly=firmly, by=by
            )
        else:
            opens = breaker.failed(
                now_s, reason, retry_after_s=retry_after_s, by=by, is_down=is_unsent(failed)
            )
        if opens:
            self._opened(endpoint, reason)

    def _opened(self, endpoint: PooledEndpoint, reason: Reason) -> None:
        """The endpoint's circuit breaker has opened: its requests may go elsewhere."""
        self._listener(EndpointEjected(endpoint=endpoint.target.name, why=reason[1]))
        endpoint.state.circuit.wake()

    def after_health_check(
        self, failed: Reply | TransportError, endpoint: PooledEndpoint, sent_s: float
    ) -> None:
        """A health check failed: the endpoint is down, unless its reply shows that it works."""
        self._warn_once(failed, endpoint)
        now_s = asyncio.get_running_loop().time()
        breaker, reason = endpoint.state.breaker, _reason(failed, endpoint)
        opens = False
        if is_spent(failed):
            opens = _spent(endpoint, now_s, reason, is_check=True)
        elif is_overload(failed) and breaker.in_flight and not breaker.is_open:
            pass  # others may have been accepted
        elif may_be_outage(failed):
            retry_after_s = self._retry_after_s(failed)
            opens = breaker.check_failed(now_s, reason, sent_s=sent_s, retry_after_s=retry_after_s)
        elif breaker.close():
            self.close_circuit(endpoint)
        if opens:
            self._opened(endpoint, reason)

    def _refuse_form(self, failed: Reply | TransportError, request: RequestState) -> NoReturn:
        """Remember that this endpoint does not enforce the form, and report it the first time."""
        endpoint, form = request.endpoint, request.form
        name = endpoint.target.name
        why = endpoint.target.redact(meaning(failed)[1])
        if form not in endpoint.state.refused_forms:
            endpoint.state.refused_forms.add(form)
            self._listener(FormRefused(endpoint=name, form=form, why=why))
            _LOG.warning("%s: refuses structured output (%s): %s", name, form, why)
        raise FormRefusedError(name, f"{name}: {why}")

    def _warn_once(self, failed: Reply | TransportError, endpoint: PooledEndpoint) -> None:
        """Report once what a person has to look at: an unknown ending, or an empty account."""
        if isinstance(failed, TransportError):
            return
        found, name = attribution(failed), endpoint.target.name
        about = "account" if found.again == "elsewhere" else f"ending {found.ending}"
        if about in endpoint.state.warned or about == "ending ":
            return
        endpoint.state.warned.add(about)
        words = endpoint.target.redact(found.words)
        if found.ending:
            self._listener(EndingUnknown(endpoint=name, ending=found.ending, why=words))
            _LOG.warning("%s: %s", name, words)
        else:
            self._listener(AccountExhausted(endpoint=name, why=words))
            _LOG.error(
                "%s: no more answers until the account has quota or money again: %s", name, words
            )

    def close_circuit(self, endpoint: PooledEndpoint, *, probed: bool = False) -> None:
        """The endpoint answers again: let its waiting requests go on.

        Args:
            endpoint: whose circuit breaker has closed.
            probed: the answer is to a request that was sent after the breaker opened: the endpoint
                was away, and its rejections before say nothing about its limit.
        """
        self._listener(EndpointReturned(endpoint=endpoint.target.name))
        if probed:
            endpoint.state.limiter.recover()
        endpoint.state.circuit.changed()


def _is_own(failed: Reply | TransportError, request: RequestState) -> bool:
    """Whether the failure is the request's own: it failed before while others were answered."""
    return request.own_failures > 0 and not is_unsent(failed)


def _spent(
    endpoint: PooledEndpoint, now_s: float, reason: Reason, *, is_check: bool = False
) -> bool:
    """Report an account that is used up. Returns whether the breaker opens."""
    breaker = endpoint.state.breaker
    opens = breaker.spent(now_s, reason, is_check=is_check)
    if breaker.is_spent:
        # requests that wait for a probe are released: only a payment brings the endpoint back
        endpoint.state.circuit.changed()
    return opens


def _reason(failed: Reply | TransportError, endpoint: PooledEndpoint) -> Reason:
    """The kind of a failure and its message, without secrets."""
    kind, why = meaning(failed)
    return kind, endpoint.target.redact(why)
