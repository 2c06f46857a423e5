"""The service's routes over real sockets."""

import asyncio
import json
from contextlib import asynccontextmanager

import aiohttp
import pytest

from zerowait import ConfigError
from zerowait.client import Secret
from zerowait.hub.http.service import serving
from zerowait.hub.http.settings import ServiceSettings
from zerowait.testing import FakeJudge, Hang, Latency, Script, Status

RULE = {"components": {"answer": {"scorer": "qa_em"}}}
RIGHT = {"prompt": "Capital?", "response": "<answer>Paris</answer>", "ground_truth": "Paris"}
WRONG = RIGHT | {"response": "<answer>Rome</answer>"}


def judged(judge, **traffic):
    return {
        "components": {"quality": {"judge": "q"}},
        "judges": {
            "q": {
                "endpoints": [{"base_url": judge.url, "model": "m"}],
                "verdict": {"integer": [1, 10]},
            }
        },
        "traffic": {"attempts": 1} | traffic,
        "cache": "off",
    }


@asynccontextmanager
async def service(config=RULE, **settings):
    """A session whose paths start at a running service, and the service's drain."""
    async with (
        serving(config, ServiceSettings(port=0, **settings)) as (url, drain),
        aiohttp.ClientSession(url) as session,
    ):
        yield session, drain


def ask(path, body=None, config=RULE, *, headers=None, **settings):
    """Status and decoded reply to one POST (GET without a body)."""

    async def scenario():
        async with service(config, **settings) as (session, _):
            method = "GET" if body is None else "POST"
            data = {"data": body} if isinstance(body, bytes) else {"json": body}
            async with session.request(method, path, headers=headers, **data) as reply:
                text = await reply.text()
                return reply.status, json.loads(text) if text.startswith(("{", "[")) else text

    return asyncio.run(scenario())


def test_one_sample_gets_one_reward_and_a_list_gets_a_list():
    status, reward = ask("/v1/score", RIGHT)
    assert (status, reward["value"]) == (200, 1.0)
    assert reward["components"]["answer"]["outcome"] == "score"
    status, rewards = ask("/v1/score", [RIGHT, WRONG])
    assert [reward["value"] for reward in rewards] == [1.0, 0.0]
    assert ask("/v1/score", []) == (200, [])


def test_an_abstention_has_no_value():
    with FakeJudge(Script(faults=(Status(status=400, always=True),))) as judge:
        status, reward = ask("/v1/score", RIGHT, judged(judge))
    assert (status, reward["value"]) == (200, None)
    assert reward["components"]["quality"]["kind"] == "http_error"


def test_the_policy_raise_is_a_bad_gateway_and_says_why():
    with FakeJudge(Script(faults=(Status(status=400, always=True),))) as judge:
        status, body = ask("/v1/score", RIGHT, judged(judge) | {"on_failure": "raise"})
    assert status == 502
    assert body["error"]["type"] == "JudgementError"
    assert "http_error" in body["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "complaint"),
    [
        ("/v1/score", b"{", {}, 400, "not JSON"),
        ("/v1/score", {"prompt": "p", "respond": "r"}, {}, 400, "did you mean 'response'"),
        ("/v1/score", RIGHT | {"extra": {"x": "y" * 4000}}, {}, 413, "Maximum request body"),
        ("/v1/score", b"{}", {"Content-Type": "text/plain"}, 415, "application/json"),
        ("/v1/scores", RIGHT, {}, 404, "there is no POST /v1/scores; there are GET /healthz, "),
        ("/healthz", RIGHT, {}, 405, "there is no POST /healthz; there are GET /healthz, "),
        ("/get_reward", {"query": ["A"], "prompts": ["Q"], "labels": [""]}, {}, 400, "hold"),
        ("/v1/hub", None, {"Origin": "http://evil.example"}, 403, "browsers"),
    ],
)
def test_wrong_input_is_answered_with_one_clear_line(path, body, headers, status, complaint):
    headers = {"Content-Type": "application/json"} | headers
    got, answer = ask(path, body, headers=headers, max_body_bytes=2000)
    assert got == status
    assert complaint in answer["error"]["message"]
    assert "\n" not in answer["error"]["message"]


