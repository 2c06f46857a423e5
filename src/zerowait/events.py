"""Events of an engine, as typed values passed to its listener.

The library never prints and never configures logging. An engine calls its listener with every
event, on its own loop, so a listener must be quick. Metrics, records and progress bars are
listeners.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, Literal, TypeAlias

import msgspec

from zerowait.types import Outcome, Reward, Sample

SAMPLE_UIDS: Final[ContextVar[tuple[str, ...]]] = ContextVar("SAMPLE_UIDS", default=())
"""The names, in the run's record, of the samples that the current task judges; empty without one.

A judgement passes through panels, votes, turns and comparisons, which make new samples of the
recorded one; this names it in all of them.
"""


class RequestRetried(msgspec.Struct, frozen=True, kw_only=True):
    """A request's attempt failed and is retried after `wait_s` seconds."""

    endpoint: str
    attempt: int
    wait_s: float
    why: str


class RequestEnded(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a request ended.

    Args:
        status: the HTTP status, or 0 when no reply came.
        latency_s: seconds from the send to the end of the reply.
        queue_s: seconds spent waiting for a slot before the send.
    """

    endpoint: str
    status: int
    latency_s: float
    queue_s: float


class RequestHedged(msgspec.Struct, frozen=True, kw_only=True):
    """A hedged request ended: it was sent `after_s` seconds after the first, late one.

    Args:
        won: its reply came first; else it was cancelled or failed.
    """

    endpoint: str
    after_s: float
    won: bool


class LimitChanged(msgspec.Struct, frozen=True, kw_only=True):
    """The concurrency limit of an endpoint went from `before` to `after` requests in flight."""

    endpoint: str
    before: int
    after: int
    why: str


class EndpointEjected(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint's circuit breaker opened: it gets no requests until a probe succeeds."""

    endpoint: str
    why: str


class EndpointReturned(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint's circuit breaker closed: a probe succeeded, and it gets requests again."""

    endpoint: str


class AccountExhausted(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint's account has no quota or money left, or is blocked; told once.

    Until it is paid, requests go to another endpoint of the judge; without one, judgements abstain
    at once.

    Args:
        why: the provider's own words, shortened.
    """

    endpoint: str
    why: str


class FormRefused(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint refuses structured output; told once for each form.

    The judge is asked by the prompt alone there, unless its verdict says ``structured: on``.

    Args:
        form: ``integer``, ``number``, ``choice``, ``criteria`` or the path of a schema.
        why: the endpoint's words.
    """

    endpoint: str
    form: str
    why: str


class EndingUnknown(msgspec.Struct, frozen=True, kw_only=True):
    """A reply has an unknown ``finish_reason``, so it may be incomplete; told once for each.

    Such requests are retried and abstain as ``http_error`` in the end. If the server uses the word
    for complete answers, list it in the endpoint's ``endings``.

    Args:
        ending: the reply's ``finish_reason``.
        why: the explanation.
    """

    endpoint: str
    ending: str
    why: str


class QuotaLearned(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint's headers named a quota, which limits requests from now on."""

    endpoint: str
    unit: Literal["requests", "tokens"]
    per_minute: float


class RequestCharged(msgspec.Struct, frozen=True, kw_only=True):
    """A request's cost was charged to the budget; only for models that have a price.

    Args:
        usd: its cost.
        estimated: its usage is not known (it failed or was cancelled after the send, or the reply
            names none), so it was charged its worst case.
    """

    judge: str
    model: str
    usd: float
    prompt_tokens: int = 0
    completion_tokens: int = 0
    estimated: bool = False


class FailedAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt of a judgement that brought no answer.

    Args:
        number: which send of its request it was, from 1.
        at: Unix time in seconds at which it ended.
        endpoint: where it was sent.
        status: of HTTP; 0 where no reply came.
        latency_s: seconds from the send to its end.
        why: what went wrong, in the provider's words where it gave any.
        reply: the body that came back, without the endpoint's secrets.
    """

    number: int
    at: float
    endpoint: str
    status: int
    latency_s: float
    why: str
    reply: bytes = b""


class JudgementSettled(msgspec.Struct, frozen=True, kw_only=True):
    """A judgement ended, with a verdict or an abstention.

    Args:
        source: ``asked`` the judge, answered from the ``cache``, ``joined`` an identical call in
            flight, or ``refused`` without a request, because the budget is spent, say.
        attempts: HTTP attempts, of an abstention as well; as hedges, tokens and cost 0 for one that
            joined a call, because they are those of the one that asked.
        latency_s: seconds of the successful attempt; 0 without a request.
        queue_s: seconds spent waiting for a slot.
        cost_usd: of its replies, by the usage they name; 0 without a request.
        component: of the reward that the judgement is for.
        cut_chars: characters of a long conversation that the judge was not shown.
        pictures: those that it was shown of one sample.
        hedges: of the attempts, the hedged copies.
        endpoint: the one that answered, or was asked last, without what may be secret in its URL;
            empty where none was asked.
        elapsed_s: seconds from the call to its end, with queues, retries and waits; 0 without a
            request.
        status: of the last HTTP reply; 0 without one.
        form: of the answer that the endpoint was asked to enforce; empty for none.
        question: the index of the judge's question; None for a comparison and for a row's own
            criteria.
        vote: the index among the votes on one question.
        uids: the names of the judged samples in the run's record; empty without a record.
        request: the body of the request; empty where its reply was in memory.
        reply: the body that `outcome` was read from; empty where there was none.
        failed: the attempts that brought no answer, where a record is kept.
    """

    # a record's line begins with these, in this order: `zerowait.record.judgements.JudgementLine`
    judge: str
    key: str
    source: Literal["asked", "cache", "joined", "refused"]
    outcome: Outcome
    component: str = ""
    uids: tuple[str, ...] = ()
    question: int | None = None
    vote: int = 0
    attempts: int = 0
    hedges: int = 0
    status: int = 0
    endpoint: str = ""
    model: str = ""
    form: str = ""
    latency_s: float = 0.0
    queue_s: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float = 0.0
    # what a line has otherwise, or not at all
    request: bytes = b""
    reply: bytes = b""
    failed: tuple[FailedAttempt, ...] = ()
    cut_chars: int = 0
    pictures: int = 0
    elapsed_s: float = 0.0

    def __repr__(self) -> str:  # bodies are long
        shown = ("judge", "key", "outcome", "source", "attempts", "component", "model", "endpoint")
        return f"JudgementSettled({', '.join(f'{n}={getattr(self, n)!r}' for n in shown)})"


class ModelChanged(msgspec.Struct, frozen=True, kw_only=True):
    """A judge's replies come from another model than before, so its scale may have changed.

    Told the first time that each served model and fingerprint is seen, in fresh and cached replies.

    Args:
        before, after: the served model's name, with its fingerprint in brackets if it names one.
    """

    judge: str
    before: str
    after: str


class ResponsesCompared(msgspec.Struct, frozen=True, kw_only=True):
    """A judge has compared the responses to one prompt, or a response with its reference.

    Args:
        group: the prompt group; empty for a comparison with a reference.
        members: how many responses were compared with each other.
        comparisons: pairs of different responses with a verdict.
        failed: pairs without one.
        inconsistent: of the comparisons, those with two contradictory answers: in the two orders of
            a pair, or in two windows of a ranking.
        models: the served models' names in the replies, each once, sorted.
    """

    judge: str
    component: str
    group: str = ""
    members: int = 2
    comparisons: int = 0
    failed: int = 0
    inconsistent: int = 0
    models: tuple[str, ...] = ()


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """The difference between two sets of verdicts on the same anchors.

    Args:
        anchors: how many have a verdict in both.
        mean_abs: the mean absolute difference, as a share of the verdict's range, in [0, 1].
        rank_correlation: Spearman's, in [-1, 1]; None where either side has one value only.
        flips: how many verdicts crossed the middle of the range.
    """

    anchors: int
    mean_abs: float
    rank_correlation: float | None
    flips: int


class AnchorsMeasured(msgspec.Struct, frozen=True, kw_only=True):
    """A judge's anchors were measured.

    Args:
        measurement: its number, 1 for the engine's first.
        asked: number of anchors. reached: how many of them got a verdict.
        since_first: drift from the first measurement. from_reference: drift from the reference
            verdicts. None where no verdict was reached.
    """

    judge: str
    measurement: int
    asked: int
    reached: int
    since_first: Drift | None
    from_reference: Drift | None


class JudgeDrifted(msgspec.Struct, frozen=True, kw_only=True):
    """A judge's drift on its anchors exceeds its ``anchors_alarm``.

    Told when it crosses the limit, and again only after it was within the limit meanwhile.

    Args:
        against: the ``first`` measurement, or the ``reference`` verdicts.
        limit: the largest `mean_abs` that is allowed.
    """

    judge: str
    against: Literal["first", "reference"]
    drift: Drift
    limit: float


class RewardSettled(msgspec.Struct, frozen=True, kw_only=True):
    """A sample's reward is known; `submitted_at` and `settled_at` are Unix times in seconds."""

    sample: Sample
    reward: Reward
    submitted_at: float
    settled_at: float


class HealthAlarm(msgspec.Struct, frozen=True, kw_only=True):
    """A training step's rewards show a symptom that those of the step before did not.

    Args:
        kind: see `zerowait.engine.monitor.health.ALARMS`.
        component: of the reward; empty for the whole reward.
        step: of the training.
        why: the figures.
    """

    kind: str
    component: str
    step: int
    why: str


class StoreFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The cache could not be read or written; the judgement proceeds without it."""

    why: str


class StoreReturned(msgspec.Struct, frozen=True, kw_only=True):
    """Redis answers again after a `StoreFailed`, since which it was not used; now it is."""


class LoopLagged(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's event loop was blocked for `lag_s` seconds.

    Args:
        lag_s: how late a timer of the loop ran, in seconds.
        where: the function that blocked it, with file and line; empty when it is not known, as
            for code that holds Python's global lock, or a process that was suspended.
    """

    lag_s: float
    where: str = ""


class NothingMoves(msgspec.Struct, frozen=True, kw_only=True):
    """The stall watchdog fired: components are pending and none has made progress.

    Args:
        for_s: seconds without progress.
        pending: the number of pending components of samples.
        dump: the oldest of them, and the stacks of the process's tasks and threads.
    """

    for_s: float
    pending: int
    dump: str


class TimeoutTooShort(msgspec.Struct, frozen=True, kw_only=True):
    """A judge's answer of ``max_tokens`` would exceed the timeout of an attempt; told once.

    Args:
        timeout_s: of one attempt, as configured.
        needed_s: the duration of an answer of ``max_tokens`` at `tokens_per_s`.
        tokens_per_s: the speed of the fastest of the judge's first long answers.
    """

    judge: str
    timeout_s: float
    needed_s: float
    tokens_per_s: float


Event: TypeAlias = (
    RequestRetried
    | RequestEnded
    | RequestHedged
    | LimitChanged
    | QuotaLearned
    | AccountExhausted
    | FormRefused
    | EndingUnknown
    | EndpointEjected
    | EndpointReturned
    | RequestCharged
    | JudgementSettled
    | ModelChanged
    | ResponsesCompared
    | AnchorsMeasured
    | JudgeDrifted
    | RewardSettled
    | HealthAlarm
    | StoreFailed
    | StoreReturned
    | LoopLagged
    | NothingMoves
    | TimeoutTooShort
)
Listener: TypeAlias = Callable[[Event], None]


def ignore_event(event: Event) -> None:
    """A listener that ignores every event."""
