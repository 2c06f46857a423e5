"""Trainers outside Ray share one hub over HTTP: real processes, real kills."""

import asyncio
import json
import signal
import socket
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import asynccontextmanager, closing, contextmanager

import msgspec
import pytest

from zerowait import ConfigError, DataError, JudgementError, Sample
from zerowait.client import Secret
from zerowait.errors import ClosedError, HubLostError
from zerowait.hub.http import HttpHub
from zerowait.hub.http import hub as http_hub
from zerowait.hub.http.service import serving
from zerowait.hub.http.settings import ServiceSettings
from zerowait.testing import FakeJudge, Hang, Latency, Script, Status

RULE = {"components": {"answer": {"scorer": "qa_em"}}}
RIGHT = Sample("Capital?", "<answer>Paris</answer>", "Paris")
IN_TIME_S = 60


def judged(judge, cache="off", **traffic):
    return {
        "components": {"quality": {"judge": "q"}},
        "judges": {
            "q": {
                "endpoints": [{"base_url": judge.url, "model": "m"}],
                "verdict": {"integer": [1, 10]},
            }
        },
        "traffic": {"attempts": 1, "hedge": "off"} | traffic,  # a copy of what is late counts, too
        "cache": cache,
    }


def rows(count, start=0):
    return [Sample("q", f"answer {n}") for n in range(start, start + count)]


async def rewards(hub, samples):
    async with asyncio.TaskGroup() as tasks:
        started = [tasks.create_task(hub.reward(sample)) for sample in samples]
    return [task.result().value for task in started]


async def until(true):
    while not true():  # noqa: ASYNC110 - the other side of a socket has no event
        await asyncio.sleep(0.005)


@asynccontextmanager
async def hub_over(config=RULE, *, token=None, **settings):
    """A handle on a service on this loop."""
    known = None if token is None else Secret(token)
    async with (
        serving(config, ServiceSettings(port=0, token=known, **settings)) as (url, _),
        HttpHub(url, token=token) as hub,
    ):
        yield hub


def run(scenario):
    return asyncio.run(asyncio.wait_for(scenario, IN_TIME_S))


def test_rewards_and_statistics_are_those_of_the_hub():
    async def scenario():
        async with hub_over() as hub:
            streamed = await hub.reward(RIGHT)
            return streamed, await hub.stats()

    streamed, stats = run(scenario())
    assert (streamed.value, streamed.substitute_from) == (1.0, "")
    assert streamed.reward.components["answer"].value == 1.0
    assert stats.settled == 1


def test_a_thousand_rewards_wait_over_one_connection():
    async def scenario(judge):
        async with hub_over(judged(judge, concurrency=64)) as hub:
            return await rewards(hub, rows(1000)), (await hub.stats()).asked

    with FakeJudge() as judge:
        values, asked = run(scenario(judge))
    assert len(values) == asked == 1000
    assert judge.seen.peak_in_flight <= 64


def test_slow_judgements_are_waited_for_side_by_side():
    """None is answered before all of them are asked: one after the other they would never come."""

    async def scenario(judge):
        async with hub_over(judged(judge, concurrency=16)) as hub:
            calls = [asyncio.create_task(hub.reward(row)) for row in rows(16)]
            await until(lambda: judge.seen.in_flight == 16)
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)

    with FakeJudge(Script(faults=(Hang(always=True),))) as judge:
        run(scenario(judge))


def test_errors_are_those_that_the_hub_raised():
    async def scenario(judge):
        async with hub_over(judged(judge) | {"on_failure": "raise"}) as hub:
            with pytest.raises(JudgementError, match="http_error"):
                await hub.reward(RIGHT)
        shaped = {"components": RULE["components"] | {"length": {"shape": "median_band"}}}
        async with hub_over(shaped) as hub:
            with pytest.raises(DataError, match="group"):
                await hub.reward(msgspec.structs.replace(RIGHT, response_tokens=3))

    with FakeJudge(Script(faults=(Status(status=400, always=True),))) as judge:
        run(scenario(judge))


def test_validation_is_paid_from_its_own_budget_and_training_goes_on_without_it():
    """A training sample that asks the very same is answered; a validation has no number left."""
    prices = {"prices": {"m": {"input": 1.0, "output": 10.0}}}
    training = rows(20)
    validation = [msgspec.structs.replace(sample, split="validation") for sample in training]

    async def scenario(judge):
        config = judged(judge, budget_usd=5, validation_budget_usd=0.0) | prices
        async with hub_over(config) as hub:
            both = await rewards(hub, [*validation, *training])
            return both[:20], both[20:], await hub.stats()

    with FakeJudge() as judge:
        lost, values, stats = run(scenario(judge))
    assert lost == [None] * 20
    assert None not in values
    assert stats.budget_spent_usd > 0
    assert (stats.validation_budget_usd, stats.validation_budget_spent_usd) == (0, 0)


