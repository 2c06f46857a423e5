"""Several engines as one: every judgement is made by the owner of its key, whatever its kind."""

import asyncio
import json
import pickle
from collections import Counter

import pytest

from zerowait import Sample
from zerowait.cache import Shard
from zerowait.client import Reply
from zerowait.engine import Engine, Partition
from zerowait.hub.shard_stats import merged_stats
from zerowait.testing import FakeJudge, Length, Script, virtually
from zerowait.types import Abstain

COUNT = 3


class Wire:
    """Answers every request with `content`, after a second."""

    def __init__(self, content):
        self.content = content
        self.bodies = Counter()

    async def send(self, request, *, timeout_s):
        self.bodies[request.body] += 1
        await asyncio.sleep(1)
        body = {"choices": [{"message": {"content": self.content}}], "model": "m"}
        return Reply(200, {}, json.dumps(body).encode())

    async def aclose(self):
        pass


def configuration(tmp_path, verdict, **judge):
    (tmp_path / "verdict.json").write_text(
        json.dumps(
            {
                "type": "object",
                "properties": {"why": {"type": "string"}, "score": {"type": "number"}},
                "required": ["score"],
            }
        )
    )
    base = {"endpoints": [{"base_url": "http://judge/v1", "model": "m"}], "verdict": verdict}
    return {
        "components": {"quality": {"judge": "q"}},
        "judges": {"q": base | judge},
        "traffic": {"concurrency": 64, "hedge": "off"},
        "cache": "off",
    }


class Together:
    """Engines in one process that reach each other as shards do: by pickled messages."""

    def __init__(self, settings, wire):
        self.asked = Counter()
        self.engines = [
            Engine(settings, transport=wire, partition=Partition(Shard(index, COUNT), self.ask))
            for index in range(COUNT)
        ]

    async def ask(self, index, ask):
        self.asked[index] += 1
        answer = await self.engines[index].answer(pickle.loads(pickle.dumps(ask)))
        return pickle.loads(pickle.dumps(answer))

    async def __aenter__(self):
        for engine in self.engines:
            await engine.__aenter__()
            engine.endpoint_states.divide(20)
        return self

    async def __aexit__(self, *_):
        for engine in self.engines:
            await engine.aclose()

    async def score(self, samples):
        """Each group at one engine, as a hub has it."""
        async with asyncio.TaskGroup() as tasks:
            found = [
                tasks.create_task(self.engines[int(sample.group) % COUNT].score(sample))
                for sample in samples
            ]
        return [task.result().components["quality"] for task in found]


def rows(groups, size=4):
    return [
        Sample("q", f"answer {n}", group=str(group), group_size=size, extra={"reference": "r"})
        for group in range(groups)
        for n in range(size)
    ]


@pytest.mark.parametrize(
    ("verdict", "content", "judge"),
    [
        ({"integer": [1, 10]}, "Score: 7", {}),
        ({"choice": ["yes", "no"]}, "no", {}),
        ({"schema": "verdict.json", "value": "score"}, '{"why": "x", "score": 0.5}', {}),
        ({"integer": [1, 10]}, "Score: 7", {"votes": {"n": 3}, "temperature": 1.0}),
        ({"pairs": "group"}, "Better: first", {}),
        ({"pairs": "reference"}, "Better: first", {}),
        ({"rank": "group"}, "no order", {}),
    ],
    ids=lambda value: str(value)[:24],
)
def test_shards_find_what_one_engine_finds_and_ask_each_thing_once(
    tmp_path, monkeypatch, verdict, content, judge
):
    monkeypatch.chdir(tmp_path)
    settings, samples = configuration(tmp_path, verdict, **judge), rows(6)
    alone, spread = Wire(content), Wire(content)

    async def one():
        async with Engine(settings, transport=alone) as engine, asyncio.TaskGroup() as tasks:
            found = [tasks.create_task(engine.score(sample)) for sample in samples]
        return [task.result().components["quality"] for task in found]

    async def several():
        async with Together(settings, spread) as together:
            outcomes = await together.score(samples)
            return outcomes, together.asked, merged_stats([e.stats() for e in together.engines])

    expected = virtually(one())[0]
    outcomes, asked, stats = virtually(several())[0]
    assert outcomes == expected
    assert spread.bodies.keys() == alone.bodies.keys()
    assert set(spread.bodies.values()) <= {1, judge.get("votes", {}).get("n", 1)}
    assert sum(asked.values()) > 0
    assert stats.requests == sum(spread.bodies.values())
    assert stats.abstained == sum(isinstance(outcome, Abstain) for outcome in outcomes)


def test_a_truncated_answer_is_asked_for_at_length_by_its_owner(tmp_path):
    with FakeJudge(Script(faults=(Length(cured_at=2048),))) as judge:
        settings = configuration(tmp_path, {"integer": [1, 10]})
        settings["judges"]["q"]["endpoints"][0]["base_url"] = judge.url

        async def scenario():
            async with Together(settings, None) as together:
                return await together.score(rows(4))

        outcomes = asyncio.run(asyncio.wait_for(scenario(), 60))
    assert not any(isinstance(outcome, Abstain) for outcome in outcomes)
