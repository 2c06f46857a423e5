"""One judgement: from a sample to a verdict, by way of the cache, a shared call, or the judge."""

from __future__ import annotations

import copy
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from hashlib import sha256
from typing import Final, NamedTuple, Self

import msgspec

from zerowait.cache import Entry, SingleFlight, Store, StoreAwayError, StoreError
from zerowait.client import BudgetSpentError, JudgeClient, JudgeReply, Metered
from zerowait.config import Judge
from zerowait.engine.judging.result import JudgementResult, Read
from zerowait.engine.partition import ForwardedRequest, Partition
from zerowait.events import JudgementSettled, Listener, ModelChanged, StoreFailed, TimeoutTooShort
from zerowait.judge import (
    ChatRequest,
    JudgeQuestion,
    ModelChangeDetector,
    Rubric,
    ServedModel,
    reply_origin,
    request_key,
    request_of,
    texts_for,
)
from zerowait.types import Abstain, FailureKind, Outcome, Sample, Score

_KEPT: Final = 65_536
"""More than replies that a store's front holds; each takes about 250 bytes."""


class KeyMemo:
    """The keys of the latest requests of one judge whose answers are in memory.

    To make a request, only to find its answer in memory, takes longer than all the rest. So whoever
    asks the same again finds the key by a hash of the texts, and makes no request.
    """

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._keys: OrderedDict[bytes, str] = OrderedDict()

    def key(self, mark: bytes) -> str | None:
        """The key of the request that was made of such texts, or None."""
        return self._keys.get(mark)

    def keep(self, mark: bytes, key: str) -> None:
        """Remember `key`; forget the oldest one where there are too many."""
        self._keys[mark] = key
        if len(self._keys) > self._kept:
            self._keys.popitem(last=False)


def mark_of(texts: Mapping[str, str], question: int, vote: int) -> bytes:
    """A hash of what makes one request of a judge different from another.

    >>> mark_of({"a": "x", "b": ""}, 0, 0) == mark_of({"a": "", "b": "x"}, 0, 0)
    False
    """
    try:
        said = msgspec.msgpack.encode((question, vote, *texts.values()))
    except UnicodeEncodeError:  # half a surrogate pair, which a request replaces
        said = repr((question, vote, *texts.values())).encode()
    return sha256(said).digest()


_FEWEST_TOKENS: Final = 64
"""The time of a shorter answer is mostly that of its prompt."""

_FEWEST_ANSWERS: Final = 16
_LOG = logging.getLogger(__name__)


class TimeoutCheck:
    """Warns once when even the fastest answers show that ``max_tokens`` take too long.

    Args:
        judge: its name.
        max_tokens: the longest answer that it may give.
        timeout_s: of one attempt.
        listener: hears of it.
    """

    def __init__(
        self, judge: str, *, max_tokens: int, timeout_s: float, listener: Listener
    ) -> None:
        self._judge = judge
        self._max_tokens = max_tokens
        self._timeout_s = timeout_s
        self._listener = listener
        self._answers = 0
        self._fastest = 0.0

    def answered(self, tokens: int, latency_s: float) -> None:
        """An answer of so many tokens took so long; only the first long ones count."""
        if tokens < _FEWEST_TOKENS or latency_s <= 0 or self._answers == _FEWEST_ANSWERS:
            return
        self._answers += 1
        self._fastest = max(self._fastest, tokens / latency_s)
        needed_s = self._max_tokens / self._fastest
        if self._answers < _FEWEST_ANSWERS or needed_s <= self._timeout_s:
            return
        _LOG.warning(
            "judge %r writes at most %.0f tokens per second: max_tokens: %d take %.0f s, and "
            "traffic.timeout_s is %g: raise it, or lower max_tokens",
            self._judge,
            self._fastest,
            self._max_tokens,
            needed_s,
            self._timeout_s,
        )
        self._listener(
            TimeoutTooShort(
                judge=self._judge,
                timeout_s=self._timeout_s,
                needed_s=needed_s,
                tokens_per_s=self._fastest,
            )
        )


_REREAD: Final = 16_384
"""About as many replies as the store's front holds in memory, whose bytes these are."""


