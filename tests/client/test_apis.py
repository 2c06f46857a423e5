"""The APIs and paths at which a judge may answer, over real sockets and through the engine."""

import asyncio
import json

import aiohttp
import pytest

from zerowait import Engine, Sample
from zerowait.client import Secret, target
from zerowait.config import Endpoint, load_config
from zerowait.errors import ConfigError
from zerowait.events import ModelChanged
from zerowait.testing import (
    Capacity,
    Empty,
    Ending,
    ErrorInBody,
    FakeJudge,
    Garbage,
    Hang,
    Length,
    Moderation,
    OutOfRange,
    Refusal,
    Reset,
    Script,
    Status,
    TruncatedJson,
    WrongTypes,
)
from zerowait.types import Abstain

pytestmark = pytest.mark.wire
KEY = "sk-planted-0123456789"
FAULTS = (
    Status(status=503, share=0.05),
    Reset(share=0.03),
    TruncatedJson(share=0.05),
    Empty(share=0.03),
    Ending(share=0.03),
    Ending(share=0.02, word="error"),
    ErrorInBody(share=0.03, code=502),
    ErrorInBody(share=0.02, code="server_error"),
    Moderation(share=0.05),
    Length(share=0.1, cured_at=2048),
    Length(share=0.05, thinking=True),
    Refusal(share=0.1),
    Garbage(share=0.05),
    OutOfRange(share=0.05),
)


def configuration(*endpoints, cache="off", **traffic):
    return {
        "components": {"quality": {"judge": "q"}},
        "judges": {
            "q": {
                "endpoints": [{"model": "m"} | e for e in endpoints],
                "verdict": {"integer": [1, 10]},
            }
        },
        "traffic": {"concurrency": 32, "attempts": 12, "hedge": "off"} | traffic,
        "prices": {"m": {"input": 1.0, "output": 10.0}},
        "cache": cache,
    }


def scored(settings, rows, events=None):
    async def scenario():
        listener = (lambda event: None) if events is None else events.append
        async with Engine(settings, listener=listener) as engine:
            return await engine.score_all(rows), engine.stats()

    return asyncio.run(asyncio.wait_for(scenario(), 60))


def outcomes(rewards):
    found = [reward.components["quality"] for reward in rewards]
    return [one.kind.value if isinstance(one, Abstain) else one.value for one in found]


def rows(count):
    return [Sample("q", f"answer {n}") for n in range(count)]


def test_a_judge_of_the_responses_api_gives_the_same_outcomes_under_the_same_faults():
    script, told = Script(seed=3, faults=FAULTS, capacity=Capacity(concurrency=16)), {}
    for api in ("chat", "responses"):
        with FakeJudge(script) as judge:
            rewards, stats = scored(configuration({"base_url": judge.url, "api": api}), rows(150))
        told[api] = outcomes(rewards)
        assert stats.spent_usd > 0
        assert stats.completion_tokens > 0
    assert told["chat"] == told["responses"]
    assert {"truncated", "refused", "out_of_range", "unparseable"} < set(told["chat"])


def test_a_judgement_goes_on_in_the_other_api_and_keeps_its_key(tmp_path):
    """The chat endpoint is dead; a later run that has it alone finds every verdict in the cache."""
    cache = str(tmp_path / "j.db")
    dead = FakeJudge(Script(faults=(Status(status=503, always=True),)))
    with dead, FakeJudge() as alive:
        chat, responses = (
            {"base_url": dead.url},
            {"base_url": f"{alive.url}/responses", "priority": 1},
        )
        first, stats = scored(configuration(chat, responses, cache=cache), rows(20))
        assert stats.asked == 20
        again, stats = scored(configuration(chat, cache=cache), rows(20))
    assert (stats.asked, stats.cached) == (0, 20)
    assert outcomes(first) == outcomes(again)


def test_a_model_that_changes_is_told_of_in_the_responses_api_too(tmp_path):
    events, cache = [], str(tmp_path / "j.db")
    for model in ("one", "two"):
        with FakeJudge(Script(model=model)) as judge:
            endpoint = {"base_url": judge.url, "api": "responses"}
            scored(configuration(endpoint, cache=cache), rows(3 if model == "one" else 6), events)
    changes = [event for event in events if isinstance(event, ModelChanged)]
    assert [(change.before, change.after) for change in changes] == [("one", "two")]


