"""A request that fails while others are answered fails for reasons of its own."""

import asyncio
import itertools
import time

import pytest

from zerowait import Engine, Sample, Score
from zerowait.events import EndpointEjected, LimitChanged
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
    assert not [event for event in events if isinstance(event, EndpointEjected)]
    limits = [event.after for event in events if isinstance(event, LimitChanged)]
    assert min(limits, default=32) >= 24
    assert took_s <= 100.0  # a third of the deadline, however slow the machine


def assert_cost_nobody_else_anything(outcomes, events):
    scores = [outcome for outcome in outcomes if isinstance(outcome, Score)]
    assert ROWS - 20 <= len(scores) < ROWS
    assert not [event for event in events if isinstance(event, EndpointEjected)]


def test_requests_that_break_their_connection_cost_nobody_else_anything():
    """Others are answered all the time: where nobody is, the endpoint is taken for dead."""
    events = []

    async def main():
        given = configuration([judge], deadline_s=60.0, attempts=3)
        async with Engine(given, listener=events.append) as engine:
            first = samples()[:20]
            rewards = await engine.score_all(first)
            sound = [row for row, reward in zip(first, rewards, strict=True) if reward.value]

            async def others():
                for row in itertools.cycle(sound):
                    await engine.score(row)

            beside = [asyncio.create_task(others()) for _ in range(4)]
            rewards = await engine.score_all(samples())
            for each in beside:
                each.cancel()
            return [reward.components["quality"] for reward in rewards]

    fault = Reset(share=0.02, always=True, sent="nothing")
    with FakeJudge(Script(faults=(fault,), latency=QUICK)) as judge:
        assert_cost_nobody_else_anything(asyncio.run(main()), events)


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
        assert_cost_nobody_else_anything(leaping(main), events)