class Replies:
    """The replies of the judge `name`: kept are those with a verdict, and read anew each time."""

    def __init__(self, name: str, *, store: Store, listener: Listener) -> None:
        self._name = name
        self._store = store
        self._listener = listener
        self._served = ModelChangeDetector()
        self._reread = lru_cache(maxsize=_REREAD)(outcome_of_reply)

    def hot(self, key: str, read: Read) -> JudgementResult | None:
        """What a reply in memory says, or None where there is none with a verdict."""
        return self._recalled(self._store.peek(key), read)

    def in_memory(self, key: str) -> bool:
        """Whether `hot` may find something under `key`."""
        return self._store.peek(key) is not None

    async def kept(self, key: str, read: Read, *, wait_s: float) -> JudgementResult | None:
        """What the kept reply says, or None where the judge has to be asked; `release` it then.

        Where another process asks the judge the same, this waits for it, at most `wait_s`.
        """
        try:
            entry = await self._store.claim(key, wait_s=wait_s)
        except StoreError as error:
            self._failed(error)
            return None
        return self._recalled(entry, read)

    def release(self, key: str) -> None:
        """Let other processes ask: there is no reply to keep. Does nothing after `keep`."""
        self._store.release(key)

    async def keep(self, key: str, reply: bytes, outcome: Score, origin: ServedModel) -> None:
        """Commits the reply before its reward is handed out, so that nobody pays for it twice.

        A verdict that was reached counts even where it cannot be kept (a full disk, say).
        """
        entry = Entry(
            reply=reply,
            verdict=msgspec.json.encode(outcome),
            judge=self._name,
            model=origin.model,
            fingerprint=origin.fingerprint,
            created=time.time(),
        )
        try:
            await self._store.put(key, entry)
        except StoreError as error:
            self._failed(error)

    def see(self, origin: ServedModel) -> None:
        """Raise the alarm when another model answers than before, here or in the cache."""
        change = self._served.changed(origin)
        if change is not None:
            before, after = map(str, change)
            self._listener(ModelChanged(judge=self._name, before=before, after=after))

    def _failed(self, error: StoreError) -> None:
        if not isinstance(error, StoreAwayError):  # that was told when it began
            self._listener(StoreFailed(why=str(error)))

    def _recalled(self, entry: Entry | None, read: Read) -> JudgementResult | None:
        if entry is None:
            return None
        outcome = self._reread(read, entry.reply)
        if not isinstance(outcome, Score):
            return None
        self.see(ServedModel(entry.model, entry.fingerprint))
        return JudgementResult(
            outcome=outcome, source="cache", model=entry.model, reply=entry.reply, read=read
        )


def outcome_of_reply(read: Read, reply: bytes) -> Outcome:
    """What a reply means; one that a reader trips over means nothing, and harms no sibling."""
    try:
        return read(reply)
    except Exception as error:  # noqa: BLE001 - judges write whatever they write
        why = f"the reply could not be read: {type(error).__name__}: {error}"
        return Abstain(FailureKind.UNPARSEABLE, why)


class SharedFlights(msgspec.Struct, frozen=True, kw_only=True):
    """What all judges of a job have in common."""

    flights: SingleFlight[JudgementResult]
    store: Store
    listener: Listener
    partition: Partition | None = None


class _Question(NamedTuple):
    """A request, the key under which it is remembered, and how its replies are read."""

    key: str
    request: ChatRequest
    body: bytes
    read: Read


