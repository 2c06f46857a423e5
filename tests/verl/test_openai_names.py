"""The judge by itself: a batch in, a future out, and the same inside a running loop."""

import asyncio
import hashlib

import pytest

from zerowait import Sample
from zerowait.errors import ClosedError, ConfigError
from zerowait.testing import FakeJudge, Hang, Latency, Script, Status
from zerowait.verl import AsyncOpenAIManager, AsyncOpenAIWorker, get_request_hash

SAMPLES = [Sample("Which tool?", f"I call tool {number % 3}.") for number in range(6)]


def settings(judge, **changes):
    given = {"api_key": "sk-any", "api_endpoint": f"{judge.url}/chat/completions", "cache": "off"}
    return {"reward_coefficient": 0.1, **given, **changes}


def seven(_body):
    return "Score: 7"


def test_a_batch_is_submitted_at_once_and_identical_requests_are_asked_once(gate):
    held = gate()
    with FakeJudge(answer=seven, hold=held) as judge:
        with AsyncOpenAIManager(settings(judge)) as manager:
            future = manager.submit(SAMPLES)
            assert not future.done()
            held.open()
            rewards = future.result()
        assert judge.seen.requests == 3
    assert [reward.value for reward in rewards] == [pytest.approx(0.7)] * 6


def test_the_limit_is_enforced_from_the_judges_side():
    script = Script(latency=Latency(0.02))
    samples = [Sample("q", f"answer {number}") for number in range(12)]
    with FakeJudge(script) as judge:
        with AsyncOpenAIManager(settings(judge, max_concurrent_requests=3)) as manager:
            manager.submit(samples).result()
        assert 1 < judge.seen.peak_in_flight <= 3


@pytest.mark.parametrize(
    ("fault", "kind", "deadline_s"),
    [
        (Status(status=400, always=True), "http_error", 60.0),
        (Hang(always=True), "timeout", 0.2),
    ],
)
def test_a_failed_or_late_judgement_has_no_value(fault, kind, deadline_s):
    given = {"deadline_s": deadline_s}
    with (
        FakeJudge(Script(faults=(fault,))) as judge,
        AsyncOpenAIManager(settings(judge, **given)) as manager,
    ):
        (reward,) = manager.submit(SAMPLES[:1]).result()
    assert reward.value is None
    assert reward.components["quality"].kind == kind


def test_it_may_be_initialized_and_shut_down_again_and_again():
    with FakeJudge(answer=seven) as judge:
        manager = AsyncOpenAIManager(settings(judge))
        manager.shutdown()
        for _ in range(2):
            manager.initialize()
            manager.initialize()
            assert manager.submit(SAMPLES[:1]).result()[0].value == pytest.approx(0.7)
            manager.shutdown()
            manager.shutdown()


def test_the_worker_asks_on_the_running_loop():
    async def both(given):
        async with AsyncOpenAIWorker(given) as worker:
            await worker.initialize()
            return await worker.process(SAMPLES)

    with FakeJudge(answer=seven) as judge:
        rewards = asyncio.run(both(settings(judge)))
        assert judge.seen.requests == 3
    assert [reward.value for reward in rewards] == [pytest.approx(0.7)] * 6


def test_a_worker_that_is_not_open_says_so():
    async def early(given):
        worker = AsyncOpenAIWorker(given)
        await worker.shutdown()
        await worker.process(SAMPLES)

    with FakeJudge() as judge, pytest.raises(ClosedError, match="not open"):
        asyncio.run(early(settings(judge)))


@pytest.mark.parametrize("kind", [AsyncOpenAIManager, AsyncOpenAIWorker])
def test_a_missing_key_is_an_error_at_the_start(kind, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        kind({"api_endpoint": "http://127.0.0.1:1/v1"})


def test_the_hash_is_sha256_of_any_text():
    assert get_request_hash("2+2?") == hashlib.sha256(b"2+2?").hexdigest()
    assert len(get_request_hash("\ud800")) == 64
