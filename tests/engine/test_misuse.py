"""What people write by mistake, and the one line that they get."""

import asyncio
import threading

import pytest

import zerowait
from zerowait import ConfigError, DataError, Sample
from zerowait.errors import ClosedError, PortalMisuseError
from zerowait.events import RewardSettled
from zerowait.hub.http import HttpHub

RULE = {"components": {"answer": {"scorer": "qa_em"}}}
RIGHT = Sample("Capital?", "<answer>Paris</answer>", "Paris")
ROW = {"prompt": "Capital?", "response": "Paris"}


async def in_engine(work):
    async with zerowait.Engine(RULE) as engine:
        return await work(engine)


@pytest.mark.parametrize(
    ("call", "given", "says"),
    [
        ("score", [RIGHT], "score takes a Sample, not a list: use score_all for several"),
        ("score", ROW, "score takes a Sample, not a dict: write Sample(prompt=..., response=...)"),
        ("score", "Paris", "score takes a Sample, not a str: write Sample(prompt, response)"),
        ("score", None, "score takes a Sample, not nothing"),
        (
            "score_all",
            RIGHT,
            "score_all takes a list of Samples, not one: write [sample], or use score",
        ),
        ("score_all", ROW, "score_all takes a list of Samples, not a dict: write Sample("),
        ("score_all", "Paris", "score_all takes a list of Samples, not a str"),
        ("score_all", 7, "score_all takes a list of Samples, not a int"),
        ("score_all", [RIGHT, ROW], "row 1 is a dict, not a Sample: write Sample("),
        ("score_all", [RIGHT, None], "row 1 is nothing, not a Sample: make one of its columns"),
    ],
)
def test_an_engine_says_what_it_takes(call, given, says):
    with pytest.raises(DataError) as caught:
        asyncio.run(in_engine(lambda engine: getattr(engine, call)(given)))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("call", "given", "says"),
    [
        (
            "submit",
            ROW,
            "submit takes a Sample, not a dict: write Sample(prompt=..., response=...)",
        ),
        ("submit", [RIGHT], "submit takes a Sample, not a list: use submit_all for several"),
        ("submit_all", RIGHT, "submit_all takes a list of Samples, not one"),
        ("score", RIGHT, "score takes a list of Samples, not one: write [sample], or use submit"),
        ("score", [ROW], "row 0 is a dict, not a Sample"),
        ("score", ROW, "score takes a list of Samples, not a dict"),
    ],
)
def test_open_rewards_say_at_once_what_they_take(call, given, says):
    with zerowait.open(RULE) as rewards, pytest.raises(DataError) as caught:
        getattr(rewards, call)(given)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"prompt": 7}, "a sample's prompt has to be text, or a list of messages"),
        (
            {"prompt": None},
            "prompt has to be text, or a list of messages like {role, content}, not nothing",
        ),
        ({"prompt": ["hi"]}, "prompt has to be text, or a list of messages"),
        (
            {"response": ["a"]},
            "response has to be text, or a list of messages like {role, content}, not",
        ),
        ({"extra": None}, "extra has to be a mapping of further columns, not nothing"),
        ({"extra": "x"}, "extra has to be a mapping"),
        ({"data_source": ["a"]}, "data_source has to be text, not a list"),
        ({"split": None}, "split has to be text, not nothing"),
        ({"group": ["a"]}, "group has to be text, not a list"),
        ({"id": {}}, "id has to be text, not a dict"),
        ({"group_size": "4"}, "group_size must be at least 1 and a whole number, not '4'"),
        ({"group_size": 1.5}, "group_size must be at least 1 and a whole number, not 1.5"),
        ({"step": "3"}, "step has to be a whole number, not a str"),
        ({"response_tokens": "9"}, "response_tokens must be at least 0"),
    ],
)
def test_a_sample_of_the_wrong_types_names_the_field(fields, says):
    with pytest.raises(DataError) as caught:
        Sample(**{"prompt": "p", "response": "r", **fields})
    assert says in str(caught.value)


