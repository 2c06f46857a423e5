"""Judges that compare siblings over real HTTP, and a group whose rows come from many workers."""

import asyncio
import random

import pytest

import zerowait
from zerowait import Engine, Sample
from zerowait.hub import Stream
from zerowait.hub.rpc import Sessions
from zerowait.testing import FakeJudge, Script, Status

PAIRS, RANK = {"pairs": "group"}, {"rank": "group"}


def config(judge, verdict, **parts):
    return {
        "components": {"style": {"judge": "q"}},
        "judges": {"q": {"endpoints": [{"base_url": judge.url, "model": "m"}], "verdict": verdict}},
        "traffic": {"hedge": "off"},
        "cache": "off",
    } | parts


def group(name, size=8):
    """Siblings whose better ones have greater numbers, in no order."""
    shuffled = random.Random(name).sample(range(size), size)
    return [
        Sample(
            f"How much is {name}?",
            f"It is {n}.",
            group=name,
            group_size=size,
            id=f"{name}/{n}",
            extra={"position": n / (size - 1)},
        )
        for n in shuffled
    ]


def positions(samples):
    return pytest.approx([sample.extra["position"] for sample in samples])


def test_every_pair_is_asked_in_both_orders():
    with FakeJudge() as judge, zerowait.open(config(judge, PAIRS)) as rewards:
        samples = group("g", 5)
        assert [reward.value for reward in rewards.score(samples)] == positions(samples)
        stats = rewards.stats()
        assert judge.seen.requests == 5 * 4
        assert (stats.comparisons, stats.inconsistent) == (10, 0)
        assert stats.judges["q"].comparisons == stats.components["style"].comparisons == 10


@pytest.mark.parametrize("prefers", ["first", "last"])
def test_a_judge_that_goes_by_position_gives_no_response_an_advantage(prefers):
    script = Script(prefers=prefers)
    with FakeJudge(script) as judge, zerowait.open(config(judge, PAIRS)) as rewards:
        got = rewards.score(group("g", 4))
        assert [reward.value for reward in got] == [0.5] * 4
        assert [reward.metrics["style/inconsistent"] for reward in got] == [1.0] * 4
        stats = rewards.stats()
        assert (stats.comparisons, stats.inconsistent) == (6, 6)


@pytest.mark.parametrize("verdict", [PAIRS | {"rounds": 2}, RANK], ids=str)
def test_a_second_run_asks_nothing_again_whatever_the_order_of_its_rows(tmp_path, verdict):
    rows = group("a") + group("b")
    with FakeJudge() as judge:
        settings = config(judge, verdict, cache={"path": str(tmp_path / "j.db")})
        with zerowait.open(settings) as rewards:
            first = rewards.score(rows)
        asked = judge.seen.requests
        with zerowait.open(settings) as rewards:
            again = rewards.score(rows[::-1])
        assert judge.seen.requests == asked > 0
    assert [reward.components for reward in again[::-1]] == [reward.components for reward in first]


def test_a_judge_that_turns_many_away_changes_no_value():
    script = Script(faults=(Status(status=503, first=1, share=0.5, retry_after_s=0.01),))
    with FakeJudge(script) as judge, zerowait.open(config(judge, PAIRS)) as rewards:
        samples = group("g", 6)
        assert [reward.value for reward in rewards.score(samples)] == positions(samples)
        assert rewards.stats().retries > 0


@pytest.mark.parametrize("verdict", [PAIRS | {"rounds": 1}, RANK], ids=str)
def test_sixty_four_groups_of_eight_are_compared_at_once(verdict):
    rows = [sample for n in range(64) for sample in group(f"g{n}")]
    random.Random(7).shuffle(rows)
    with FakeJudge() as judge, zerowait.open(config(judge, verdict)) as rewards:
        got = rewards.score(rows)
        assert all(reward.value is not None for reward in got)
        assert judge.seen.requests == (64 if verdict == RANK else 64 * 8)
        if verdict == RANK:
            assert [reward.value for reward in got] == positions(rows)


def test_rows_that_several_workers_bring_one_by_one_get_what_they_get_together():
    rows = group("a") + group("b")

    async def scenario(judge):
        async with Engine(config(judge, PAIRS)) as engine:
            together = await engine.score_all(rows)
        async with Engine(config(judge, PAIRS)) as engine:
            stream = Stream(engine, group_deadline_s=60)
            sessions = Sessions(stream.reward, heartbeat_s=10, session_timeout_s=300)
            streamed = {}

            async def worker(name, mine):
                sessions.open(name)
                for row in mine:
                    assert sessions.submit(name, [(row, rows[row])], [])
                    await asyncio.sleep(0)
                while mine:
                    for row, result in await sessions.collect(name):
                        streamed[row] = result
                        mine.remove(row)

            async with asyncio.TaskGroup() as workers:
                for n in range(4):
                    workers.create_task(worker(f"w{n}", list(range(n, len(rows), 4))))
            return together, [streamed[row] for row in range(len(rows))]

    with FakeJudge() as judge:
        together, streamed = asyncio.run(scenario(judge))
    assert [s.reward.components for s in streamed] == [r.components for r in together]
    assert [s.value for s in streamed] == [r.value for r in together] == positions(rows)


def test_a_worker_that_lost_its_session_submits_its_rows_again_and_gets_their_values():
    rows = group("g", 4)

    async def scenario(judge):
        async with Engine(config(judge, PAIRS)) as engine:
            stream = Stream(engine, group_deadline_s=60)
            sessions = Sessions(stream.reward, heartbeat_s=10, session_timeout_s=300)
            for name in ("stays", "lost", "back"):
                sessions.open(name)
            sessions.submit("stays", [(0, rows[0])], [])
            sessions.submit("lost", [(1, rows[1]), (2, rows[2])], [])
            await asyncio.sleep(0)
            sessions.close("lost")
            await asyncio.sleep(0)
            sessions.submit("back", [(n, rows[n]) for n in (1, 2, 3)], [])
            results = {}
            for name, count in (("back", 3), ("stays", 4)):
                while len(results) < count:
                    results |= dict(await sessions.collect(name))
            return [results[n].value for n in range(4)]

    with FakeJudge() as judge:
        assert asyncio.run(scenario(judge)) == positions(rows)
