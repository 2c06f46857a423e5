"""One judgement: from a sample to a verdict, by way of the cache, a shared call, or the judge."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

import msgspec

from zerowait.cache import Entry, SingleFlight, Store, StoreError
from zerowait.client import Answer, JudgeClient
from zerowait.config import Judge, VerdictRule
from zerowait.events import JudgementSettled, Listener, StoreFailed
from zerowait.judge import (
    ChatRequest,
    Rubric,
    read_reply,
    reply_origin,
    reply_usage,
    request_for,
    request_key,
)
from zerowait.types import Abstain, FailureKind, Outcome, Sample, Score


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """What one flight brought, for everybody who waited for it."""

    outcome: Outcome
    source: Literal["asked", "cache"]
    attempts: int = 0
    latency_s: float = 0.0
    queue_s: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    model: str = ""


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """What all judges of a job have in common."""

    flights: SingleFlight[Settled]
    store: Store
    listener: Listener


class Bench:
    """One judge with its rubric; shares flights and store with the other judges of the job."""

    def __init__(
        self, name: str, judge: Judge, rubric: Rubric, client: JudgeClient, shared: Shared
    ) -> None:
        self._name = name
        self._judge = judge
        self._rubric = rubric
        self._client = client
        self._flights = shared.flights
        self._store = shared.store
        self._listener = shared.listener

    @property
    def rule(self) -> VerdictRule:
        """The form in which this judge answers."""
        return self._judge.verdict

    async def judge(self, sample: Sample) -> Outcome:
        """The judge's verdict on `sample`, or why there is none. Raises nothing of its own."""
        request = request_for(sample, self._judge, self._rubric)
        if isinstance(request, Abstain):
            return request
        body = request.body()
        key = request_key(body, self._rubric.version)
        settled, joined = await self._flights.run(
            key, lambda sent: self._settle(key, request, body, sent)
        )
        self._listener(
            JudgementSettled(
                judge=self._name,
                key=key,
                outcome=settled.outcome,
                source="joined" if joined else settled.source,
                attempts=settled.attempts,
                latency_s=settled.latency_s,
                queue_s=settled.queue_s,
                prompt_tokens=settled.prompt_tokens,
                completion_tokens=settled.completion_tokens,
                model=settled.model,
            )
        )
        return settled.outcome

    async def _settle(
        self, key: str, request: ChatRequest, body: bytes, sent: Callable[[], None]
    ) -> Settled:
        entry = await self._known(key)
        if entry is not None:
            outcome = read_reply(entry.reply, self._judge.verdict)
            if isinstance(outcome, Score):
                return Settled(outcome=outcome, source="cache", model=entry.model)
        answer = await self._client.ask(body, sent=sent)
        if isinstance(answer, Abstain):
            return Settled(outcome=answer, source="asked")
        outcome = read_reply(answer.reply.body, self._judge.verdict)
        if isinstance(outcome, Abstain) and outcome.kind is FailureKind.TRUNCATED:
            longer = msgspec.structs.replace(request, max_tokens=2 * request.max_tokens)
            again = await self._client.ask(longer.body(), sent=sent)
            if isinstance(again, Answer):
                answer = again
                outcome = read_reply(again.reply.body, self._judge.verdict)
        if isinstance(outcome, Score):
            await self._keep(key, answer, outcome)
        usage = reply_usage(answer.reply.body)
        return Settled(
            outcome=outcome,
            source="asked",
            attempts=answer.attempts,
            latency_s=answer.latency_s,
            queue_s=answer.queue_s,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            model=reply_origin(answer.reply.body)[0],
        )

    async def _known(self, key: str) -> Entry | None:
        try:
            return await self._store.get(key)
        except StoreError as error:
            self._listener(StoreFailed(why=str(error)))
            return None

    async def _keep(self, key: str, answer: Answer, outcome: Score) -> None:
        """Commits the reply before its reward is handed out, so that nobody pays for it twice.

        A verdict that was reached counts even where it cannot be kept (a full disk, say).
        """
        model, fingerprint = reply_origin(answer.reply.body)
        entry = Entry(
            reply=answer.reply.body,
            verdict=msgspec.json.encode(outcome),
            judge=self._name,
            model=model,
            fingerprint=fingerprint,
            created=time.time(),
        )
        try:
            await self._store.put(key, entry)
        except StoreError as error:
            self._listener(StoreFailed(why=str(error)))
