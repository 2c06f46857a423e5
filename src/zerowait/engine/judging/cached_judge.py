"""Cached judge: one judge call, from the sample to its recorded result.

`CachedJudge.ask` is the pipeline:

1. build the request, and its key (`request_of`, `request_key`); a reply in memory ends it here;
2. `_resolve`: on this shard, or on the one that owns the key;
3. `_single_flight`: join the same call in flight, or start it;
4. `_cached_or_asked`: the stored reply, or, within the budget, the judge's;
5. `_ask_judge`: `JudgeClient.ask` admits (endpoint, quota, slot), sends with retries and hedging,
   and decodes; `read_safely` reads the verdict; a cut reply is asked for once more;
6. `ReplyCache.keep`: commit a reply that gave a verdict;
7. `_record`: the event `JudgementSettled`.

An endpoint that refuses to enforce the form of the answer ends steps 2 to 5 early, and `ask` begins
again with the question's `fallback`, whose prompt says the form in words.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from hashlib import sha256
from typing import Final, NamedTuple, Self

import msgspec

from zerowait.cache import Entry, SingleFlight, Store, StoreAwayError, StoreError
from zerowait.client import (
    BudgetSpentError,
    CostMeter,
    FormRefusedError,
    JudgeClient,
    JudgeReply,
    Ledger,
    RequestCounts,
    budget_exceeded,
)
from zerowait.completion import Completion
from zerowait.config import Judge
from zerowait.engine.judging.recorded_replies import RecordedReplies
from zerowait.engine.judging.result import JudgementResult, Read
from zerowait.engine.judging.timeout_check import FEWEST_TOKENS, TimeoutCheck
from zerowait.engine.partition import ForwardedRequest, Partition
from zerowait.events import (
    SAMPLE_UIDS,
    FailedAttempt,
    JudgementSettled,
    Listener,
    ModelChanged,
    StoreFailed,
)
from zerowait.judge import (
    CUT_CHARS,
    ChatRequest,
    JudgeQuestion,
    ModelChangeDetector,
    Rubric,
    SampleTexts,
    ServedModel,
    request_key,
    request_of,
    texts_for,
)
from zerowait.types import Abstain, FailureKind, Outcome, Sample, Score

_MOST_KEYS: Final = 65_536
"""More than the replies that the store holds in memory; each key takes about 250 bytes."""


class KeyMemo:
    """The keys of a judge's latest requests whose replies are in memory.

    Building a request takes longer than all other steps of finding its reply in memory. So the key
    of a repeated request is found by a hash of its texts, and the request is not built.
    """

    def __init__(self, most: int = _MOST_KEYS) -> None:
        self._most = most
        self._keys: OrderedDict[bytes, str] = OrderedDict()
        self.find = self._keys.get
        """The key of the request that was built of texts with this hash, or None."""

    def keep(self, digest: bytes, key: str) -> None:
        """Remember `key`; drop the oldest one beyond the limit.

        Args:
            digest: of the texts, by `digest_of`.
            key: of the request.
        """
        self._keys[digest] = key
        if len(self._keys) > self._most:
            self._keys.popitem(last=False)


def digest_of(
    texts: Mapping[str, str], question: int, vote: int, pictures: Sequence[str] = ()
) -> bytes:
    """A hash of what makes one request of a judge different from another.

    Args:
        texts: that the rubric shows, by name.
        question: the index of the question.
        vote: the index of the vote on it.
        pictures: URLs of those that the texts mark.

    >>> digest_of({"a": "x", "b": ""}, 0, 0) == digest_of({"a": "", "b": "x"}, 0, 0)
    False
    """
    try:
        said = msgspec.msgpack.encode((question, vote, *texts.values(), *pictures))
    except UnicodeEncodeError:  # half a surrogate pair, which a request replaces
        said = repr((question, vote, *texts.values(), *pictures)).encode()
    return sha256(said).digest()


_MOST_REREAD: Final = 16_384
"""About as many replies as the store holds in memory, whose bytes these are."""


class ReplyCache:
    """The stored replies of one judge: those with a verdict, decoded and read anew each time.

    Args:
        judge: its name.
        store: shared by all judges of a job.
        decode: the typed completion in a reply's body, or None.
        listener: receives failures of the store, and changes of the model that answers.
    """

    def __init__(
        self,
        judge: str,
        *,
        store: Store,
        decode: Callable[[bytes], Completion | None],
        listener: Listener,
    ) -> None:
        self._judge = judge
        self._store = store
        self._listener = listener
        self._served = ModelChangeDetector()
        self._last_origin = ServedModel()
        self.peek = store.peek
        """The entry of a key that is in memory, or None."""
        self.release = store.release
        """Let other processes ask: there is no reply to keep."""

        def read_again(read: Read, body: bytes) -> Outcome | None:
            completion = decode(body)
            return None if completion is None else read_safely(read, completion)

        self._read_again = lru_cache(maxsize=_MOST_REREAD)(read_again)

    async def claim(self, key: str, read: Read, *, wait_s: float) -> JudgementResult | None:
        """The stored reply's verdict; None where this caller has to ask, and `keep` or `release`.

        Where another process asks the judge the same, this waits for its reply.

        Args:
            key: of the request.
            read: the verdict in a decoded reply.
            wait_s: the longest wait for another process, in seconds.
        """
        try:
            entry = await self._store.claim(key, wait_s=wait_s)
        except StoreError as error:
            self._report(error)
            return None
        return None if entry is None else self.verdict(entry, read)

    async def find(self, key: str, read: Read) -> JudgementResult | None:
        """The stored reply's verdict, or None; unlike `claim` for a caller that will not ask."""
        try:
            entry = await self._store.get(key)
        except StoreError as error:
            self._report(error)
            return None
        return None if entry is None else self.verdict(entry, read)

    def verdict(self, entry: Entry, read: Read) -> JudgementResult | None:
        """The verdict in a stored reply, or None where it has none (any more)."""
        outcome = self._read_again(read, entry.reply)
        if not isinstance(outcome, Score):
            return None
        self.check_model(ServedModel(entry.model, entry.fingerprint))
        return JudgementResult(
            outcome=outcome, source="cache", model=entry.model, reply=entry.reply, read=read
        )

    async def keep(self, key: str, reply: bytes, outcome: Score, origin: ServedModel) -> bool:
        """Commit a reply before its reward is handed out, so that it is never paid for twice.

        A verdict counts even where its reply cannot be kept (a full disk, say).

        Args:
            key: of the request.
            reply: the body.
            outcome: the verdict in it.
            origin: the model that answered.

        Returns:
            Whether it was kept, which releases the key, too.
        """
        entry = Entry(
            reply=reply,
            verdict=msgspec.json.encode(outcome),
            judge=self._judge,
            model=origin.model,
            fingerprint=origin.fingerprint,
            created=time.time(),
        )
        try:
            await self._store.put(key, entry)
        except StoreError as error:
            self._report(error)
            return False
        return True

    def check_model(self, origin: ServedModel) -> None:
        """Raise the alarm when another model answers than before, here or in the cache."""
        if origin == self._last_origin:
            return
        self._last_origin = origin
        change = self._served.changed(origin)
        if change is not None:
            before, after = map(str, change)
            self._listener(ModelChanged(judge=self._judge, before=before, after=after))

    def _report(self, error: StoreError) -> None:
        if not isinstance(error, StoreAwayError):  # that was reported when it began
            self._listener(StoreFailed(why=str(error)))


