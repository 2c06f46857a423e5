"""Judge of a replay: its answers come from the record of a run.

Where the record has the reply to the very request, that reply is read. Else a reply of the same
sample is read if its request asked the same in another form (a changed verdict, range or schema).
What neither the record nor the cache can answer is an abstention that says so, never a number; or
it is asked, where the replay may ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from zerowait.client import CostMeter, JudgeClient, Ledger
from zerowait.config import Judge
from zerowait.engine.judging.cached_judge import CachedJudge, JobContext, read_safely
from zerowait.engine.judging.recorded_replies import RecordedReply
from zerowait.engine.judging.result import JudgementResult, Read
from zerowait.events import SAMPLE_UIDS
from zerowait.judge import (
    ChatRequest,
    JudgeQuestion,
    RequestPattern,
    Rubric,
    SampleTexts,
    decoded_request,
    request_key,
    request_of,
    texts_for,
)
from zerowait.types import Abstain, FailureKind, Outcome, Sample, Score


class _Found(NamedTuple):
    """What the record says to a question.

    Args:
        outcome: the verdict, or why there was none; None where the record says nothing.
        was_read: whether the outcome was read in a reply.
    """

    outcome: Outcome | None = None
    was_read: bool = False


class RecordedJudge(CachedJudge):
    """A judge that is answered from a record, and asked only where a replay may ask.

    Args:
        judge: as `CachedJudge` takes it, like all others.
        rubric: likewise.
        client: likewise.
        meter: likewise.
        ledger: likewise.
        shared: what all judges have in common, with the recorded judgements in `replay`.
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
        super().__init__(judge, rubric, client=client, meter=meter, ledger=ledger, shared=shared)
        assert shared.replay is not None  # noqa: S101 - the factory looked
        self._recorded = shared.replay

    async def ask(
        self, sample: Sample, question: JudgeQuestion, *, vote: int = 0, component: str = ""
    ) -> Outcome:
        """The answer to one question about `sample`, or why there is none; see `CachedJudge`."""
        try:
            texts = texts_for(sample, question.rubric, self.config)
            if isinstance(texts, Abstain):
                return texts
            asked = self._requests(texts, question, vote)
        except Exception as error:  # noqa: BLE001 - rows of a data set hold anything
            return Abstain(FailureKind.BAD_INPUT, f"{type(error).__name__}: {error}")
        outcome = await self._same_request(asked)
        if outcome is None:
            outcome, why = self._other_form(texts, question, vote)
            if outcome is None and self._recorded.may_ask:
                self._recorded.count(self._name, "asked")
                return await super().ask(sample, question, vote=vote, component=component)
            outcome = self._missing(why) if outcome is None else outcome
        return self._measured(outcome, texts) if self._measures else outcome

    async def settle(
        self, request: ChatRequest, read: Read, *, vote: int = 0, component: str = ""
    ) -> JudgementResult:
        """The result of `request`, which compares several samples; see `CachedJudge`."""
        key = request_key(request.body(), self.rubric.version, vote)
        outcome = await self._same_request([(key, read)])
        if outcome is None and self._recorded.may_ask:
            self._recorded.count(self._name, "asked")
            return await super().settle(request, read, vote=vote, component=component)
        if outcome is None:
            outcome = self._missing("the record has no comparison of just these responses")
        return JudgementResult(outcome=outcome, source="cache")

    def _requests(
        self, texts: SampleTexts, question: JudgeQuestion, vote: int
    ) -> list[tuple[str, Read]]:
        """The requests in which the question may have been asked, by key, with their readers."""
        found: list[tuple[str, Read]] = []
        asked: JudgeQuestion | None = question
        while asked is not None:
            request = request_of(texts, self.config, asked.rubric, form=asked.form, vote=vote)
            key = request_key(request.body(), self.rubric.version, vote)
            found.append((key, asked.read))
            asked = asked.fallback
        return found

    async def _same_request(self, asked: Sequence[tuple[str, Read]]) -> Outcome | None:
        """The outcome of the first of these requests that has one; None where none has.

        The sample's own judgement comes before that of another sample with the same request: a
        judge may have said two things.
        """
        found = _Found()
        own = self._recorded.of_samples(SAMPLE_UIDS.get())
        for key, read in asked:
            each = self._best([reply for reply in own if reply.key == key], read)
            if not isinstance(each.outcome, Score):
                each = self._best(self._recorded.with_key(key), read)
            if isinstance(each.outcome, Score):
                self._recorded.count(self._name, "same")
                return each.outcome
            found = found if found.outcome is not None else each
        for key, read in asked:
            stored = await self._replies.find(key, read)
            if stored is not None:
                self._recorded.count(self._name, "cache")
                return stored.outcome
        if found.was_read:
            self._recorded.count(self._name, "same")
            return found.outcome
        return self._failed(found.outcome)

    def _failed(self, failure: Outcome | None) -> Outcome | None:
        """A failure of the run, which is one again; None where the judge may be asked instead."""
        if failure is None or self._recorded.may_ask:
            return None
        self._recorded.count(self._name, "failed")
        return failure

    def _best(self, replies: Sequence[RecordedReply], read: Read) -> _Found:
        """The first verdict in these replies; else what the first readable one is; else why."""
        best = _Found()
        for each in replies:
            found = self._found(each, read)
            if isinstance(found.outcome, Score):
                return found
            if best.outcome is None or (found.was_read and not best.was_read):
                best = found
        return best

    def _found(self, recorded: RecordedReply, read: Read) -> _Found:
        completion = self._client.decode(recorded.reply) if recorded.reply else None
        if completion is None or completion.failure is not None:
            return _Found(recorded.failure)
        return _Found(read_safely(read, completion), was_read=True)

    def _other_form(
        self, texts: SampleTexts, question: JudgeQuestion, vote: int
    ) -> tuple[Outcome | None, str]:
        """What the new reader finds in a reply to the same question in another form.

        Returns:
            The outcome, or None and why there is none.
        """
        replies = [
            each for each in self._recorded.of_samples(SAMPLE_UIDS.get()) if each.vote == vote
        ]
        if not replies:
            return None, "no judgement of this sample was recorded"
        pattern = RequestPattern(texts, self.config, question.rubric, question.form, vote=vote)
        fitting: list[RecordedReply] = []
        why = "its reply was not kept"
        for each in replies:
            difference = self._difference(each, pattern)
            if difference:
                why = difference
            else:
                fitting.append(each)
        best = self._best(fitting, question.read)
        if best.was_read:
            self._recorded.count(self._name, "reread")
            return best.outcome, ""
        return self._failed(best.outcome), why

    def _difference(self, recorded: RecordedReply, pattern: RequestPattern) -> str:
        """What a recorded request asked otherwise, in words; empty where it asked the same."""
        if not recorded.request:
            return "its request and reply were not kept (record: texts)"
        if request_key(recorded.request, self.rubric.version, recorded.vote) != recorded.key:
            return "the judge was asked by another rubric"
        return pattern.difference(decoded_request(recorded.request))

    def _missing(self, why: str) -> Abstain:
        self._recorded.count(self._name, "missing", why)
        return Abstain(
            FailureKind.CANCELLED,
            f"the record cannot answer: {why}; a replay asks no judge unless it is told to (--ask)",
        )
