"""The retry decision after a failed attempt. Pure: it returns a wait, and the caller sleeps."""

from __future__ import annotations

from random import Random
from typing import Final, TypeAlias

import msgspec

from zerowait.attribution import Attribution, attributed
from zerowait.client.headers import retry_after_s, used_up_s, wait_in_words_s
from zerowait.client.transport import Reply, TransportError
from zerowait.types import FailureKind

SHORTEST_CAP_S: Final = 0.5
LONGEST_CAP_S: Final = 8.0
OWN_CAP_S: Final = 1.0
_OF_FORMS: Final = frozenset({400, 404, 405, 415, 422, 500, 501})
_UNPROCESSED: Final = frozenset({429, 502, 503, 529})


class Retry(msgspec.Struct, frozen=True):
    """Send again after `after_s` seconds; `counted` is False when that resend is free."""

    after_s: float
    why: str
    counted: bool = True


class GiveUp(msgspec.Struct, frozen=True):
    """Do not send again: the judgement abstains with `kind`."""

    kind: FailureKind
    why: str


Decision: TypeAlias = Retry | GiveUp


class RetryContext(msgspec.Struct, frozen=True, kw_only=True):
    """What the retry decision knows of a request.

    Args:
        attempt: the attempts so far, the failed one included.
        attempts: how many there may be.
        remaining_s: seconds until the request's deadline.
        free: how many of them do not count.
        resent: the free resend was used.
        is_down: the endpoint answered before, and now its circuit breaker is open, a health check
            is under way, or it cannot be reached.
        own_fault: other requests are answered: this one fails for reasons of its own.
        all_open_for_s: where the circuit breakers of all endpoints are open: for how many seconds
            all have asked for no requests; None where one endpoint is available.
        changes_endpoint: the next attempt goes to another endpoint, for which the Retry-After of
            this one does not hold.
        now_s: Unix time, to read a Retry-After that is a date.
    """

    attempt: int
    attempts: int
    remaining_s: float
    free: int = 0
    is_down: bool = False
    own_fault: bool = False
    all_open_for_s: float | None = None
    resent: bool = False
    changes_endpoint: bool = False
    now_s: float = 0.0


def decide(failed: Reply | TransportError, context: RetryContext, *, jitter: Random) -> Decision:
    """The decision after a failed attempt: another one after a wait, or none.

    Retried is what `zerowait.attribution` says may be another time: 408, 409, 429, every 5xx, every
    `TransportError`, and a 2xx, which here means that its body was no whole completion.
    ``x-should-retry: true`` or ``false`` overrules the status, and not what the body says of the
    text or the account. An account that is used up is tried at another endpoint, if there is one.
    The wait is drawn evenly below a cap that doubles from 0.5 s to 8 s, or to 1 s while others are
    answered. A named Retry-After is waited for instead, times 1 to 1.25, and one of less than a
    second is spread over up to 1 s. The first failure of a reused connection is resent at once and
    not counted, because the server may have closed it while idle. Nor is one counted that an outage
    explains: while the circuit breaker is open or a health check under way, or where the endpoint
    cannot be reached any more.
    A wait that would reach the deadline gives up at once.

    Args:
        failed: the reply that is no answer, or the transport's error.
        context: the state of the request.
        jitter: the source of randomness for waits.

    Reference:
        Brooker 2015, "Exponential backoff and jitter" (full jitter).

    >>> context = RetryContext(attempt=1, attempts=6, remaining_s=300.0)
    >>> decide(Reply(401, {}, b""), context, jitter=Random(0)).kind
    <FailureKind.HTTP_ERROR: 'http_error'>
    >>> limited = Reply(429, {"retry-after": "7"}, b"")
    >>> 7.0 <= decide(limited, context, jitter=Random(0)).after_s <= 8.75
    True
    """
    kind, why = meaning(failed)
    if not _worth_another(failed, context):
        return GiveUp(kind, why)
    if is_stale_connection(failed) and not context.resent and context.remaining_s > 0:
        return Retry(0.0, why, counted=False)
    counted = context.own_fault or not (context.is_down and may_be_outage(failed))
    if counted and context.attempt - context.free >= context.attempts:
        return GiveUp(kind, why)
    wait_s = _wait_s(failed, context, jitter)
    if wait_s >= context.remaining_s:
        return GiveUp(kind, f"{why}; the deadline comes before the next attempt in {wait_s:.1f} s")
    return Retry(wait_s, why, counted=counted)


def attribution(failed: Reply) -> Attribution:
    """What a reply that is no answer means."""
    if failed.attribution is not None:
        return failed.attribution
    has_wait = retry_after_s(failed.headers, now_s=0.0) is not None
    return attributed(failed.status, failed.body, has_wait=has_wait)


