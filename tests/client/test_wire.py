"""The whole client against the fake judge, over real sockets."""

import asyncio
import gc
from random import Random

import msgspec
import pytest

from zerowait.client import (
    EndpointStates,
    FixedLimit,
    HttpTransport,
    JudgeClient,
    JudgeReply,
    Limiter,
    Reply,
    Secret,
)
from zerowait.completion import Completion
from zerowait.config import Endpoint, Traffic
from zerowait.testing import (
    Capacity,
    FakeJudge,
    Hang,
    Latency,
    Reset,
    Script,
    Status,
    TruncatedJson,
    WrongTypes,
)
from zerowait.types import Abstain, FailureKind

KEY = "sk-planted-0123456789"


class Hasty(Random):
    """Jitter that hardly ever waits, so that retries over real sockets are quick."""

    def uniform(self, a, b):
        return a + (b - a) * 0.002


class _Message(msgspec.Struct):
    content: str


class _Choice(msgspec.Struct):
    message: _Message


class _Completion(msgspec.Struct):
    choices: list[_Choice]


def content(body):
    return msgspec.json.decode(body, type=_Completion).choices[0].message.content


def decoded(body):
    try:
        return Completion(text=content(body))
    except (msgspec.MsgspecError, IndexError):
        return None


def question(number):
    messages = [{"role": "user", "content": f"question {number}"}]
    return msgspec.json.encode({"model": "m", "messages": messages})


async def until(true):
    async with asyncio.timeout(60.0):
        while not true():  # noqa: ASYNC110 - the judge lives in another thread
            await asyncio.sleep(0.002)


async def answers(url, count, *, limiter, **traffic):
    """The outcomes of `count` questions."""
    transport = HttpTransport()
    client = JudgeClient(
        endpoints=[Endpoint(base_url=url, model="m")],
        keys=[Secret(KEY)],
        transport=transport,
        endpoint_states=EndpointStates(Traffic(), limiter=limiter),
        decode=decoded,
        traffic=Traffic(hedge="off", **traffic),
        jitter=Hasty(),
    )
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(client.ask(question(n))) for n in range(count)]
    finally:
        await transport.aclose()
    return [task.result() for task in tasks]


def ask_all(url, count, *, limit=12, **traffic):
    """The outcomes of `count` questions, and the limiter that they went through."""
    limiter = Limiter(FixedLimit(limit))
    outcomes = asyncio.run(answers(url, count, limiter=limiter, **traffic))
    gc.collect()
    return outcomes, limiter


def test_faults_that_pass_cost_resends_and_never_an_answer():
    script = Script(
        seed=3,
        latency=Latency(median_s=0.002),
        faults=(
            Reset(share=0.08, sent="half"),
            Reset(share=0.08, sent="nothing"),
            Reset(share=0.08, sent="headers", graceful=True),
            Status(share=0.08, status=503),
            Status(share=0.08, status=429, retry_after_s=0.01),
            TruncatedJson(share=0.08),
            WrongTypes(share=0.08),
        ),
    )
    with FakeJudge(script, api_key=KEY) as judge:
        outcomes, limiter = ask_all(judge.url, 80, attempts=50)
        seen = judge.seen
    with FakeJudge(Script(seed=3)) as calm:
        expected, _ = ask_all(calm.url, 80)
    assert all(isinstance(outcome, JudgeReply) for outcome in outcomes)
    found = [content(outcome.reply.body) for outcome in outcomes]
    assert found == [content(answer.reply.body) for answer in expected]
    assert set(seen.by_fault) == {"reset", "status", "truncated_json", "wrong_types"}
    assert seen.answered == seen.distinct_bodies == 80
    assert seen.repeats == 0
    assert seen.peak_in_flight <= 12
    assert (limiter.in_flight, limiter.on_wire) == (0, 0)