def read_safely(read: Read, completion: Completion) -> Outcome:
    """The verdict in a decoded reply; an Abstain where the reader fails on it."""
    try:
        return read(completion)
    except Exception as error:  # noqa: BLE001 - a judge may write anything
        why = f"the reply could not be read: {type(error).__name__}: {error}"
        return Abstain(FailureKind.UNPARSEABLE, why)


class JobContext(msgspec.Struct, frozen=True, kw_only=True):
    """What the judges of a job share: cache, calls in flight, listener, partition.

    Args:
        flights: the calls in flight.
        store: the cache.
        listener: receives every event.
        partition: this engine's place among several; None: it is alone.
        replay: the judgements of a run that is replayed; None: judges are asked.
        is_recorded: whether a record is kept, for which failed attempts are collected.
    """

    flights: SingleFlight[JudgementResult]
    store: Store
    listener: Listener
    partition: Partition | None = None
    replay: RecordedReplies | None = None
    is_recorded: bool = False


class _Asked(NamedTuple):
    """What a call is about, for its event.

    Args:
        component: of the reward, for which it is wanted.
        question: the index of the judge's question; None for a comparison and a row's own criteria.
        vote: the index among the votes on one question.
        shown: the sample's texts in it; None where several samples are compared.
    """

    component: str
    question: int | None = None
    vote: int = 0
    shown: SampleTexts | None = None


