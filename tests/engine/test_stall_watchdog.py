"""When nothing happens any more, an event says what is waited for and where."""

import asyncio
import logging

import pytest

from zerowait import Engine, Sample
from zerowait.client import EndpointStates
from zerowait.config import Traffic
from zerowait.engine.monitor.stall_watchdog import StallWatchdog
from zerowait.events import NothingMoves, StoreFailed

TIMEOUT_S = 60.0
STALL_S = 120.0


class Clock:
    now_s = 1000.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


def watchdog_of(clock, events):
    return StallWatchdog(EndpointStates(Traffic()), events.append, TIMEOUT_S, wall_s=clock)


async def checked(watchdog):
    watchdog.check()


def test_nothing_is_reported_while_something_happens_or_nothing_is_pending(clock):
    events = []
    watchdog = watchdog_of(clock, events)
    pending = watchdog.pending
    for _ in range(5):
        clock.now_s += STALL_S
        asyncio.run(checked(watchdog))
    number = pending.enter("quality", Sample("q", "a"))
    for _ in range(5):
        clock.now_s += STALL_S - 1
        watchdog(StoreFailed(why="full"))
        clock.now_s += STALL_S - 1
        asyncio.run(checked(watchdog))
    pending.leave(number)
    assert events == []


def test_a_stall_is_reported_once_with_the_longest_waits_first(clock, caplog):
    events = []
    watchdog = watchdog_of(clock, events)
    pending = watchdog.pending
    pending.enter("quality", Sample("q", "a", id="row 7"))
    pending.enter("length", Sample("q", "a", group="g3"))
    for number in range(30):
        pending.enter("more", Sample("q", "a", id=str(number)))
    clock.now_s += STALL_S
    with caplog.at_level(logging.WARNING):
        asyncio.run(checked(watchdog))
        asyncio.run(checked(watchdog))
    [event] = events
    assert (event.for_s, event.pending) == (STALL_S, 32)
    lines = event.dump.splitlines()
    assert lines[0].startswith("32 components are waited for; 0 requests are in flight")
    assert lines[1].startswith("quality of sample 'row 7': ")
    assert lines[2].startswith("length of a sample of group 'g3': ")
    assert "and 12 more" in lines
    assert "nothing has moved for 120 s" in caplog.text
    watchdog(StoreFailed(why="full"))
    clock.now_s += STALL_S
    asyncio.run(checked(watchdog))
    assert len(events) == 2


def test_an_engine_reports_where_its_judgements_hang():
    """The transport never answers; the watchdog checks as if two minutes had passed."""
    events = []

    class Silent:
        async def send(self, request, *, timeout_s):
            await asyncio.get_running_loop().create_future()

        async def aclose(self):
            pass

    settings = {
        "components": {"quality": {"judge": "q"}},
        "judges": {
            "q": {
                "endpoints": [
                    {"base_url": "http://judge/v1", "model": "m", "api_key": "sk-planted"}
                ],
                "verdict": {"integer": [1, 10]},
            }
        },
        "cache": "off",
    }

    async def scenario():
        async with Engine(settings, transport=Silent(), listener=events.append) as engine:
            rows = [Sample("q", f"secret {n}", id=f"row {n}") for n in range(3)]
            calls = [asyncio.create_task(engine.score(row)) for row in rows]
            while engine.stats().in_flight < 3:  # noqa: ASYNC110 - the flights have no event
                await asyncio.sleep(0)
            engine._watchdog._last_event_s -= STALL_S
            engine._watchdog.check()
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)

    asyncio.run(scenario())
    [event] = [event for event in events if isinstance(event, NothingMoves)]
    assert event.pending == 3
    assert "3 components are waited for; 3 requests are in flight" in event.dump
    assert "quality of sample 'row 0'" in event.dump
    assert "Silent.send" in event.dump
    assert "planted" not in event.dump
    assert "secret" not in event.dump
