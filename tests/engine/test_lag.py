"""A loop that is blocked is told of, with the name of what blocks it."""

import asyncio
import threading
import time

import pytest
import uvloop

from zerowait import Engine, Sample
from zerowait.engine.monitor.loop_lag import LoopLagMonitor
from zerowait.events import LoopLagged, RewardSettled

QUICK = {"every_s": 0.002, "late_s": 0.02}
LOOPS = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])


def hog(seconds):
    time.sleep(seconds)


@LOOPS
def test_a_late_loop_is_an_event_with_the_function_that_blocked_it(loop):
    async def scenario():
        heard = []
        watch = LoopLagMonitor(heard.append, **QUICK)
        watch.start()
        while not any("hog" in event.where for event in heard):
            hog(0.1)
            await asyncio.sleep(0.005)  # and again: a busy machine may not let the watch look
        watch.stop()
        return watch, next(event for event in heard if "hog" in event.where)

    with asyncio.Runner(loop_factory=loop) as runner:
        watch, event = runner.run(scenario())
    assert event.lag_s >= 0.02
    assert "test_lag.hog (test_lag.py:" in event.where
    assert watch.lag_p99_s >= 0.02


@LOOPS
def test_what_blocks_a_loop_for_ever_can_be_read_from_another_thread(loop):
    freed = threading.Event()

    def stuck():
        assert freed.wait(60)

    async def scenario(watch):
        watch.start()
        await asyncio.sleep(0.05)
        stuck()
        watch.stop()

    watch = LoopLagMonitor(lambda event: None, **QUICK)

    seen = []

    def look():
        while "stuck" not in "".join(seen):
            time.sleep(0.005)
            seen.append(watch.blocked_by)
        freed.set()

    reader = threading.Thread(target=look)
    reader.start()
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(scenario(watch))
    reader.join(60)
    assert not reader.is_alive()
    # the code that waits is the standard library's; what called it says more
    assert "test_lag" in seen[-1]


@LOOPS
def test_a_loop_that_only_waits_is_blocked_by_nobody(loop):
    async def scenario():
        watch = LoopLagMonitor(lambda event: None, every_s=0.002, late_s=30)
        watch.start()
        while not len(watch._lags_s) > 5:  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        await asyncio.to_thread(idle, watch)
        watch.stop()
        return watch.blocked_by

    def idle(watch):
        while watch._seen(threading.main_thread().ident):
            time.sleep(0.002)

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(scenario()) == ""


def test_stopping_ends_the_thread_also_while_the_loop_is_blocked():
    async def scenario():
        watch = LoopLagMonitor(lambda event: None, every_s=0.002, late_s=30)
        watch.start()
        thread = watch._thread
        hog(0.02)
        watch.stop()
        watch.stop()
        return thread.is_alive()

    assert not asyncio.run(scenario())


def test_stopping_at_any_moment_ends_the_thread():
    async def scenario():
        for _ in range(300):
            watch = LoopLagMonitor(lambda event: None, every_s=0.0001, late_s=30)
            watch.start()
            await asyncio.sleep(0.0002)
            watch.stop()

    asyncio.run(scenario())


def test_the_thread_ends_with_a_loop_that_was_closed_without_it():
    watch = LoopLagMonitor(lambda event: None, every_s=0.002, late_s=0.01)

    async def scenario():
        watch.start()

    asyncio.run(scenario())
    watch._thread.join(60)
    assert not watch._thread.is_alive()
    watch.stop()


def test_an_engine_tells_its_listener_and_its_statistics(monkeypatch):
    """A listener that is not quick blocks the engine's loop; its name is told."""
    for name, value in {"_EVERY_S": 0.002, "_LATE_S": 0.02}.items():
        monkeypatch.setitem(LoopLagMonitor.__init__.__kwdefaults__, name[1:].lower(), value)
    heard = []

    def slow_listener(event):
        heard.append(event)
        if isinstance(event, RewardSettled):
            hog(0.1)

    def told():
        return [e for e in heard if isinstance(e, LoopLagged) and "hog" in e.where]

    async def scenario():
        config = {"components": {"answer": {"scorer": "qa_em"}}}
        async with Engine(config, listener=slow_listener) as engine:
            while not (told() and "hog" in (stats := engine.stats()).loop_blocked_by):
                await engine.score(Sample("q", "a", "a"))
                await asyncio.sleep(0.01)
            return stats

    stats = asyncio.run(scenario())
    assert stats.loop_lag_p99_s >= 0.02
