"""`zerowait.connect`: the calls of `zerowait.open` over a service."""

import asyncio
import pickle
import socket
import threading
from contextlib import contextmanager

import pytest

import zerowait
from zerowait import ConfigError, DataError, JudgementError, Sample
from zerowait.client import Secret
from zerowait.engine.portal import Portal
from zerowait.errors import HubLostError
from zerowait.hub.http.service import serving
from zerowait.hub.http.settings import ServiceSettings
from zerowait.testing import FakeJudge, Script, Status

RULE = {"components": {"answer": {"scorer": "qa_em"}}}
RIGHT = Sample("Capital?", "<answer>Paris</answer>", "Paris")
WRONG = Sample("Capital?", "<answer>Rome</answer>", "Paris")


@contextmanager
def service(config=RULE, **settings):
    """The URL of a service in this process."""
    with Portal("service") as portal:
        running = serving(config, ServiceSettings(**{"port": 0, **settings}))
        url, _ = portal.call(running.__aenter__)
        try:
            yield url
        finally:
            portal.call(lambda: running.__aexit__(None, None, None))


def judged(judge, **settings):
    return {
        "components": {"quality": {"judge": "q"}},
        "judges": {
            "q": {
                "endpoints": [{"base_url": judge.url, "model": "m"}],
                "verdict": {"integer": [1, 10]},
            }
        },
        "traffic": {"attempts": 1},
        "cache": "off",
    } | settings


def test_a_connection_has_the_calls_of_open_and_gives_the_same_rewards():
    rows = [RIGHT, WRONG] * 20
    with service() as url, zerowait.connect(url) as there, zerowait.open(RULE) as here:
        assert there.score(rows) == here.score(rows)
        assert there.submit(RIGHT).result() == here.submit(RIGHT).result()
        assert there.submit_all(rows).result() == here.submit_all(rows).result()
        assert there.stats().submitted == 81
        calls = {name for name in dir(here) if not name.startswith("_")}
        assert calls == {name for name in dir(there) if not name.startswith("_")}


def test_each_reward_is_told_with_its_index():
    told = {}
    with service() as url, zerowait.connect(url) as rewards:
        scored = rewards.score([RIGHT, WRONG] * 50, on_reward=told.__setitem__)
    assert [told[index] for index in range(100)] == scored


def test_a_future_may_be_awaited_and_used_from_many_threads():
    with service() as url, zerowait.connect(url) as rewards:

        async def scenario():
            return (await rewards.submit(RIGHT)).value

        values = []
        threads = [
            threading.Thread(target=lambda: values.append(asyncio.run(scenario())))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert values == [1.0] * 8


def test_groups_are_kept_whole_and_a_name_may_come_again():
    """A shape is relative to its group: a group that was divided would have other values."""
    config = RULE | {
        "components": {
            "answer": {"scorer": "qa_em"},
            "short": {"shape": "group_linear", "coefficient": 0.5},
        }
    }
    rows = [
        Sample(
            "p", "<answer>Paris</answer>" + "." * n, "Paris", group=f"g{n % 9}", response_tokens=n
        )
        for n in range(90)
    ]
    with service(config) as url, zerowait.connect(url) as there, zerowait.open(config) as here:
        local = [reward.value for reward in here.score(rows)]
        for _ in range(2):
            assert [reward.value for reward in there.score(rows)] == local


def test_a_dropped_group_is_dropped_as_a_whole():
    fails = Status(status=500, share=0.2, always=True)
    with FakeJudge(Script(faults=(fails,))) as judge:
        config = judged(judge, on_failure={"default": "drop_group", "quorum": 1.0})
        rows = [Sample("p", f"response {n}", group=f"g{n % 10}") for n in range(40)]
        with service(config) as url, zerowait.connect(url) as rewards:
            scored = rewards.score(rows)
    policies = [{scored[n].policy for n in range(g, 40, 10)} for g in range(10)]
    assert {frozenset(each) for each in policies} == {frozenset({""}), frozenset({"drop_group"})}


def test_errors_are_those_of_open():
    with service() as url, zerowait.connect(url) as rewards:
        with pytest.raises(DataError, match="takes a Sample, not a dict"):
            rewards.submit({"prompt": "p"})
        with pytest.raises(DataError, match="takes a list of Samples"):
            rewards.score(RIGHT)
        with pytest.raises(ConfigError, match="deadline_s"):
            rewards.score([RIGHT], deadline_s=-1)
        with pytest.raises(TypeError, match="connect there"):
            pickle.dumps(rewards)
    with FakeJudge(Script(faults=(Status(status=500),))) as judge:
        config = judged(judge, on_failure="raise")
        with (
            service(config) as url,
            zerowait.connect(url) as rewards,
            pytest.raises(JudgementError, match="500"),
        ):
            rewards.score([RIGHT, WRONG])


def test_a_token_is_asked_for_and_never_shown():
    with service(token=Secret("planted-key")) as url:
        with pytest.raises(ConfigError, match="does not know this token") as refused:
            zerowait.connect(url, token="another-key")
        assert "another-key" not in str(refused.value)
        with zerowait.connect(url, token="planted-key") as rewards:
            assert rewards.score([RIGHT])[0].value == 1.0
            assert "planted-key" not in repr(vars(rewards))


def test_nothing_at_the_address_is_said_at_once():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(HubLostError, match=f"127.0.0.1:{port} does not answer"):
        zerowait.connect(f"http://127.0.0.1:{port}")