def test_a_judge_that_turns_the_crowd_away_still_answers_everybody():
    script = Script(
        latency=Latency(median_s=0.005),
        capacity=Capacity(concurrency=4, retry_after_s=0.01),
    )
    outcomes = []
    with FakeJudge(script) as judge:
        while 429 not in judge.seen.by_status:  # who sends slowly is no crowd
            outcomes += ask_all(judge.url, 30, limit=8, attempts=100)[0]
        seen = judge.seen
    assert all(isinstance(outcome, JudgeReply) for outcome in outcomes)
    assert seen.answered == len(outcomes)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Status(status=429), FailureKind.RATE_LIMITED),
        (Status(status=500), FailureKind.HTTP_ERROR),
        (Status(status=529), FailureKind.HTTP_ERROR),
        (Reset(), FailureKind.UNREACHABLE),
        (TruncatedJson(), FailureKind.HTTP_ERROR),
    ],
)
def test_a_fault_that_does_not_pass_abstains_with_its_kind_and_without_the_key(fault, kind):
    with FakeJudge(Script(faults=(fault,))) as judge:
        url = judge.url
        (outcome,), _ = ask_all(url, 1, attempts=2)
    assert isinstance(outcome, Abstain)
    assert outcome.kind is kind
    assert url in outcome.detail
    assert "planted" not in outcome.detail


@pytest.mark.parametrize("sent", ["nothing", "half"])
def test_a_judge_that_falls_silent_abstains_with_a_timeout_and_without_the_key(sent, leaping):
    async def main(leap):
        limiter = Limiter(FixedLimit(1))
        asking = asyncio.create_task(
            answers(judge.url, 1, limiter=limiter, attempts=2, timeout_s=60.0)
        )
        for attempt in (1, 2):
            await until(lambda: judge.seen.requests == attempt)  # noqa: B023 - called at once
            leap(60)
        return await asking

    with FakeJudge(Script(faults=(Hang(sent=sent),))) as judge:
        url = judge.url
        (outcome,) = leaping(main)
    assert isinstance(outcome, Abstain)
    assert outcome.kind is FailureKind.TIMEOUT
    assert url in outcome.detail
    assert "planted" not in outcome.detail


def test_a_refused_key_is_asked_once_and_never_shown():
    with FakeJudge(api_key="another") as judge:
        (outcome,), _ = ask_all(judge.url, 1)
        assert judge.seen.requests == 1
    assert isinstance(outcome, Abstain)
    assert "key was refused" in outcome.detail
    assert "planted" not in outcome.detail


def test_a_judge_that_is_gone_is_unreachable(hold_port):
    with hold_port() as port:
        with FakeJudge(port=port) as judge:
            url = judge.url
        (outcome,), _ = ask_all(url, 1, attempts=2)
    assert isinstance(outcome, Abstain)
    assert outcome.kind is FailureKind.UNREACHABLE


def test_the_judge_stops_working_for_a_call_that_was_cancelled():
    async def main(judge):
        transport = HttpTransport()
        limiter = Limiter(FixedLimit(1))
        client = JudgeClient(
            endpoints=[Endpoint(base_url=judge.url, model="m")],
            transport=transport,
            endpoint_states=EndpointStates(Traffic(), limiter=limiter),
            decode=decoded,
        )
        task = asyncio.create_task(client.ask(question(0)))
        await until(lambda: judge.seen.in_flight)
        task.cancel()
        await until(lambda: judge.seen.cancelled_by_client)
        assert limiter.in_flight == 0
        await transport.aclose()

    with FakeJudge(Script(faults=(Hang(),))) as judge:
        asyncio.run(main(judge))


def test_no_reply_brings_a_key_back_whoever_sent_it():
    """A proxy may quote the request's headers in its reply, or in what looks like a verdict."""
    planted = "sk-planted-in-a-header-42"

    class Echo:
        async def send(self, request, *, timeout_s):
            said = f"your headers: {dict(request.headers)}"
            body = {"choices": [{"message": {"content": said}}]}
            return Reply(200, {}, msgspec.json.encode(body))

        async def aclose(self):
            pass

    async def scenario():
        endpoint = Endpoint(
            base_url="http://judge/v1", model="m", headers={"X-Auth": f"Token {planted}"}
        )
        client = JudgeClient(
            endpoints=[endpoint],
            keys=[Secret(KEY)],
            transport=Echo(),
            endpoint_states=EndpointStates(Traffic()),
            decode=decoded,
        )
        return await client.ask(question(1))

    answer = asyncio.run(scenario())
    assert b"your headers" in answer.reply.body
    assert planted.encode() not in answer.reply.body
    assert KEY.encode() not in answer.reply.body