@pytest.mark.parametrize("config", [None, 7, [RULE], RULE["components"].values()])
def test_a_configuration_that_is_none_says_what_it_may_be(config):
    with pytest.raises(ConfigError, match="a path, a mapping or a RewardConfig"):
        zerowait.open(config)


def test_an_engine_whose_loop_has_ended_says_so_and_lets_go():
    engine = zerowait.Engine({"components": {"answer": {"scorer": "math"}}})
    asyncio.run(engine.__aenter__())
    for call in (engine.score(RIGHT), engine.score_all([RIGHT])):
        with pytest.raises(ClosedError, match="the event loop that this engine was opened on"):
            asyncio.run(asyncio.wait_for(call, 30))
    with pytest.raises(ClosedError, match=r"has ended.*zerowait\.open"):
        asyncio.run(asyncio.wait_for(engine.aclose(), 30))
    asyncio.run(engine.aclose())  # closed by now


def test_an_engine_is_used_on_its_own_loop():
    async def elsewhere(engine):
        def work():
            with pytest.raises(PortalMisuseError, match="opened on another event loop"):
                asyncio.run(engine.score(RIGHT))
            with pytest.raises(PortalMisuseError, match="opened on another event loop"):
                asyncio.run(engine.aclose())

        await asyncio.to_thread(work)
        return await engine.score(RIGHT)

    assert asyncio.run(in_engine(elsewhere)).value == 1.0


def test_an_engine_after_its_end_says_so():
    engine = zerowait.Engine(RULE)

    async def scenario():
        with pytest.raises(ClosedError, match="not open"):
            await engine.score(RIGHT)
        async with engine:
            with pytest.raises(ClosedError, match="opened once"):
                await engine.__aenter__()
        with pytest.raises(ClosedError, match="not open"):
            await engine.score_all([RIGHT])
        with pytest.raises(ClosedError, match="opened once"):
            await engine.__aenter__()

    asyncio.run(scenario())


def test_a_future_can_be_awaited_and_more_than_once():
    async def cell(rewards):
        future = rewards.submit(RIGHT)
        return [(await future).value, (await future).value, future.result().value]

    with zerowait.open(RULE) as rewards:
        assert asyncio.run(cell(rewards)) == [1.0] * 3


def test_nobody_waits_for_the_loop_on_its_own_thread():
    caught = []
    done = threading.Event()

    def told(event):
        if isinstance(event, RewardSettled) and not done.is_set():
            done.set()
            for wait in (
                lambda: rewards.submit(RIGHT).result(),
                lambda: rewards.submit(RIGHT).exception(),
                lambda: rewards.score([RIGHT]),
            ):
                try:
                    wait()
                except PortalMisuseError as error:
                    caught.append(str(error))

    with zerowait.open(RULE, listener=told) as rewards:
        assert rewards.submit(RIGHT).result(60).value == 1.0
        assert done.wait(60)
    assert len(caught) == 3
    assert all("waits for itself" in line for line in caught)


@pytest.mark.parametrize("url", [7, None, {"url": "http://h"}, "127.0.0.1:8002"])
def test_a_hub_says_what_it_takes(url):
    with pytest.raises(ConfigError, match=r"URL, not a|must start with http"):
        HttpHub(url)


@pytest.mark.parametrize("config", [{}, None, RULE, ["reward.yaml"]])
def test_a_ray_hub_says_what_it_takes(config):
    from zerowait.hub.ray import RayHub

    with pytest.raises(ConfigError, match=r"RayHub takes the path of a reward\.yaml, not a"):
        RayHub(config, record=None)


@pytest.mark.parametrize("name", ["", None, 7])
def test_a_ray_hub_needs_a_name(name):
    from zerowait.hub.ray import RayHub

    with pytest.raises(ConfigError, match="name of a RayHub must be a text that is not empty"):
        RayHub("reward.yaml", record=None, name=name)
