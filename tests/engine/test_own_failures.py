"""A request that fails while others are answered fails for reasons of its own."""

import asyncio
import time

import pytest

from zerowait import Engine, Sample, Score
from zerowait.events import EndpointEjected, LimitChanged
from zerowait.testing import FakeJudge, Hang, Latency, Reset, Script, Status

ROWS = 400
TOO_LARGE = "Request too large for this model"
QUICK = Latency(0.03, 0.3)


async def scored(judges, events, **traffic):
    settings = {
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
    samples = [Sample("What is asked?", f"answer {number}") for number in range(ROWS)]
    async with Engine(settings, listener=events.append) as engine:
        began_s = time.monotonic()
        rewards = await engine.score_all(samples)
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
        outcomes, took_s = asyncio.run(scored([first, second][:endpoints], events, deadline_s=60.0))
    failed = [outcome for outcome in outcomes if not isinstance(outcome, Score)]
    assert 1 <= len(failed) <= 20
    assert all(TOO_LARGE in outcome.detail for outcome in failed)
    assert not [event for event in events if isinstance(event, EndpointEjected)]
    limits = [event.after for event in events if isinstance(event, LimitChanged)]
    assert min(limits, default=32) >= 24
    assert took_s <= 20.0  # a third of the deadline, however slow the machine


@pytest.mark.parametrize(
    ("fault", "timeout_s"),
    [
        pytest.param(Reset(share=0.02, always=True, sent="nothing"), 60.0, id="reset"),
        pytest.param(Hang(share=0.02, always=True), 4.0, id="hang"),
    ],
)
def test_a_request_that_breaks_its_connection_costs_nobody_else_anything(fault, timeout_s):
    events = []
    limits = {"timeout_s": timeout_s, "deadline_s": 60.0, "attempts": 3}
    with FakeJudge(Script(faults=(fault,), latency=QUICK)) as judge:
        outcomes, _ = asyncio.run(scored([judge], events, **limits))
    scores = [outcome for outcome in outcomes if isinstance(outcome, Score)]
    assert ROWS - 20 <= len(scores) < ROWS
    assert not [event for event in events if isinstance(event, EndpointEjected)]