@pytest.mark.parametrize(
    ("endpoint", "path"),
    [
        (
            {"base_url": "{}/openai/deployments/gpt", "api_version": "2024-10-21"},
            "/openai/deployments/gpt/chat/completions?api-version=2024-10-21",
        ),
        (
            {"base_url": "{}/openai/v1", "api_version": "preview"},
            "/openai/v1/chat/completions?api-version=preview",
        ),
        (
            {"base_url": "{}/openai/v1", "api_version": "preview", "api": "responses"},
            "/openai/v1/responses?api-version=preview",
        ),
        (
            {"base_url": "{}/openai/responses", "api_version": "2025-04-01-preview"},
            "/openai/responses?api-version=2025-04-01-preview",
        ),
        ({"base_url": "{}/v1/responses/"}, "/v1/responses"),
        ({"base_url": "{}/v1", "api": "responses"}, "/v1/responses"),
        ({"base_url": "{}/v1/chat/completions", "api": "chat"}, "/v1/chat/completions"),
    ],
)
def test_every_kind_of_url_is_asked_with_its_key(endpoint, path, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", KEY)
    with FakeJudge(api_key=KEY) as judge:
        origin = judge.url.removesuffix("/v1")
        given = endpoint | {
            "base_url": endpoint["base_url"].format(origin),
            "api_key_env": "JUDGE_KEY",
        }
        place = target(Endpoint(model="m", **given), key=Secret(KEY))
        rewards, _ = scored(configuration(given), rows(2))
    assert place.url == origin + path
    header = "api-key" if "api_version" in endpoint else "Authorization"
    assert KEY in place.headers[header]
    assert all(isinstance(value, float) for value in outcomes(rewards))


def test_headers_of_your_own_go_with_every_request():
    with FakeJudge(api_key=KEY) as judge:
        for api in ("chat", "responses"):
            headers = {"api-key": KEY, "X-Team": "alignment"}
            rewards, _ = scored(
                configuration({"base_url": judge.url, "api": api, "headers": headers}), rows(2)
            )
            assert all(isinstance(value, float) for value in outcomes(rewards))
        assert judge.seen.with_key == 4


def test_an_api_that_is_not_the_urls_is_refused():
    endpoint = {"base_url": "http://judge/v1/responses", "model": "m", "api": "chat"}
    with pytest.raises(ConfigError, match="api is chat, and base_url is that of responses"):
        load_config(configuration(endpoint))
    with pytest.raises(
        ConfigError,
        match="api must be chat or completions or responses or classify or pooling or score, not 'response'",
    ):
        load_config(configuration(endpoint | {"api": "response"}))


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"model": "m"}, "'input' must be a non-empty list"),
        ({"model": "m", "input": [], "instructions": "x"}, "max_output_tokens"),
        ({"model": "m", "input": "a", "max_output_tokens": "9"}, "max_output_tokens"),
    ],
)
def test_the_fake_judge_refuses_what_is_no_request_for_a_response(body, says):
    body = {"max_output_tokens": 0} | body if "instructions" in body else body

    async def ask(url):
        async with aiohttp.ClientSession() as session, session.post(url, json=body) as reply:
            return reply.status, await reply.json()

    with FakeJudge() as judge:
        status, reply = asyncio.run(ask(f"{judge.url}/responses"))
    assert status == 400
    assert says in reply["error"]["message"]


def test_a_text_alone_is_a_question_too():
    async def ask(url, path, body):
        async with aiohttp.ClientSession() as session, session.post(url + path, json=body) as reply:
            return await reply.json()

    with FakeJudge(Script(seed=1)) as judge:
        said = asyncio.run(ask(judge.url, "/responses", {"model": "m", "input": "2+2"}))
        chat = {"model": "m", "messages": [{"role": "user", "content": "2+2"}]}
        expected = asyncio.run(ask(judge.url, "/chat/completions", chat))
    content = expected["choices"][0]["message"]["content"]
    assert said["output"][0]["content"][0]["text"] == content
    assert json.dumps(said["usage"]) == '{"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}'


def test_a_response_of_the_wrong_form_never_becomes_a_number():
    with FakeJudge(Script(faults=(WrongTypes(always=True),))) as judge:
        endpoint = {"base_url": judge.url, "api": "responses"}
        rewards, _ = scored(configuration(endpoint, attempts=1), rows(40))
    assert set(outcomes(rewards)) == {"http_error", "unparseable"}


def test_a_response_that_hangs_or_breaks_is_asked_for_again(leaping):
    faults = Hang(share=0.5, sent="half", first=1), Reset(share=0.5, first=1)

    def broken_ones_are_answered():
        seen = judge.seen
        return (seen.by_fault, seen.answered, seen.in_flight) == ({"reset": 2}, 2, 2)

    async def scenario(leap):
        endpoint = {"base_url": judge.url, "api": "responses"}
        async with Engine(configuration(endpoint, timeout_s=60.0)) as engine:
            scoring = asyncio.create_task(engine.score_all(rows(4)))
            while not broken_ones_are_answered():  # noqa: ASYNC110 - the judge has its own loop
                await asyncio.sleep(0.002)
            leap(60)
            return await scoring, engine.stats()

    with FakeJudge(Script(seed=3, faults=faults)) as judge:
        rewards, stats = leaping(scenario)
    assert all(isinstance(value, float) for value in outcomes(rewards))
    assert stats.retries >= 4