class _Call(NamedTuple):
    """One call of a judge.

    Args:
        key: of its cache entry.
        request: what is asked.
        body: the same, encoded.
        read: the reader of its replies.
        asked: what it is about.
        form: of the answer that the endpoint is asked to enforce; empty for none.
    """

    key: str
    request: ChatRequest
    body: bytes
    read: Read
    asked: _Asked
    form: str = ""


class CachedJudge:
    """One judge with its rubric; shares the cache and the calls in flight with a job's judges.

    Args:
        judge: as it is configured.
        rubric: what it is told.
        client: sends its requests and decodes the replies.
        meter: estimates their cost; it has the judge's name.
        ledger: the budget that they are paid from.
        shared: what all judges of the job have in common.
    """

    def __init__(
        self,
        judge: Judge,
        rubric: Rubric,
        *,
        client: JudgeClient,
        meter: CostMeter,
        ledger: Ledger,
        shared: JobContext,
    ) -> None:
        name = self._name = meter.judge
        self.config = judge
        self.rubric = rubric
        self._measures = rubric.shows_messages
        self._client = client
        self._meter = meter
        self._ledger = ledger
        self._flights = shared.flights
        self._replies = ReplyCache(
            name, store=shared.store, decode=client.decode, listener=shared.listener
        )
        self._partition = shared.partition
        self._listener = shared.listener
        self._keys = KeyMemo()
        timeout_s = client.traffic.timeout_s
        self._timeout_check = TimeoutCheck(
            name, max_tokens=judge.max_tokens, timeout_s=timeout_s, listener=shared.listener
        )
        self._questions: Sequence[JudgeQuestion] = ()
        self._readers: dict[int, int] = {}
        self._question_of: Sequence[int] = ()
        self._is_recorded = shared.is_recorded
        self._has_own_budget = False

    def paid_from(self, ledger: Ledger, *, client: JudgeClient) -> Self:
        """A copy of this judge whose requests are charged to the validation budget.

        It has the same replies and memory, and no call in flight in common: a caller that joined
        one which this budget cannot bear would abstain for it.

        Args:
            ledger: of that budget.
            client: books its requests there.
        """
        other = copy.copy(self)
        other._client, other._ledger, other._has_own_budget = client, ledger, True  # noqa: SLF001 - a copy
        return other

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
        while question.fallback is not None and self._client.refuses(question.form.enforced):
            question = question.fallback
        number = self._readers.get(id(question.read))
        try:
            texts = texts_for(sample, question.rubric, self.config)
            if isinstance(texts, Abstain):
                return texts
            digest = b"" if number is None else digest_of(texts, number, vote, texts.pictures)
            asked = _Asked(
                component, None if number is None else self._question_of[number], vote, texts
            )
            key = self._keys.find(digest)
            if key is not None and (result := self._find_in_memory(key, question.read)) is not None:
                self._record(key, result, asked)
                return self._measured(result.outcome, texts) if self._measures else result.outcome
            request = request_of(texts, self.config, question.rubric, form=question.form, vote=vote)
        except Exception as error:  # noqa: BLE001 - rows of a data set hold anything
            return Abstain(FailureKind.BAD_INPUT, f"{type(error).__name__}: {error}")
        body = request.body()
        key = request_key(body, self.rubric.version, vote)
        call = _Call(key, request, body, question.read, asked, question.form.enforced)
        result = await self._resolve(call)
        if result.refused_by and question.fallback is not None:
            return await self.ask(sample, question.fallback, vote=vote, component=component)
        # only what is in memory can be found there
        if digest and self._replies.peek(call.key) is not None:
            self._keys.keep(digest, call.key)
        return self._measured(result.outcome, texts) if self._measures else result.outcome

    async def settle(
        self, request: ChatRequest, read: Read, *, vote: int = 0, component: str = ""
    ) -> JudgementResult:
        """The result of `request`: from the cache, a call in flight, or the judge.

        Args:
            request: what is asked; its bytes, the rubric's version and `vote` are its key.
            read: the verdict in a decoded reply.
            vote: index of this call among the votes on one question.
            component: of the reward, for which it is wanted; for the record.
        """
        body = request.body()
        key = request_key(body, self.rubric.version, vote)
        return await self._resolve(_Call(key, request, body, read, _Asked(component, vote=vote)))

    def set_questions(self, questions: Sequence[JudgeQuestion]) -> None:
        """What this judge is asked, so that another engine can name a question by its index."""
        fallbacks = {at: q.fallback for at, q in enumerate(questions) if q.fallback is not None}
        self._questions = [*questions, *fallbacks.values()]
        self._question_of = [*range(len(questions)), *fallbacks]
        self._readers = {id(question.read): at for at, question in enumerate(self._questions)}

    async def answer(self, ask: ForwardedRequest) -> tuple[JudgementResult, bool]:
        """The result that another engine asked for, and whether it joined a call in flight here."""
        read = self._questions[ask.read].read if isinstance(ask.read, int) else ask.read
        result, joined = await self._single_flight(
            _Call(ask.key, ask.request, ask.request.body(), read, _Asked(""), ask.form)
        )
        reply = result.reply if self._is_recorded else b""
        return msgspec.structs.replace(result, reply=reply, read=None), joined

    @staticmethod
    def _measured(outcome: Outcome, texts: SampleTexts) -> Outcome:
        """The outcome, with how much of the conversation was left out."""
        if not isinstance(outcome, Score):
            return outcome
        measured = {**outcome.detail.get("measured", {}), CUT_CHARS: float(texts.cut_chars)}
        return msgspec.structs.replace(outcome, detail={**outcome.detail, "measured": measured})

    def _find_in_memory(self, key: str, read: Read) -> JudgementResult | None:
        """The result of a reply that the store holds in memory; None where it holds none."""
        entry = self._replies.peek(key)
        return None if entry is None else self._replies.verdict(entry, read)

    async def _resolve(self, call: _Call) -> JudgementResult:
        """The result of a call, here or from the engine that owns its key."""
        partition = self._partition
        owner = None if partition is None else partition.elsewhere(call.key)
        if partition is None or owner is None:
            result, joined = await self._single_flight(call)
        else:
            known = self._readers.get(id(call.read))
            reader = call.read if known is None else known
            forwarded = ForwardedRequest(
                self._name, call.key, call.request, reader, self._has_own_budget, call.form
            )
            result, joined = await partition.ask(owner, forwarded)
            if result.refused_by:
                self._client.learn_refusal(result.refused_by, call.form)
        if not result.refused_by or self.config.verdict.enforced == "on":
            self._record(
                call.key, result, call.asked, joined=joined, request=call.body, form=call.form
            )
        return result

    async def _single_flight(self, call: _Call) -> tuple[JudgementResult, bool]:
        """The result of a call, and whether it joined one in flight."""
        found = self._find_in_memory(call.key, call.read)
        if found is not None:
            return found, False
        flight = f"validation {call.key}" if self._has_own_budget else call.key
        result, joined = await self._flights.run(flight, partial(self._cached_or_asked, call))
        if joined and result.reply and result.read is not call.read:
            # another judge asks the very same and looks for something else in the answer
            completion = self._client.decode(result.reply)
            if completion is not None:
                result = msgspec.structs.replace(result, outcome=read_safely(call.read, completion))
        return result, joined

    async def _cached_or_asked(self, call: _Call, sent: Callable[[], None]) -> JudgementResult:
        """The stored reply, or the judge's, which is stored when it has a verdict."""
        wait_s = self._client.traffic.deadline_s
        stored = await self._replies.claim(call.key, call.read, wait_s=wait_s)
        if stored is not None:
            return stored
        kept = False
        try:
            if self._ledger.account.limit is not None:
                spent = await budget_exceeded(self._ledger, self._meter, call.body)
                if spent is not None:
                    return JudgementResult(
                        outcome=Abstain(FailureKind.BUDGET, spent), source="refused"
                    )
            result, origin = await self._ask_judge(call, sent)
            if isinstance(result.outcome, Score):
                kept = await self._replies.keep(call.key, result.reply, result.outcome, origin)
            return result
        finally:
            if not kept:
                self._replies.release(call.key)

    async def _ask_judge(
        self, call: _Call, sent: Callable[[], None]
    ) -> tuple[JudgementResult, ServedModel]:
        """The judge's answer and the model that gave it; a cut answer is asked for once more.

        The second request allows twice the tokens.
        """
        failed: list[FailedAttempt] | None = [] if self._is_recorded else None
        counts = RequestCounts(failed=failed)
        clock = asyncio.get_running_loop().time
        began_s = clock()
        reply: JudgeReply | Abstain
        refused_by = ""
        try:
            reply = await self._send_within_budget(call.body, sent, counts, call.form)
        except FormRefusedError as error:
            reply, refused_by = Abstain(FailureKind.HTTP_ERROR, str(error)), error.endpoint
        if isinstance(reply, Abstain):
            result = JudgementResult(
                outcome=reply,
                source="refused" if reply.kind is FailureKind.BUDGET else "asked",
                attempts=counts.attempts,
                queue_s=counts.queue_s,
                elapsed_s=clock() - began_s,
                hedges=counts.hedges,
                endpoint=counts.endpoint,
                status=counts.status,
                failed=tuple(failed or ()),
                refused_by=refused_by,
            )
            return result, ServedModel()
        outcome = read_safely(call.read, reply.completion)
        prompt, answer = self._meter.usage(call.body, reply.completion)
        if answer >= FEWEST_TOKENS:
            self._timeout_check.answered(answer, reply.latency_s)
        if isinstance(outcome, Abstain) and outcome.kind is FailureKind.TRUNCATED:
            tokens = 2 * call.request.max_tokens
            longer = msgspec.structs.replace(call.request, max_tokens=tokens).body()
            second = await self._send_within_budget(longer, sent, counts)
            if isinstance(second, JudgeReply):
                if failed is not None:
                    failed.append(_cut(reply, outcome.detail, at=self._client.wall()))
                reply = second
                outcome = read_safely(call.read, second.completion)
                more = self._meter.usage(longer, second.completion)
                prompt, answer = prompt + more[0], answer + more[1]
        origin = ServedModel(reply.completion.model, reply.completion.fingerprint)
        self._replies.check_model(origin)
        bill = prompt, answer
        usd = self._meter.usd(call.request.model, bill) if self._meter.prices else 0.0
        result = JudgementResult(
            outcome=outcome,
            source="asked",
            attempts=counts.attempts,
            latency_s=reply.latency_s,
            queue_s=counts.queue_s,
            prompt_tokens=prompt,
            completion_tokens=answer,
            cost_usd=usd,
            model=origin.model,
            reply=reply.reply.body,
            read=call.read,
            hedges=counts.hedges,
            endpoint=reply.endpoint,
            elapsed_s=clock() - began_s,
            status=reply.reply.status,
            failed=tuple(failed or ()),
        )
        return result, origin

    async def _send_within_budget(
        self, body: bytes, sent: Callable[[], None], counts: RequestCounts, form: str = ""
    ) -> JudgeReply | Abstain:
        """The judge's reply, or an Abstain; its kind is ``budget`` where the budget ran out."""
        try:
            return await self._client.ask(body, sent=sent, counts=counts, form=form)
        except BudgetSpentError as error:
            return Abstain(FailureKind.BUDGET, str(error))

    def _record(
        self,
        key: str,
        result: JudgementResult,
        asked: _Asked,
        *,
        joined: bool = False,
        request: bytes = b"",
        form: str = "",
    ) -> None:
        """Tell the listener how a call ended; one that several share is counted and paid once."""
        shown = asked.shown
        if joined:
            result = msgspec.structs.replace(
                result, attempts=0, hedges=0, prompt_tokens=0, completion_tokens=0, cost_usd=0.0
            )
        self._listener(
            JudgementSettled(
                judge=self._name,
                key=key,
                outcome=result.outcome,
                source="joined" if joined else result.source,
                attempts=result.attempts,
                latency_s=result.latency_s,
                queue_s=result.queue_s,
                prompt_tokens=result.prompt_tokens,
                completion_tokens=result.completion_tokens,
                cost_usd=result.cost_usd,
                model=result.model,
                component=asked.component,
                cut_chars=0 if shown is None else shown.cut_chars,
                pictures=0 if shown is None else len(shown.pictures),
                hedges=result.hedges,
                endpoint=result.endpoint,
                elapsed_s=result.elapsed_s,
                status=result.status,
                form=form,
                question=asked.question,
                vote=asked.vote,
                uids=SAMPLE_UIDS.get(),
                request=request,
                reply=result.reply,
                failed=result.failed,
            )
        )


def _cut(reply: JudgeReply, why: str, *, at: float) -> FailedAttempt:
    """The attempt whose reply was cut, after which a longer one was asked for."""
    return FailedAttempt(
        number=reply.attempts,
        at=at,
        endpoint=reply.endpoint,
        status=reply.reply.status,
        latency_s=reply.latency_s,
        why=why,
        reply=reply.reply.body,
    )