def test_a_sample_that_is_too_long_fails_alone():
    async def scenario():
        async with hub_over(max_body_bytes=4000) as hub:
            with pytest.raises(DataError, match="longer than the hub's 4000 bytes"):
                await hub.reward(Sample("p", "x" * 4000))
            return (await hub.reward(RIGHT)).value

    assert run(scenario()) == 1.0


def test_the_token_opens_and_another_is_a_configuration_error():
    async def scenario():
        settings = ServiceSettings(port=0, token=Secret("sesame"))
        async with serving(RULE, settings) as (url, _):
            async with HttpHub(url, token="sesame") as hub:
                assert (await hub.reward(RIGHT)).value == 1.0
                assert (await hub.stats()).settled == 1
            for token in (None, "other"):
                async with HttpHub(url, token=token) as hub:
                    for call in (hub.reward(RIGHT), hub.stats()):
                        with pytest.raises(ConfigError, match="does not know this token"):
                            await call

    run(scenario())


def test_a_url_that_is_no_hub_is_a_configuration_error():
    async def scenario(judge):
        async with HttpHub(judge.url) as hub:
            with pytest.raises(ConfigError, match="seems to be no hub"):
                await hub.reward(RIGHT)

    with pytest.raises(ConfigError, match="http://"):
        HttpHub("localhost:8002")
    with FakeJudge() as judge:
        run(scenario(judge))


def test_an_unreachable_service_is_an_error_after_patience_s():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"

        async def scenario():
            async with HttpHub(url, patience_s=0.01) as hub:
                with pytest.raises(HubLostError, match=r"gone for 0.01 s"):
                    await hub.reward(RIGHT)
                with pytest.raises(HubLostError, match="does not answer"):
                    await hub.stats()

        run(scenario())


def test_a_reward_that_never_comes_is_an_error_when_its_deadline_ends():
    async def scenario(judge):
        async with (
            serving(judged(judge), ServiceSettings(port=0)) as (url, _),
            HttpHub(url, deadline_s=0.1) as hub,
        ):
            with pytest.raises(HubLostError, match=r"no reward in 0.1 s"):
                await hub.reward(RIGHT)

    with FakeJudge(Script(faults=(Hang(always=True),))) as judge:
        run(scenario(judge))


def test_a_service_that_hangs_is_noticed(monkeypatch):
    """It takes connections, as the system does for a stopped process, and says nothing."""
    monkeypatch.setattr(http_hub, "_CONNECT_TIMEOUT_S", 0.05)

    async def scenario():
        with socket.create_server(("127.0.0.1", 0)) as deaf:
            url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
            async with HttpHub(url, patience_s=0.1) as hub:
                with pytest.raises(HubLostError, match="gone for"):
                    await hub.reward(RIGHT)

    run(scenario())


def test_cancelling_a_caller_cancels_its_call_in_the_hub():
    async def scenario(judge):
        async with hub_over(judged(judge, concurrency=1)) as hub:
            calls = [asyncio.create_task(hub.reward(row)) for row in rows(3)]
            await until(lambda: judge.seen.in_flight == 1)
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)
            while (await hub.stats()).waiting:  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    with FakeJudge(Script(faults=(Hang(always=True),))) as judge:
        run(scenario(judge))
        assert judge.seen.requests == 1


def test_a_closed_handle_says_so_to_those_who_wait_and_to_those_who_come():
    async def scenario(judge):
        async with hub_over(judged(judge)) as hub:
            call = asyncio.create_task(hub.reward(RIGHT))
            await until(lambda: judge.seen.in_flight == 1)
            await hub.aclose()
            await hub.aclose()
            for waiting in (call, hub.reward(RIGHT), hub.stats()):
                with pytest.raises(ClosedError):
                    await waiting

    with FakeJudge(Script(faults=(Hang(always=True),))) as judge:
        run(scenario(judge))


CLIENT = """
import asyncio, json, sys
from zerowait import Sample
from zerowait.hub.http import HttpHub

async def main():
    url, start, end = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    async with HttpHub(url, patience_s=60) as hub, asyncio.TaskGroup() as tasks:
        rows = [
            tasks.create_task(hub.reward(Sample("q", f"answer {n}"))) for n in range(start, end)
        ]
    print(json.dumps([row.result().value for row in rows]))

asyncio.run(main())
"""


