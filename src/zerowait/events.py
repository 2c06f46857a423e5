"""What happens, as typed values handed to whoever listens.

The library never prints and never configures logging. An engine calls every listener with every
event, on its own loop; a listener must be quick. Metrics, records and progress bars are listeners.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from zerowait.types import Outcome, Reward, Sample


class RequestRetried(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt failed and another follows after `wait_s` seconds."""

    endpoint: str
    attempt: int
    wait_s: float
    why: str


class RequestEnded(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt came to its end.

    Args:
        status: the HTTP status, or 0 when no reply came.
        latency_s: from the send to the end of the reply.
        queue_s: spent waiting for a slot before the send.
    """

    endpoint: str
    status: int
    latency_s: float
    queue_s: float


class RequestHedged(msgspec.Struct, frozen=True, kw_only=True):
    """A late request had been sent once more, `after_s` seconds after the first time.

    Args:
        won: its answer was the first one; else it was cancelled or failed.
    """

    endpoint: str
    after_s: float
    won: bool


class LimitChanged(msgspec.Struct, frozen=True, kw_only=True):
    """The number of requests that may be in flight at an endpoint went from `before` to `after`."""

    endpoint: str
    before: int
    after: int
    why: str


class EndpointEjected(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint is left alone until a probe is answered; others are asked, if there are any."""

    endpoint: str
    why: str


class EndpointReturned(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint that was left alone has answered, and is asked as before."""

    endpoint: str


class AccountExhausted(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint's account has no quota or money left, or may not be used; told once.

    Judgements abstain at once until it is paid; another endpoint of the judge is asked instead, if
    there is one.

    Args:
        why: the provider's own words, shortened.
    """

    endpoint: str
    why: str


class EndingUnknown(msgspec.Struct, frozen=True, kw_only=True):
    """A reply ended with a word of which nobody knows that it ends a whole answer; told once each.

    Such replies are asked for again and end as ``http_error``. If the server means a whole answer
    by it, the endpoint's ``endings`` accept it.

    Args:
        ending: the reply's ``finish_reason``.
        why: in words.
    """

    endpoint: str
    ending: str
    why: str


class QuotaLearned(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint's headers name a quota, which is kept to from now on."""

    endpoint: str
    unit: Literal["requests", "tokens"]
    per_minute: float


class RequestCharged(msgspec.Struct, frozen=True, kw_only=True):
    """A request was booked; told only for models that have a price.

    Args:
        usd: what it cost.
        estimated: it brought no bill (it failed or was cancelled after the send, or the reply names
            no usage) and was charged its worst case.
    """

    judge: str
    model: str
    usd: float
    prompt_tokens: int = 0
    completion_tokens: int = 0
    estimated: bool = False


class JudgementSettled(msgspec.Struct, frozen=True, kw_only=True):
    """A judge's verdict was reached, or it is known that it was not.

    Args:
        source: ``asked`` the judge, answered from the ``cache``, ``joined`` a call in flight, or
            ``refused`` because the budget is spent.
        latency_s: of the successful attempt; 0 when nobody was asked.
        cost_usd: of its replies, by the usage they name; 0 when nobody was asked.
        component: of the reward, for which it was wanted.
    """

    judge: str
    key: str
    outcome: Outcome
    source: Literal["asked", "cache", "joined", "refused"]
    attempts: int = 0
    latency_s: float = 0.0
    queue_s: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float = 0.0
    model: str = ""
    component: str = ""


class ModelChanged(msgspec.Struct, frozen=True, kw_only=True):
    """A judge's verdicts come from another model than before: their scale may be another one.

    Told the first time each served model and fingerprint is seen, in fresh replies and cached ones.

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
        comparisons: pairs of different responses about which a verdict was reached.
        failed: pairs about which none was.
        inconsistent: of the comparisons, those in which two answers disagreed: the two orders of a
            pair, or two windows of a ranking.
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
    """How far two sets of verdicts on the same anchors are apart.

    Args:
        anchors: how many have a verdict in both.
        mean_abs: the mean absolute difference, as a share of the verdict's range, in [0, 1].
        rank_correlation: Spearman's, in [-1, 1]; None where either side has one value only.
        flips: how many changed to the other side of the middle of the range.
    """

    anchors: int
    mean_abs: float
    rank_correlation: float | None
    flips: int


class AnchorsMeasured(msgspec.Struct, frozen=True, kw_only=True):
    """A judge was asked its anchors.

    Args:
        measurement: 1 for the first one of the engine.
        asked: anchors. reached: of these, how many got a verdict.
        since_first: against the first measurement. from_reference: against the reference verdicts.
            None where no verdict was reached.
    """

    judge: str
    measurement: int
    asked: int
    reached: int
    since_first: Drift | None
    from_reference: Drift | None


class JudgeDrifted(msgspec.Struct, frozen=True, kw_only=True):
    """A judge's verdicts on its anchors are further off than its ``anchors_alarm`` allows.

    Told when it gets so, and again only after it was within the limit meanwhile.

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
    """A training step's rewards are suspicious in a way that those of the step before were not.

    Args:
        kind: see `zerowait.engine.monitor.health.ALARMS`.
        component: what it is about; empty for the whole reward.
        step: of the training.
        why: the figures.
    """

    kind: str
    component: str
    step: int
    why: str


class StoreFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The cache could not be read or written; the judgement goes on without it."""

    why: str


class StoreReturned(msgspec.Struct, frozen=True, kw_only=True):
    """A Redis that was left alone since one `StoreFailed` answers, and is used as before."""


class LoopLagged(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's loop did not run for `lag_s` seconds: something blocked it.

    Args:
        lag_s: how late the loop was.
        where: the function that blocked it, with file and line; empty when it is not known, as
            for code that holds Python's global lock, or a process that was stopped.
    """

    lag_s: float
    where: str = ""


class NothingMoves(msgspec.Struct, frozen=True, kw_only=True):
    """Components are waited for, and nothing has happened for a while.

    Args:
        for_s: so long.
        pending: how many components of samples are waited for.
        dump: which of them longest, and where the tasks and threads of the process are.
    """

    for_s: float
    pending: int
    dump: str


class TimeoutTooShort(msgspec.Struct, frozen=True, kw_only=True):
    """A judge that writes all that ``max_tokens`` allows would be cut off; told once.

    Args:
        timeout_s: of one attempt, as configured.
        needed_s: what an answer of ``max_tokens`` takes at `tokens_per_s`.
        tokens_per_s: of the fastest of the judge's first long answers.
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


def nobody(event: Event) -> None:
    """A listener that ignores every event."""
