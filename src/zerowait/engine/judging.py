"""One judgement: from a sample to a verdict, by way of the cache, a shared call, or the judge."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Self

import msgspec

from zerowait.cache import SingleFlight, Store
from zerowait.client import Answer, BudgetSpentError, JudgeClient, Metered
from zerowait.config import Judge
from zerowait.engine.memo import KeyMemo, mark_of
from zerowait.engine.pace import Pace
from zerowait.engine.partition import Ask, Partition
from zerowait.engine.replies import Replies, outcome_of
from zerowait.engine.settled import Read, Settled
from zerowait.events import JudgementSettled, Listener
from zerowait.judge import (
    ChatRequest,
    Question,
    Rubric,
    reply_origin,
    request_key,
    request_of,
    texts_for,
)
from zerowait.types import Abstain, FailureKind, Outcome, Sample, Score


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """What all judges of a job have in common."""

    flights: SingleFlight[Settled]
    store: Store
    listener: Listener
    partition: Partition | None = None


class _Question(NamedTuple):
    """A request, the key under which it is remembered, and how its replies are read."""

    key: str
    request: ChatRequest
    body: bytes
    read: Read


class Bench:
    """One judge with its rubric; shares flights and store with the other judges of the job."""

    def __init__(
        self,
        name: str,
        judge: Judge,
        rubric: Rubric,
        *,
        client: JudgeClient,
        meter: Metered,
        shared: Shared,
    ) -> None:
        self._name = name
        self._judge = judge
        self._rubric = rubric
        self._client = client
        self._meter = meter
        self._flights = shared.flights
        self._replies = Replies(name, store=shared.store, listener=shared.listener)
        self._partition = shared.partition
        self._listener = shared.listener
        self._keys = KeyMemo()
        timeout_s = client.traffic.timeout_s
        self._pace = Pace(
            name, max_tokens=judge.max_tokens, timeout_s=timeout_s, listener=shared.listener
        )
        self._questions: Sequence[Question] = ()
        self._readers: dict[int, int] = {}
        self._apart = False

    def apart(self, *, client: JudgeClient, meter: Metered) -> Self:
        """This bench at the expense of the validation's own budget.

        It has the same replies and the same memory, and no call in flight in common: whoever joined
        one that this budget cannot bear would abstain for it.
        """
        other = copy.copy(self)
        other._client, other._meter, other._apart = client, meter, True  # noqa: SLF001 - a copy
        return other

    @property
    def config(self) -> Judge:
        """The judge as it is configured."""
        return self._judge

    @property
    def rubric(self) -> Rubric:
        """What this judge is told."""
        return self._rubric

    async def ask(
        self, sample: Sample, question: Question, *, vote: int = 0, component: str = ""
    ) -> Outcome:
        """The answer to one question about `sample`, or why there is none.

        Raises nothing of its own.

        Args:
            sample: what is judged.
            question: what is asked about it.
            vote: index of this call among the votes on one question.
            component: of the reward, for which it is wanted; for the record.
        """
        number = self._readers[id(question.read)]
        try:
            texts = texts_for(sample, question.rubric)
            if isinstance(texts, Abstain):
                return texts
            mark = mark_of(texts, number, vote)
            hot = self._remembered(mark, question.read, component)
            if hot is not None:
                return hot
            request = request_of(texts, self._judge, question.rubric, form=question.form, vote=vote)
        except Exception as error:  # noqa: BLE001 - rows of a data set hold whatever they hold
            return Abstain(FailureKind.BAD_INPUT, f"{type(error).__name__}: {error}")
        asked = self._question(request, question.read, vote)
        settled = await self._settled(asked, component)
        if self._replies.in_memory(asked.key):  # a key that finds nothing there is kept for nothing
            self._keys.keep(mark, asked.key)
        return settled.outcome

    async def settle(
        self, request: ChatRequest, read: Read, *, vote: int = 0, component: str = ""
    ) -> Settled:
        """What came of `request`: from the cache, a call in flight, or the judge.

        Args:
            request: what is asked; its bytes, the rubric's version and `vote` are its key.
            read: what a reply's body means.
            vote: index of this call among the votes on one question.
            component: of the reward, for which it is wanted; for the record.
        """
        return await self._settled(self._question(request, read, vote), component)

    def knows(self, questions: Sequence[Question]) -> None:
        """Told what it is asked, so that another engine need only be told which one it is."""
        self._questions = questions
        self._readers = {id(question.read): at for at, question in enumerate(questions)}

    async def answer(self, ask: Ask) -> tuple[Settled, bool]:
        """What another engine asked for, and whether it joined a judgement in flight here."""
        read = self._questions[ask.read].read if isinstance(ask.read, int) else ask.read
        question = _Question(ask.key, ask.request, ask.request.body(), read)
        settled, joined = await self._here(question)
        return msgspec.structs.replace(settled, reply=b"", read=None), joined

    def _question(self, request: ChatRequest, read: Read, vote: int) -> _Question:
        body = request.body()
        return _Question(request_key(body, self._rubric.version, vote), request, body, read)

    def _remembered(self, mark: bytes, read: Read, component: str) -> Outcome | None:
        """What is in memory about a sample with such texts."""
        key = self._keys.key(mark)
        settled = None if key is None else self._replies.hot(key, read)
        if key is None or settled is None:
            return None
        self._tell(key, settled, component)
        return settled.outcome

    async def _settled(self, question: _Question, component: str) -> Settled:
        part = self._partition
        owner = None if part is None else part.elsewhere(question.key)
        if part is None or owner is None:
            settled, joined = await self._here(question)
        else:
            known = self._readers.get(id(question.read))
            reader = question.read if known is None else known
            ask = Ask(self._name, question.key, question.request, reader, self._apart)
            settled, joined = await part.ask(owner, ask)
        self._tell(question.key, settled, component, joined=joined)
        return settled

    def _tell(self, key: str, settled: Settled, component: str, *, joined: bool = False) -> None:
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
                cost_usd=settled.cost_usd,
                model=settled.model,
                component=component,
            )
        )

    async def _here(self, question: _Question) -> tuple[Settled, bool]:
        hot = self._replies.hot(question.key, question.read)
        if hot is not None:
            return hot, False
        flight = f"validation {question.key}" if self._apart else question.key
        settled, joined = await self._flights.run(flight, partial(self._settle, question))
        if joined and settled.reply and settled.read is not question.read:
            # another judge asks the very same and looks for something else in the answer
            settled = msgspec.structs.replace(
                settled, outcome=outcome_of(question.read, settled.reply)
            )
        return settled, joined

    async def _settle(self, question: _Question, sent: Callable[[], None]) -> Settled:
        wait_s = self._client.traffic.deadline_s
        recalled = await self._replies.kept(question.key, question.read, wait_s=wait_s)
        if recalled is not None:
            return recalled
        try:
            refusal = await self._meter.refusal(question.body)
            if refusal is not None:
                return Settled(outcome=Abstain(FailureKind.BUDGET, refusal), source="refused")
            return await self._asked(question, sent)
        finally:
            self._replies.release(question.key)

    async def _asked(self, question: _Question, sent: Callable[[], None]) -> Settled:
        request = question.request
        answer = await self._ask(question.body, sent)
        if isinstance(answer, Abstain):
            refused = answer.kind is FailureKind.BUDGET
            return Settled(outcome=answer, source="refused" if refused else "asked")
        outcome = outcome_of(question.read, answer.reply.body)
        prompt, completion = self._meter.usage(question.body, answer.reply.body)
        self._pace.answered(completion, answer.latency_s)
        attempts, queue_s = answer.attempts, answer.queue_s
        if isinstance(outcome, Abstain) and outcome.kind is FailureKind.TRUNCATED:
            longer = msgspec.structs.replace(request, max_tokens=2 * request.max_tokens)
            again = await self._ask(longer.body(), sent)
            if isinstance(again, Answer):
                answer = again
                outcome = outcome_of(question.read, again.reply.body)
                more = self._meter.usage(longer.body(), again.reply.body)
                prompt, completion = prompt + more[0], completion + more[1]
                attempts += again.attempts
                queue_s += again.queue_s
        origin = reply_origin(answer.reply.body)
        self._replies.see(origin)
        if isinstance(outcome, Score):
            await self._replies.keep(question.key, answer.reply.body, outcome, origin)
        return Settled(
            outcome=outcome,
            source="asked",
            attempts=attempts,
            latency_s=answer.latency_s,
            queue_s=queue_s,
            prompt_tokens=prompt,
            completion_tokens=completion,
            cost_usd=self._meter.usd(request.model, (prompt, completion)),
            model=origin.model,
            reply=answer.reply.body,
            read=question.read,
        )

    async def _ask(self, body: bytes, sent: Callable[[], None]) -> Answer | Abstain:
        """The judge's answer, or why there is none; the budget may end in the midst of it."""
        try:
            return await self._client.ask(body, sent=sent)
        except BudgetSpentError as error:
            return Abstain(FailureKind.BUDGET, str(error))