@contextmanager
def served(config, port=0, *options):
    """A process with the service: the process and its URL."""
    main = "from zerowait.cli import main; main()"
    command = [
        sys.executable,
        "-c",
        main,
        "serve",
        "-c",
        str(config),
        "--port",
        str(port),
        *options,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process, process.stdout.readline().split()[-1]
        finally:
            process.kill()


@pytest.fixture
def client():
    """Starts a process that asks for rows; none is left behind, whatever the test does."""
    started = []

    def start_one(url, start, end):
        command = [sys.executable, "-c", CLIENT, url, str(start), str(end)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start_one
    for process in started:
        process.kill()
        process.communicate()


def finished(process):
    said, _ = process.communicate(timeout=IN_TIME_S)
    assert process.returncode == 0
    return json.loads(said)


def health(url):
    try:
        with urllib.request.urlopen(f"{url}/healthz") as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def replies(folder):
    with closing(sqlite3.connect(folder / "j.db")) as cache:
        return [json.loads(reply) for (reply,) in cache.execute("SELECT reply FROM replies")]


def committed(folder):
    return len(replies(folder))


def written(tmp_path, judge, concurrency):
    path = tmp_path / "reward.yaml"
    settings = judged(judge, {"path": str(tmp_path / "j.db")}, concurrency=concurrency)
    path.write_text(json.dumps(settings))
    return path


def test_two_processes_share_limit_single_flight_and_cache(tmp_path, client):
    with FakeJudge(Script(latency=Latency(0.05))) as judge:
        with served(written(tmp_path, judge, 8)) as (_, url):
            first, second = client(url, 0, 60), client(url, 30, 90)
            values, others = finished(first), finished(second)
            again = finished(client(url, 0, 90))
        assert 1 < judge.seen.peak_in_flight <= 8
        assert judge.seen.distinct_bodies == 90
        assert set(judge.seen.asked_per_body.values()) == {1}
    assert values[30:] == others[:30]
    assert again == values + others[30:]


def test_a_killed_service_is_started_again_and_nothing_committed_is_asked_twice(
    tmp_path, client, hold_port, gate
):
    held = gate(50)
    with hold_port() as port, FakeJudge(hold=held) as judge:
        config = written(tmp_path, judge, 8)
        with served(config, port) as (process, url):
            clients = [client(url, 0, 100), client(url, 100, 200)]
            asyncio.run(until(lambda: (committed(tmp_path), judge.seen.in_flight) == (50, 8)))
            process.kill()
            process.wait()
        asyncio.run(until(lambda: judge.seen.in_flight == 0))
        held.open()
        with served(config, port) as (_, same_url):
            assert same_url == url
            assert [len(finished(one)) for one in clients] == [100, 100]
        assert judge.seen.requests == 50 + 8 + 150
        assert judge.seen.repeats == 0


def test_two_processes_and_a_service_that_is_killed_never_spend_more_than_one_budget(
    tmp_path, client, hold_port, gate
):
    """A cent, with far more in flight than it pays for; what was reserved at the kill is spent."""
    usd_per_token, nano, held = 25e-6, 10**9, gate(20)
    with hold_port() as port, FakeJudge(hold=held) as judge:
        settings = judged(
            judge, {"path": str(tmp_path / "j.db")}, concurrency=1024, budget_usd=0.01
        )
        settings["judges"]["q"]["max_tokens"] = 10
        settings["judges"]["q"]["verdict"]["structured"] = "off"  # replies of one length
        settings["prices"] = {"m": {"input": 0, "output": usd_per_token * 1e6}}
        settings["on_failure"] = {"budget": {"value": 0}}
        config = tmp_path / "reward.yaml"
        config.write_text(json.dumps(settings))
        with served(config, port) as (process, url):
            clients = [client(url, 0, 600), client(url, 600, 1200)]
            asyncio.run(until(lambda: committed(tmp_path) == 20 and judge.seen.in_flight > 0))
            process.kill()
            process.wait()
        held.open()
        with served(config, port):
            values = [*finished(clients[0]), *finished(clients[1])]
        asked = judge.seen.requests
    with sqlite3.connect(tmp_path / "spend.db") as ledger:
        spent, reserved = ledger.execute("SELECT spent, reserved FROM budgets").fetchone()
    (tokens,) = {reply["usage"]["completion_tokens"] for reply in replies(tmp_path)}
    assert asked * tokens * usd_per_token * nano <= spent + reserved <= 0.01 * nano
    assert 20 <= sum(value != 0 for value in values) <= asked < 600
    assert len(values) == 1200


def test_an_interrupted_service_answers_what_was_asked_and_ends(tmp_path, client, gate):
    held = gate()
    with FakeJudge(hold=held) as judge:
        with served(written(tmp_path, judge, 8)) as (process, url):
            one = client(url, 0, 8)
            asyncio.run(until(lambda: judge.seen.in_flight == 8))
            process.send_signal(signal.SIGTERM)
            asyncio.run(until(lambda: health(url) == 503))
            held.open()
            assert len(finished(one)) == 8
            assert process.wait(IN_TIME_S) == 0
        assert judge.seen.answered == 8


def test_a_second_interrupt_ends_at_once(tmp_path, client):
    with (
        FakeJudge(Script(faults=(Hang(always=True),))) as judge,
        served(written(tmp_path, judge, 8), 0, "--drain-s", "600") as (process, url),
    ):
        client(url, 0, 8)
        asyncio.run(until(lambda: judge.seen.in_flight == 8))
        process.send_signal(signal.SIGINT)
        asyncio.run(until(lambda: health(url) == 503))
        process.send_signal(signal.SIGTERM)
        assert process.wait(IN_TIME_S) == 0  # sooner than its drain
