"""A request that fails while others are answered fails for reasons of its own."""

import asyncio
import time

import msgspec
import pytest

from zerowait import Engine, Sample, Score
from zerowait.events import EndpointEjected, LimitChanged
from zerowait.hub import JobHub
from zerowait.testing import FakeJudge, Hang, Latency, Reset, Script, Status

ROWS = 400
TOO_LARGE = "Request too large for this model"
QUICK = Latency(0.03, 0.3)


def configuration(judges, **traffic):
    return {
        "components": {"quality": {"judge": "q"}},
        "judges": {
            "q": {
                "endpoints": [{"base_url": judge.url, "model": "m"} for judge in judges],
                "verdict": {"integer": [1, 10]},
            }
        },
        "traffic": traffic,
        "cache": "off",
    }


def samples():
    return [Sample("What is asked?", f"answer {number}") for number in range(ROWS)]


async def scored(judges, events, **traffic):
    async with Engine(configuration(judges, **traffic), listener=events.append) as engine:
        began_s = time.monotonic()
        rewards = await engine.score_all(samples())
        took_s = time.monotonic() - began_s
    return [reward.components["quality"] for reward in rewards], took_s


def ejections(events):
    """A machine that is too busy to connect within ten seconds is not meant."""
    ejected = [event.why for event in events if isinstance(event, EndpointEjected)]
    return [why for why in ejected if why != "no connection in time"]


OWN = [
    Status(status=429, share=0.01, always=True, message=TOO_LARGE),
    Status(status=429, share=0.01, always=True, message=TOO_LARGE, retry_after_s=0.5),
    Status(status=500, share=0.02, always=True, message=TOO_LARGE),
    Status(status=502, share=0.02, always=True, message=TOO_LARGE),
    Status(status=503, share=0.02, always=True, message=TOO_LARGE),
    Status(status=529, share=0.02, always=True, message=TOO_LARGE),
]


@pytest.mark.parametrize("endpoints", [1, 2])
@pytest.mark.parametrize("fault", OWN, ids=lambda fault: f"{fault.status} {fault.retry_after_s}")
def test_what_is_refused_for_its_own_sake_moves_neither_limit_nor_breaker(fault, endpoints):
    script = Script(faults=(fault,), latency=QUICK)
    events = []
    with FakeJudge(script) as first, FakeJudge(script) as second:
        outcomes, took_s = asyncio.run(
            scored([first, second][:endpoints], events, deadline_s=300.0)
        )
    failed = [outcome for outcome in outcomes if not isinstance(outcome, Score)]
    assert 1 <= len(failed) <= 20
    assert all(TOO_LARGE in outcome.detail for outcome in failed)
    assert not ejections(events)
    limits = [event.after for event in events if isinstance(event, LimitChanged)]
    assert min(limits, default=32) >= 24
    assert took_s <= 100.0  # a third of the deadline, however slow the machine


def test_requests_that_break_their_connection_cost_nobody_else_anything():
    """Each has an answer to another one behind it; three in a row would be a dead endpoint."""
    events = []

    async def main():
        async with Engine(configuration([judge], attempts=1)) as engine:
            values = [(await engine.score(row)).value for row in samples()[:150]]
        pairs = list(zip(samples(), values, strict=False))
        breaking = [row for row, value in pairs if value is None][:5]
        sound = [row for row, value in pairs if value is not None]
        given = configuration([judge], deadline_s=60.0, attempts=3)
        async with Engine(given, listener=events.append) as engine:
            beside = asyncio.create_task(engine.score_all(sound))
            broken = []
            for row in breaking:
                broken.append(await engine.score(row))
                await engine.score(sound[0])
            return broken, await beside

    fault = Reset(share=0.1, always=True, sent="nothing")
    with FakeJudge(Script(faults=(fault,))) as judge:
        broken, beside = asyncio.run(main())
    assert [reward.value for reward in broken] == [None] * 5
    assert None not in [reward.value for reward in beside]
    assert not ejections(events)


def test_requests_that_are_never_answered_cost_nobody_else_anything(leaping):
    events = []

    async def main(leap):
        given = configuration([judge], timeout_s=60.0, deadline_s=600.0, attempts=3, hedge="off")
        async with Engine(given, listener=events.append) as engine:
            scoring = asyncio.create_task(engine.score_all(samples()))
            while not scoring.done():
                before = judge.seen
                await asyncio.wait([scoring], timeout=1.0)
                if judge.seen == before and before.in_flight == engine.stats().in_flight:
                    leap(60)  # nothing else is under way
            return [reward.components["quality"] for reward in scoring.result()]

    with FakeJudge(Script(faults=(Hang(share=0.02, always=True),), latency=QUICK)) as judge:
        outcomes = leaping(main)
    scores = [outcome for outcome in outcomes if isinstance(outcome, Score)]
    assert ROWS - 20 <= len(scores) < ROWS
    assert not ejections(events)


@pytest.mark.parametrize("endpoints", [1, 2])
@pytest.mark.parametrize("kind", [Engine, JobHub])
@pytest.mark.parametrize("fault", [Reset(sent="nothing"), Status(status=503)], ids=lambda f: f.name)
def test_the_last_of_a_batch_that_break_their_connection_do_not_wait_for_the_deadline(
    fault, kind, endpoints
):
    """Nobody else is left to be answered: an answered request is sent again, and says who is at
    fault."""
    script = Script(faults=(msgspec.structs.replace(fault, share=0.1, always=True),))

    async def main(judges):
        async with Engine(configuration(judges, attempts=1)) as engine:
            values = [(await engine.score(row)).value for row in samples()[:100]]
        rows = list(zip(samples(), values, strict=False))
        sound = [row for row, value in rows if value is not None]
        breaking = [row for row, value in rows if value is None]
        given = configuration(judges, concurrency=8, hedge="off")
        async with kind(given) as scoring:
            began_s = time.monotonic()
            rewards = await scoring.score_all([*sound[:56], *breaking[:8]])
            took_s = time.monotonic() - began_s
        return [reward.components["quality"] for reward in rewards], took_s

    with FakeJudge(script) as first, FakeJudge(script) as second:
        outcomes, took_s = asyncio.run(main([first, second][:endpoints]))
    assert all(isinstance(outcome, Score) for outcome in outcomes[:56])
    assert all("attempts)" in outcome.detail for outcome in outcomes[56:])
    assert not any("deadline" in outcome.detail for outcome in outcomes[56:])
    assert took_s <= 150.0  # half of the deadline, however slow the machine