def is_spent(failed: Reply | TransportError) -> bool:
    """Whether the account is used up, or may not be used: no request gets an answer then."""
    return isinstance(failed, Reply) and attribution(failed).again == "elsewhere"


def is_endpoint_fault(failed: Reply | TransportError) -> bool:
    """Whether another endpoint may do better: it could not be reached, or answered 5xx."""
    if isinstance(failed, TransportError):
        return failed.kind is FailureKind.UNREACHABLE
    return attribution(failed).status >= 500


def is_unsent(failed: Reply | TransportError) -> bool:
    """Whether the request did not reach the endpoint: then the request is not at fault."""
    return isinstance(failed, TransportError) and not failed.sent


def is_unprocessed(failed: Reply | TransportError) -> bool:
    """Whether it is certain that the request itself is not at fault: it was not processed."""
    return is_unsent(failed) or (
        isinstance(failed, Reply) and attribution(failed).status in _UNPROCESSED
    )


def may_be_outage(failed: Reply | TransportError) -> bool:
    """Whether a server that is down, or overloaded, fails like that for every request."""
    return is_unprocessed(failed) or is_endpoint_fault(failed) or is_timeout(failed)


def is_timeout(failed: Reply | TransportError) -> bool:
    """Whether no complete reply came in time."""
    return isinstance(failed, TransportError) and failed.kind is FailureKind.TIMEOUT


def is_stale_connection(failed: Reply | TransportError) -> bool:
    """Whether the failure may only mean that the server had closed an idle connection."""
    return (
        isinstance(failed, TransportError)
        and failed.reused_connection
        and failed.kind is FailureKind.UNREACHABLE
    )


def is_client_error(failed: Reply | TransportError) -> bool:
    """Whether the server read the request and answered 3xx or 4xx: so the server is up."""
    return isinstance(failed, Reply) and 300 <= attribution(failed).status < 500


def is_overload(failed: Reply | TransportError) -> bool:
    """Whether the request was rejected for load: 429, or 503 with a Retry-After."""
    if isinstance(failed, TransportError):
        return False
    status = attribution(failed).status
    return status == 429 or (status == 503 and "retry-after" in failed.headers)


def refuses_format(failed: Reply | TransportError) -> bool:
    """Whether the endpoint refused the structured output that the request asks for.

    Also with a 500, as servers say it that find out while they compile the grammar.
    """
    if isinstance(failed, TransportError):
        return False
    found = attribution(failed)
    is_kind = found.kind is FailureKind.HTTP_ERROR and found.again != "elsewhere"
    return found.about_format and is_kind and found.status in _OF_FORMS


def is_rate_limit(failed: Reply | TransportError) -> bool:
    """Whether the status is 429, which a server has for one request that is too large, too."""
    return isinstance(failed, Reply) and attribution(failed).status == 429


def asked_wait_s(failed: Reply | TransportError, *, now_s: float) -> float | None:
    """The seconds that the endpoint asks to wait, above 0, or None.

    It does by a Retry-After, by a 429 that says that a quota of the hour or day is used up, or by
    the words of a 429 or 503.
    """
    if isinstance(failed, TransportError):
        return None
    wait_named_s = retry_after_s(failed.headers, now_s=now_s)
    status = attribution(failed).status
    if wait_named_s is None and status == 429:
        wait_named_s = used_up_s(failed.headers, now_s=now_s)
    if wait_named_s is None and status in (429, 503):
        return wait_in_words_s(failed.body)
    return wait_named_s


def _worth_another(failed: Reply | TransportError, context: RetryContext) -> bool:
    if isinstance(failed, TransportError):
        return True
    found = attribution(failed)
    if found.again == "elsewhere":
        return context.changes_endpoint
    advice = failed.headers.get("x-should-retry", "").strip().lower()
    if advice == "false" or (advice == "true" and found.cause != "policy"):
        return advice == "true"
    return found.again == "later"


def _wait_s(failed: Reply | TransportError, context: RetryContext, jitter: Random) -> float:
    if context.all_open_for_s is not None:
        return context.all_open_for_s
    longest_s = OWN_CAP_S if context.own_fault else LONGEST_CAP_S
    cap_s = min(longest_s, SHORTEST_CAP_S * 2.0 ** min(context.attempt - 1, 10))
    wait_s = jitter.uniform(0, cap_s)
    wait_named_s = None if context.changes_endpoint else asked_wait_s(failed, now_s=context.now_s)
    if wait_named_s is None:
        return wait_s
    # many are told the same short wait, of which only the first gets what they wait for
    return max(min(wait_s, OWN_CAP_S), wait_named_s * (1 + jitter.uniform(0, 0.25)))


def meaning(failed: Reply | TransportError) -> tuple[FailureKind, str]:
    """The kind of a failure, and words for people; they hold no header."""
    if isinstance(failed, TransportError):
        return failed.kind, failed.detail
    found = attribution(failed)
    return found.kind, found.words