def test_a_shape_without_groups_is_the_senders_mistake():
    config = RULE | {"components": RULE["components"] | {"length": {"shape": "median_band"}}}
    status, answer = ask("/v1/score", RIGHT, config)
    assert (status, answer["error"]["type"]) == (400, "DataError")


@pytest.mark.parametrize("path", ["/v1/score", "/get_reward", "/metrics", "/v1/stats", "/v1/hub"])
def test_without_the_token_only_healthz_answers(path):
    body = RIGHT if path in ("/v1/score", "/get_reward") else None
    status, answer = ask(path, body, token=Secret("sesame"), headers={"Authorization": "Bearer x"})
    assert status == 401
    assert "sesame" not in str(answer)
    assert ask("/healthz", token=Secret("sesame")) == (200, {"status": "ok"})


def test_the_token_may_be_the_password_of_the_url():
    """OpenRLHF sends no headers of ours, but posts to the URL exactly as given."""

    async def scenario():
        settings = ServiceSettings(port=0, token=Secret("sesame"))
        async with serving(RULE, settings) as (url, _), aiohttp.ClientSession() as session:
            known = url.replace("http://", "http://me:sesame@")
            async with session.post(f"{known}/v1/score", json=RIGHT) as reply:
                return reply.status

    assert asyncio.run(scenario()) == 200


REMOTE = {
    "query": [f"<s>Capital?{RIGHT['response']}<|im_end|>"],
    "prompts": ["Capital?"],
    "labels": ["Paris"],
}


def test_openrlhf_gets_its_form_of_reply():
    status, answer = ask("/get_reward", REMOTE)
    assert status == 200
    assert answer["rewards"] == answer["scores"] == [1.0]
    assert answer["extra_logs"]["abstained"] == [0.0]
    status, answer = ask("/get_reward?data_source=x", REMOTE)
    assert (status, answer["rewards"]) == (200, [1.0])


def test_openrlhf_gets_an_error_or_the_chosen_number_for_an_abstention():
    with FakeJudge(Script(faults=(Status(status=400, always=True),))) as judge:
        assert ask("/get_reward", REMOTE, judged(judge))[0] == 502
        status, answer = ask("/get_reward", REMOTE, judged(judge), on_abstain=-1.0)
    assert (status, answer["rewards"], answer["extra_logs"]["abstained"]) == (200, [-1.0], [1.0])


def test_metrics_are_what_prometheus_reads():
    async def scenario():
        async with service() as (session, _):
            await session.post("/v1/score", json=[RIGHT, WRONG])
            async with session.get("/metrics") as reply:
                return reply.headers["Content-Type"], await reply.text()

    kind, text = asyncio.run(scenario())
    assert kind == "text/plain; version=0.0.4; charset=utf-8"
    assert "zerowait_settled_total 2.0\n" in text
    families = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(families) == len(set(families))
    for line in text.splitlines():
        name = line.split()[2] if line.startswith("#") else line.split("{")[0].split()[0]
        assert name in families


MANY = {
    "/v1/score": [RIGHT | {"response": str(n)} for n in range(16)],
    "/get_reward": {
        "query": [f"<s>Capital?{n}<|im_end|>" for n in range(16)],
        "prompts": ["Capital?"] * 16,
        "labels": ["Paris"] * 16,
    },
}


@pytest.mark.parametrize("path", MANY)
def test_the_slow_judgements_of_a_request_are_waited_for_side_by_side(path):
    """None is answered before all of them are asked: one after the other they would never come."""

    async def scenario(judge):
        async with service(judged(judge, concurrency=16)) as (session, _):
            call = asyncio.create_task(session.post(path, json=MANY[path]))
            while judge.seen.in_flight < 16:  # noqa: ASYNC110 - the other side of a socket
                await asyncio.sleep(0.005)
            call.cancel()
            await asyncio.wait([call])

    with FakeJudge(Script(faults=(Hang(always=True),))) as judge:
        asyncio.run(asyncio.wait_for(scenario(judge), 60))


