"""A run in which no judgement succeeds ends through the hub too, with the provider's words."""

import asyncio
import logging
from contextlib import AsyncExitStack

import pytest

from zerowait import Sample
from zerowait.cache import Shard
from zerowait.engine import Partition
from zerowait.errors import JudgementError
from zerowait.hub import JobHub
from zerowait.hub.shard_stats import merged_stats
from zerowait.hub.slots import SlotBalancer
from zerowait.observe.report import run_stats
from zerowait.testing import ErrorInBody, FakeJudge, Moderation, Script

pytestmark = pytest.mark.wire
WORDS = "Country, region, or territory not supported"
NEVER = Script(faults=(ErrorInBody(code=403, message=WORDS),))


def configuration(url, **traffic):
    return {
        "components": {"quality": {"judge": "q"}},
        "judges": {
            "q": {"endpoints": [{"base_url": url, "model": "m"}], "verdict": {"integer": [1, 10]}}
        },
        "traffic": {"concurrency": 8, "hedge": "off"} | traffic,
        "cache": "off",
    }


def rows(count):
    return [Sample("q", f"answer {n}", id=f"row {n}", group=f"{n}") for n in range(count)]


async def streamed(hub, samples):
    for sample in samples:  # as a trainer that hands in one trajectory after the other
        await hub.score(sample)


async def by_ticket(hub, samples):
    hub.deposit(samples)
    for sample in samples:
        await hub.redeem(sample)


async def together(hub, samples):
    await hub.score_all(samples)


@pytest.mark.parametrize("call", [streamed, by_ticket, together])
def test_every_call_of_a_hub_ends_with_the_providers_words(call, caplog):
    async def scenario(url):
        async with JobHub(configuration(url, give_up_after=30)) as hub:
            with pytest.raises(JudgementError, match=WORDS):
                await call(hub, rows(200))
            return await hub.stats()

    with FakeJudge(NEVER) as judge:
        stats = asyncio.run(asyncio.wait_for(scenario(judge.url), 60))
        assert judge.seen.requests < 200
    told = [record.message for record in caplog.records if WORDS in record.message]
    assert len(told) == 1
    assert sum(stats.reasons.values()) >= 30


def test_a_dead_judge_costs_the_shards_of_a_hub_no_more_tries_than_one():
    async def scenario(url):
        async def ask(index, request):
            return await hubs[index].answer(request)

        async with AsyncExitStack() as stack:
            hubs = [
                await stack.enter_async_context(
                    JobHub(
                        configuration(url, give_up_after=40), partition=Partition(Shard(n, 4), ask)
                    )
                )
                for n in range(4)
            ]
            balancer = SlotBalancer(8, 4)
            for n, hub in enumerate(hubs):  # 11 failures each, which is not enough for any
                await hub.score_all(rows(44)[n::4])
            for _ in range(2):
                await balancer.round(hubs)
            for hub in hubs:
                with pytest.raises(JudgementError, match=f"the first 44 judgements .*{WORDS}"):
                    await hub.score(Sample("q", "one more"))

    with FakeJudge(NEVER) as judge:
        asyncio.run(asyncio.wait_for(scenario(judge.url), 60))
        assert judge.seen.requests == 44


def test_reasons_of_shards_and_of_hubs_one_after_the_other_are_added_up():
    async def scenario(url):
        async with JobHub(configuration(url)) as hub:
            await hub.score_all(rows(20))
            return await hub.stats()

    with FakeJudge(Script(faults=(Moderation(form="deepseek", share=0.5),))) as judge:
        stats = asyncio.run(scenario(judge.url))
    [(reason, count)] = stats.reasons.items()
    assert "Content Exists Risk" in reason
    assert merged_stats([stats, stats]).reasons == {reason: 2 * count}


def test_a_run_that_was_resumed_has_the_reasons_of_both_hubs():
    class Record:
        def __init__(self, hub, **stats):
            self.hub, self.stats = hub, stats

    whole = run_stats([Record("a", reasons={"timeout": 2}), Record("b", reasons={"timeout": 5})])
    assert whole["reasons"] == {"timeout": 7}


def test_the_log_of_a_hub_is_not_flooded(caplog):
    async def scenario(url):
        async with JobHub(configuration(url, give_up_after="off")) as hub:
            await hub.score_all(rows(300))

    with caplog.at_level(logging.WARNING), FakeJudge(NEVER) as judge:
        asyncio.run(scenario(judge.url))
    assert len([record for record in caplog.records if WORDS in record.message]) == 1
