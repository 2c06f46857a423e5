"""The lines of ``judgements.jsonl``, ``events.jsonl`` and ``opinions.jsonl``."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from zerowait.types import Outcome

JUDGEMENTS: Final = "judgements.jsonl"
"""The first part; further ones are ``judgements.00002.jsonl``, ``judgements.00003.jsonl``, ..."""
EVENTS: Final = "events.jsonl"
OPINIONS: Final = "opinions.jsonl"


class FailedLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An attempt that brought no answer, as a judgement's line has it.

    Args:
        number: which attempt of the judgement it was, from 1.
        at: Unix time in seconds at which it ended.
        endpoint: where it was sent.
        status: of HTTP; 0 where no reply came.
        latency_s: seconds from the send to its end.
        why: what went wrong, in the provider's words where it gave any.
        reply_sha256: of the body that came back; empty for none.
        reply: that body, where it was not written before.
    """

    number: int
    at: float
    endpoint: str = ""
    status: int = 0
    latency_s: float = 0.0
    why: str = ""
    reply_sha256: str = ""
    reply: str | None = None


class JudgementLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One row of ``judgements.jsonl``: a settled judgement.

    Requests and replies are written once; later lines name them by their hash.

    Args:
        at: Unix time in seconds at which it was settled.
        uids: of the samples that it was for: one, or the members of a comparison.
        question: index of the judge's question; None for a comparison.
        vote: index among the votes on one question.
        key: of the cache's entry: a hash of the request, the rubric's version and the vote.
        source: ``asked``, ``cache``, ``joined`` or ``refused``; see
            `zerowait.events.JudgementSettled`.
        outcome: the verdict, or why there is none.
        attempts: requests sent, hedged copies included.
        hedges: of these the hedged copies.
        status: of the last reply over HTTP; 0 without one.
        endpoint: that answered, or failed last; empty where none was asked.
        form: of the answer that the endpoint was asked to enforce; empty for none.
        cost_usd: by the usage that its replies name; 0 without a price.
        request_sha256, reply_sha256: of the bodies; empty where there is none, or it is not known.
        request, reply: the bodies, where they were not written before and are kept.
        failed: the attempts that brought no answer.
    """

    at: float
    judge: str
    component: str = ""
    uids: list[str] = []
    question: int | None = None
    vote: int = 0
    key: str
    source: Literal["asked", "cache", "joined", "refused"]
    outcome: Outcome
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
    request_sha256: str = ""
    reply_sha256: str = ""
    request: str | None = None
    reply: str | None = None
    failed: list[FailedLine] = []


class EventLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One row of ``events.jsonl``.

    Args:
        at: Unix time in seconds.
        kind: the event's class in `zerowait.events` in lower case, such as ``limit_changed``,
            ``endpoint_ejected``, ``health_alarm`` or ``judge_drifted``; ``record_cut`` and
            ``record_lost`` are about the record itself.
        step: of the training, as far as it was known.
        fields: of the event.
    """

    at: float
    kind: str
    step: int | None = None
    fields: dict[str, Any] = {}


class OpinionLine(msgspec.Struct, frozen=True, kw_only=True):
    """One row of ``opinions.jsonl``: what a person says about a response.

    Args:
        uid: of the sample; empty where its record has none.
        row: of the sample in the order of recording, from 1.
        up: whether the response is good; None takes an earlier opinion back.
        note: in words.
        who: gave it.
        at: Unix time in seconds.
    """

    row: int
    uid: str = ""
    up: bool | None = None
    note: str = ""
    who: str = ""
    at: float
