"""The hub in one process: its rewards with and without substitutes, and its record."""

import asyncio

import msgspec
import pytest

from zerowait import Sample
from zerowait.errors import ClosedError, ConfigError
from zerowait.hub import JobHub, read_rewards, read_stats
from zerowait.observe import read_report
from zerowait.testing import virtually

CONFIG = {"components": {"answer": {"scorer": "qa_em"}}}
RIGHT = Sample("Capital of France?", "<answer>Paris</answer>", "Paris")
WRONG = Sample("Capital of France?", "<answer>Rome</answer>", "Paris", step=2)


def test_rewards_of_every_call_are_recorded(tmp_path):
    async def scenario():
        async with JobHub(CONFIG, record=tmp_path) as hub:
            one = await hub.score(RIGHT)
            both = await hub.score_all([RIGHT, WRONG])
            streamed = await hub.reward(WRONG)
            return [one.value, *(reward.value for reward in both), streamed.value]

    values = asyncio.run(scenario())
    assert values == [1, 1, 0, 0]
    assert [record.trained_on for record in read_rewards(tmp_path)] == values


def test_it_can_be_closed_twice(tmp_path):
    async def scenario():
        async with JobHub(CONFIG, record=tmp_path) as hub:
            await hub.score(RIGHT)
            await hub.aclose()

    asyncio.run(scenario())
    assert len(list(read_rewards(tmp_path))) == 1


def test_a_hub_whose_record_cannot_be_made_leaves_no_engine_open(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    hub = JobHub(CONFIG, record=tmp_path / "file" / "run")

    async def scenario():
        with pytest.raises(ConfigError, match="the record"):
            await hub.__aenter__()
        with pytest.raises(ClosedError):
            await hub.score(RIGHT)

    asyncio.run(scenario())


SHAPED = CONFIG | {
    "components": CONFIG["components"] | {"length": {"shape": "median_band"}},
    "traffic": {"group_deadline_s": 600},
}


@pytest.mark.parametrize(
    "deposited", [True, False], ids=["deposited", "unknown to a restarted hub"]
)
def test_redeeming_waits_for_no_sibling_whose_rollout_failed(deposited):
    """The trainer knows how many responses a prompt has when all of its rollouts have ended."""

    async def scenario():
        group = [
            msgspec.structs.replace(
                RIGHT, id=f"u_{n}", group="u", group_size=4, response_tokens=tokens
            )
            for n, tokens in enumerate((10, 10, 100))
        ]
        async with JobHub(SHAPED) as hub:
            if deposited:
                hub.deposit(group)
                await asyncio.sleep(1)
            async with asyncio.TaskGroup() as tasks:
                fetched = [tasks.create_task(hub.redeem(row, of=3)) for row in group]
            return [task.result().value for task in fetched], len(hub._tickets)

    (values, still_open), elapsed_s = virtually(scenario())
    assert values == [1, 1, 0]
    assert still_open == 0
    assert elapsed_s < 10


def test_a_ticket_that_a_killed_hub_had_judged_is_on_the_record_once(tmp_path):
    async def scenario():
        for _ in range(2):  # a restarted hub judges again what is redeemed
            async with JobHub(CONFIG, record=tmp_path) as hub:
                row = msgspec.structs.replace(RIGHT, id="u_0")
                hub.deposit([row])
                await hub.redeem(row)

    asyncio.run(scenario())
    assert [record.ticket for record in read_rewards(tmp_path)] == ["train/u_0"]


@pytest.mark.parametrize("steps", [1, 3])
def test_the_counters_on_the_record_cover_all_rewards_though_the_hub_is_killed(steps, tmp_path):
    """Ray kills its actors with the job: no one closes them."""

    async def scenario():
        hub = JobHub(CONFIG, record=tmp_path)
        await hub.__aenter__()
        for step in range(steps):
            rows = [Sample("q", f"<answer>{n}</answer>", "7", step=step) for n in range(12)]
            async with asyncio.TaskGroup() as tasks:
                for row in rows:
                    tasks.create_task(hub.reward(row))
            await asyncio.sleep(0.01)
        async with asyncio.timeout(60):
            while read_report(tmp_path).stats.get("settled") != 12 * steps:  # noqa: ASYNC110 - a file
                await asyncio.sleep(0.05)
        report = read_report(tmp_path)  # as if it had been killed here
        lines = len(list(read_stats(tmp_path)))
        await hub.aclose()
        return report, lines

    report, lines = asyncio.run(scenario())
    assert sum(step.rows for step in report.training) == report.stats["settled"] == 12 * steps
    assert lines <= 4 * steps + 2  # one a step, and one each second