def test_a_request_that_takes_too_long_is_answered():
    with FakeJudge(Script(faults=(Hang(always=True),))) as judge:
        status, answer = ask("/v1/score", RIGHT, judged(judge), deadline_s=0.1)
    assert status == 504
    assert answer["error"]["message"] == "not done in 0.1 s"


def test_a_request_is_cancelled_when_its_client_disconnects():
    async def scenario(judge):
        async with service(judged(judge, concurrency=1)) as (session, _):
            calls = [
                asyncio.create_task(session.post("/v1/score", json=RIGHT | {"response": str(n)}))
                for n in range(3)
            ]
            while judge.seen.in_flight < 1 or await waiting(session) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)
            while await waiting(session):  # noqa: ASYNC110 - the other side of a socket
                await asyncio.sleep(0.005)

    async def waiting(session):
        async with session.get("/v1/stats") as reply:
            return (await reply.json())["waiting"]

    with FakeJudge(Script(faults=(Hang(always=True),))) as judge:
        asyncio.run(asyncio.wait_for(scenario(judge), 60))
        assert judge.seen.requests == 1


def test_draining_answers_open_requests_and_refuses_new_ones():
    async def scenario(judge):
        async with service(judged(judge)) as (session, drain):
            asked = asyncio.create_task(session.post("/v1/score", json=RIGHT))
            while judge.seen.requests < 1:  # noqa: ASYNC110 - the other side of a socket
                await asyncio.sleep(0.005)
            draining = asyncio.create_task(drain(60))
            await asyncio.sleep(0)
            async with session.get("/healthz") as late:
                health = late.status
            async with session.post("/v1/score", json=RIGHT) as late:
                refused = late.status, late.headers["Retry-After"]
            reply = await asked
            value = (await reply.json())["value"]
            await draining
            return health, refused, value

    with FakeJudge(Script(latency=Latency(0.1))) as judge:
        health, refused, value = asyncio.run(asyncio.wait_for(scenario(judge), 60))
    assert (health, refused) == (503, (503, "1"))
    assert 1 <= value <= 10


def test_draining_ends_although_a_judge_hangs():
    async def scenario(judge):
        async with service(judged(judge)) as (session, drain):
            asked = asyncio.create_task(session.post("/v1/score", json=RIGHT))
            while judge.seen.in_flight < 1:  # noqa: ASYNC110 - the other side of a socket
                await asyncio.sleep(0.005)
            await drain(0.05)
            return (await asked).status

    with FakeJudge(Script(faults=(Hang(always=True),))) as judge:
        assert asyncio.run(asyncio.wait_for(scenario(judge), 60)) == 503


def test_a_port_that_is_taken_is_a_configuration_error():
    async def scenario():
        async with serving(RULE, ServiceSettings(port=0)) as (url, _):
            port = int(url.rsplit(":", 1)[1])
            with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1 port {port}"):
                async with serving(RULE, ServiceSettings(port=port)):
                    pass

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "headers", [{"Origin": "http://evil.example"}, {"Host": "evil.example"}, {"Host": "evil:8002"}]
)
def test_a_page_in_a_browser_may_not_ask(headers):
    status, reply = ask("/v1/score", RIGHT, headers=headers)
    assert status == 403
    assert "browsers may not ask here" in reply["error"]["message"]


def test_with_a_token_it_may_have_any_name():
    headers = {"Host": "judge.example", "Authorization": "Bearer t0ken-of-tests"}
    assert ask("/v1/score", RIGHT, headers=headers, token=Secret("t0ken-of-tests"))[0] == 200


def test_several_shards_are_refused_since_the_service_is_one_process():
    async def scenario():
        async with serving(RULE | {"hub": {"shards": 2}}, ServiceSettings(port=0)):
            pass

    with pytest.raises(ConfigError, match=r"hub.shards is for a hub under Ray"):
        asyncio.run(scenario())
