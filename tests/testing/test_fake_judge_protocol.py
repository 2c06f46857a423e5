"""The chat completions API of the fake judge: accepted requests and the form of replies."""

import asyncio
import json

import aiohttp
import pytest

from zerowait.testing import FakeJudge, Script, verdict_for


def messages(text):
    return [{"role": "user", "content": text}]


def test_a_judge_without_faults_answers_in_the_form_of_chat_completions(client):
    script = Script(seed=7)
    with FakeJudge(script) as judge:
        got = client.ask(judge.url, client.chat("What is 2+2?", max_tokens=5))
    right = verdict_for(script, messages("What is 2+2?"))
    assert got.status == 200
    assert got.headers["Content-Type"] == "application/json"
    assert got.json == {
        "id": got.json["id"],
        "object": "chat.completion",
        "created": got.json["created"],
        "model": "judge-1",
        "system_fingerprint": "fp_fake",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": right, "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
    }


def test_the_script_names_the_model_the_fingerprint_and_the_form_of_the_reply(client):
    script = Script(model="other", fingerprint="fp_2", reply='{"score": {verdict}}')
    with FakeJudge(script) as judge:
        got = client.ask(judge.url, "a")
    assert (got.json["model"], got.json["system_fingerprint"]) == ("other", "fp_2")
    assert 1 <= json.loads(got.content)["score"] <= 10


def test_a_test_can_answer_itself(client):
    def answer(body):
        return f"{body['model']}: {body['messages'][0]['content'].upper()}"

    with FakeJudge(answer=answer) as judge:
        assert client.ask(judge.url, "abc").content == "judge-1: ABC"


def test_another_key_than_the_right_one_is_refused_and_no_key_is_kept(client):
    with FakeJudge(api_key="sk-right") as judge:
        statuses = [
            client.ask(judge.url, "a").status,
            client.ask(judge.url, "a", Authorization="Bearer sk-wrong").status,
            client.ask(judge.url, "a", Authorization="Bearer sk-right").status,
        ]
        seen = judge.seen
    assert statuses == [401, 401, 200]
    assert (seen.requests, seen.with_key) == (3, 2)
    assert "sk-" not in repr(seen) + repr(vars(judge))


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "JSON object"),
        (b'{"model": "m"}', "messages"),
        (b'{"model": "m", "messages": []}', "messages"),
        (b'{"model": "m", "messages": ["a"]}', "role"),
        (b'{"messages": [{"role": "user", "content": "a"}]}', "model"),
        (b'{"model": "m", "stream": true, "messages": [{"role": "user"}]}', "streams"),
        (b'{"model": "m", "max_tokens": "9", "messages": [{"role": "user"}]}', "max_tokens"),
    ],
)
def test_a_request_that_is_none_is_answered_with_400_and_a_reason(client, body, says):
    with FakeJudge() as judge:
        got = client.ask(judge.url, body)
    assert got.status == 400
    assert says in got.json["error"]["message"]


def test_contents_may_be_parts_or_null(client):
    parts = [
        {"type": "text", "text": "a"},
        {"type": "image_url", "image_url": {"url": "https://host/a.png"}},
    ]
    body = {"model": "m", "messages": messages(parts) + messages(None)}
    with FakeJudge() as judge:
        assert client.ask(judge.url, json.dumps(body).encode()).status == 200


def test_a_body_of_several_megabytes_is_read(client):
    with FakeJudge() as judge:
        assert client.ask(judge.url, "x" * 3_000_000).status == 200


def test_the_other_pages_exist_and_nothing_else_does():
    async def get(url, method, path):
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url.removesuffix("/v1") + path) as response,
        ):
            return response.status, await response.json()

    with FakeJudge(Script(model="judge-9")) as judge:

        def ask(path, method="GET"):
            return asyncio.run(get(judge.url, method, path))

        assert ask("/healthz") == (200, {"status": "ok"})
        assert ask("/v1/models")[1]["data"][0]["id"] == "judge-9"
        assert ask("/v1/chat/completions")[0] == 405
        assert ask("/healthz", "POST")[0] == 405
        assert ask("/v2")[0] == 404