class CachedJudge:
    """One judge with its rubric; shares flights and store with the other judges of the job."""

    def __init__(
        self,
        name: str,
        judge: Judge,
        rubric: Rubric,
        *,
        client: JudgeClient,
        meter: Metered,
        shared: SharedFlights,
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
        self._pace = TimeoutCheck(
            name, max_tokens=judge.max_tokens, timeout_s=timeout_s, listener=shared.listener
        )
        self._questions: Sequence[JudgeQuestion] = ()
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
        self, sample: Sample, question: JudgeQuestion, *, vote: int = 0, component: str = ""
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
    ) -> JudgementResult:
        """What came of `request`: from the cache, a call in flight, or the judge.

        Args:
            request: what is asked; its bytes, the rubric's version and `vote` are its key.
            read: what a reply's body means.
            vote: index of this call among the votes on one question.
            component: of the reward, for which it is wanted; for the record.
        """
        return await self._settled(self._question(request, read, vote), component)

    def knows(self, questions: Sequence[JudgeQuestion]) -> None:
        """Told what it is asked, so that another engine need only be told which one it is."""
        self._questions = questions
        self._readers = {id(question.read): at for at, question in enumerate(questions)}

    async def answer(self, ask: ForwardedRequest) -> tuple[JudgementResult, bool]:
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

    async def _settled(self, question: _Question, component: str) -> JudgementResult:
        part = self._partition
        owner = None if part is None else part.elsewhere(question.key)
        if part is None or owner is None:
            settled, joined = await self._here(question)
        else:
            known = self._readers.get(id(question.read))
            reader = question.read if known is None else known
            ask = ForwardedRequest(self._name, question.key, question.request, reader, self._apart)
            settled, joined = await part.ask(owner, ask)
        self._tell(question.key, settled, component, joined=joined)
        return settled

    def _tell(
        self, key: str, settled: JudgementResult, component: str, *, joined: bool = False
    ) -> None:
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

    async def _here(self, question: _Question) -> tuple[JudgementResult, bool]:
        hot = self._replies.hot(question.key, question.read)
        if hot is not None:
            return hot, False
        flight = f"validation {question.key}" if self._apart else question.key
        settled, joined = await self._flights.run(flight, partial(self._settle, question))
        if joined and settled.reply and settled.read is not question.read:
            # another judge asks the very same and looks for something else in the answer
            settled = msgspec.structs.replace(
                settled, outcome=outcome_of_reply(question.read, settled.reply)
            )
        return settled, joined

    async def _settle(self, question: _Question, sent: Callable[[], None]) -> JudgementResult:
        wait_s = self._client.traffic.deadline_s
        recalled = await self._replies.kept(question.key, question.read, wait_s=wait_s)
        if recalled is not None:
            return recalled
        try:
            refusal = await self._meter.refusal(question.body)
            if refusal is not None:
                return JudgementResult(
                    outcome=Abstain(FailureKind.BUDGET, refusal), source="refused"
                )
            return await self._asked(question, sent)
        finally:
            self._replies.release(question.key)

    async def _asked(self, question: _Question, sent: Callable[[], None]) -> JudgementResult:
        request = question.request
        answer = await self._ask(question.body, sent)
        if isinstance(answer, Abstain):
            refused = answer.kind is FailureKind.BUDGET
            return JudgementResult(outcome=answer, source="refused" if refused else "asked")
        outcome = outcome_of_reply(question.read, answer.reply.body)
        prompt, completion = self._meter.usage(question.body, answer.reply.body)
        self._pace.answered(completion, answer.latency_s)
        attempts, queue_s = answer.attempts, answer.queue_s
        if isinstance(outcome, Abstain) and outcome.kind is FailureKind.TRUNCATED:
            longer = msgspec.structs.replace(request, max_tokens=2 * request.max_tokens)
            again = await self._ask(longer.body(), sent)
            if isinstance(again, JudgeReply):
                answer = again
                outcome = outcome_of_reply(question.read, again.reply.body)
                more = self._meter.usage(longer.body(), again.reply.body)
                prompt, completion = prompt + more[0], completion + more[1]
                attempts += again.attempts
                queue_s += again.queue_s
        origin = reply_origin(answer.reply.body)
        self._replies.see(origin)
        if isinstance(outcome, Score):
            await self._replies.keep(question.key, answer.reply.body, outcome, origin)
        return JudgementResult(
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

    async def _ask(self, body: bytes, sent: Callable[[], None]) -> JudgeReply | Abstain:
        """The judge's answer, or why there is none; the budget may end in the midst of it."""
        try:
            return await self._client.ask(body, sent=sent)
        except BudgetSpentError as error:
            return Abstain(FailureKind.BUDGET, str(error))
