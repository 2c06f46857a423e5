"""What must hold with real sockets: an endpoint that dies, a small budget, and a planted key."""

import asyncio
import logging

import pytest

from zerowait import Engine, Sample
from zerowait.events import EndpointEjected, EndpointReturned
from zerowait.hub.http import HttpHub
from zerowait.hub.http.service import serving
from zerowait.hub.http.settings import ServiceSettings
from zerowait.testing import FakeJudge, Hang, Latency, Refusal, Reset, Script, Status

KEY = "sk-planted-0123456789"
IN_TIME_S = 100


def configuration(*endpoints, **parts):
    return {
        "components": {"quality": {"judge": "q"}},
        "judges": {
            "q": {
                "endpoints": [{"model": "m"} | endpoint for endpoint in endpoints],
                "verdict": {"integer": [1, 10]},
                "max_tokens": 10,
            }
        },
        "cache": "off",
    } | parts


def run(scenario):
    return asyncio.run(asyncio.wait_for(scenario, IN_TIME_S))


def test_an_endpoint_that_dies_and_returns_has_its_traffic_back(hold_port):
    """Rows never stop coming, and none of them abstains."""
    events, values = [], []

    async def scenario(first, second, port):
        settings = configuration({"base_url": first.url}, {"base_url": second.url})
        stop = asyncio.Event()

        async def rows(engine, name):
            number = 0
            while not stop.is_set():
                number += 1
                reward = await engine.score(Sample("q", f"answer {number} of {name}"))
                values.append(reward.value)

        async with Engine(settings, listener=events.append) as engine, asyncio.TaskGroup() as tasks:
            for name in range(16):
                tasks.create_task(rows(engine, name))
            while first.seen.answered < 50:  # noqa: ASYNC110 - the other side of a socket
                await asyncio.sleep(0.01)
            await asyncio.to_thread(first.close)
            while not any(isinstance(event, EndpointEjected) for event in events):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            async with FakeJudge(Script(latency=Latency(0.01)), port=port) as again:
                while again.seen.answered < 50:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                stop.set()

    script = Script(latency=Latency(0.01))
    with hold_port() as port, FakeJudge(script, port=port) as first, FakeJudge(script) as second:
        run(scenario(first, second, port))
    assert None not in values
    assert any(isinstance(event, EndpointReturned) for event in events)


def test_a_cent_with_1024_in_flight_is_never_overspent():
    """A judgement costs about 0.0002 dollars, its worst case 0.0018: the cent ends in the midst."""
    settings = {
        "prices": {"m": {"input": 0.5, "output": 20.0}},
        "traffic": {"concurrency": 1024, "budget_usd": 0.01, "hedge": "off"},
    }
    samples = [Sample("q", f"answer {number}") for number in range(1024)]

    async def scenario(judge):
        async with Engine(configuration({"base_url": judge.url}, **settings)) as engine:
            return await engine.score_all(samples), engine.stats()

    faults = (Status(status=500, share=0.05), Reset(share=0.05))
    with FakeJudge(Script(latency=Latency(0.05), faults=faults)) as judge:
        rewards, stats = run(scenario(judge))
    kinds = {r.components["quality"].kind.value for r in rewards if r.value is None}
    assert "budget" in kinds
    assert 0 < stats.budget_spent_usd <= 0.01
    assert stats.budget_reserved_usd == 0
    cheapest_usd = 1 * 20.0 / 1e6
    assert judge.seen.answered * cheapest_usd <= stats.budget_spent_usd
    assert sum(r.value is not None for r in rewards) == judge.seen.answered


@pytest.mark.parametrize("header", ["Authorization", "api-key"])
def test_a_planted_key_is_in_no_log_record_event_error_or_file(
    tmp_path, monkeypatch, caplog, capfd, header
):
    """Through the service and its handle, where the judge knows the key and where it does not."""
    monkeypatch.setenv("PLANTED", KEY)
    caplog.set_level(logging.DEBUG)
    said, events = [], []
    faults = (Status(status=500, share=0.2), Reset(share=0.2), Refusal(share=0.2))
    azure = {"api_version": "1"} if header == "api-key" else {}

    async def scenario(name, judge):
        endpoint = {"base_url": judge.url, "api_key_env": "PLANTED"} | azure
        parts = {
            "cache": {"path": str(tmp_path / f"{name}.db")},
            "prices": {"m": {"input": 1.0, "output": 1.0}},
            "traffic": {"budget_usd": 1.0, "budget_name": name, "attempts": 3, "timeout_s": 1.0},
            "on_failure": "raise" if name == "refused" else "neutral",
        }
        settings = configuration(endpoint, **parts)
        async with Engine(settings, listener=events.append) as engine:
            for number in range(6):
                call = asyncio.create_task(engine.score(Sample("q", f"a {number}")))
                await asyncio.wait([call])
                said.append(repr(call.exception() or call.result()))
        record = tmp_path / name
        async with (
            serving(settings, ServiceSettings(port=0), record=record) as (url, _),
            HttpHub(url) as hub,
        ):
            calls = [asyncio.create_task(hub.reward(Sample("q", f"b {n}"))) for n in range(12)]
            done, _ = await asyncio.wait(calls)
            said.extend(repr(task.exception() or task.result()) for task in done)
            said.append(repr(await hub.stats()))

    hang = Hang(share=0.05, sent="half")
    with FakeJudge(Script(faults=(*faults, hang)), api_key=KEY) as judge:
        run(scenario("served", judge))
    assert judge.seen.answered > 0
    with FakeJudge(api_key="another") as judge:
        run(scenario("refused", judge))
    assert judge.seen.by_status[401] > 0
    told = [*map(repr, events), *said, caplog.text, *capfd.readouterr()]
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert len(files) >= 7
    assert not any("planted" in text for text in told)
    assert not any(b"planted" in file.read_bytes() for file in files)
