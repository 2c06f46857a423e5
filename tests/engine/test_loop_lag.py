"""A blocked event loop is reported, with the name of the function that blocks it."""

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
        monitor = LoopLagMonitor(heard.append, **QUICK)
        monitor.start()
        while not any("hog" in event.where for event in heard):
            hog(0.1)
            await asyncio.sleep(0.005)  # and again: a busy machine may not let the monitor look
        monitor.stop()
        return monitor, next(event for event in heard if "hog" in event.where)

    with asyncio.Runner(loop_factory=loop) as runner:
        monitor, event = runner.run(scenario())
    assert event.lag_s >= 0.02
    assert "test_loop_lag.hog (test_loop_lag.py:" in event.where
    assert monitor.lag_p99_s >= 0.02


@LOOPS
def test_what_blocks_a_loop_for_ever_can_be_read_from_another_thread(loop):
    freed = threading.Event()

    def stuck():
        assert freed.wait(60)

    async def scenario(monitor):
        monitor.start()
        await asyncio.sleep(0.05)
        stuck()
        monitor.stop()

    monitor = LoopLagMonitor(lambda event: None, **QUICK)

    seen = []

    def look():
        while "stuck" not in "".join(seen):
            time.sleep(0.005)
            seen.append(monitor.blocked_by)
        freed.set()

    reader = threading.Thread(target=look)
    reader.start()
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(scenario(monitor))
    reader.join(60)
    assert not reader.is_alive()
    # the code that waits is the standard library's; what called it says more
    assert "test_loop_lag" in seen[-1]


@LOOPS
def test_a_loop_that_only_waits_is_blocked_by_no_function(loop):
    async def scenario():
        monitor = LoopLagMonitor(lambda event: None, every_s=0.002, late_s=30)
        monitor.start()
        while not len(monitor._lags_s) > 5:  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        await asyncio.to_thread(idle, monitor)
        monitor.stop()
        return monitor.blocked_by

    def idle(monitor):
        while monitor._blocking_function(threading.main_thread().ident):
            time.sleep(0.002)

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(scenario()) == ""


def test_stopping_ends_the_thread_also_while_the_loop_is_blocked():
    async def scenario():
        monitor = LoopLagMonitor(lambda event: None, every_s=0.002, late_s=30)
        monitor.start()
        thread = monitor._thread
        hog(0.02)
        monitor.stop()
        monitor.stop()
        return thread.is_alive()

    assert not asyncio.run(scenario())


def test_stopping_at_any_moment_ends_the_thread():
    async def scenario():
        threads = []
        for _ in range(300):
            monitor = LoopLagMonitor(lambda event: None, every_s=0.0001, late_s=30)
            monitor.start()
            threads.append(monitor._thread)
            await asyncio.sleep(0.0002)
            monitor.stop()
        return threads

    assert not any(thread.is_alive() for thread in asyncio.run(scenario()))


def test_the_thread_ends_with_a_loop_that_was_closed_without_it():
    monitor = LoopLagMonitor(lambda event: None, every_s=0.002, late_s=0.01)

    async def scenario():
        monitor.start()

    asyncio.run(scenario())
    monitor._thread.join(60)
    assert not monitor._thread.is_alive()
    monitor.stop()


def test_an_engine_reports_lag_to_its_listener_and_in_its_statistics(monkeypatch):
    """A listener that is not quick blocks the engine's loop; its name is told."""
    for name, value in {"every_s": 0.002, "late_s": 0.02}.items():
        monkeypatch.setitem(LoopLagMonitor.__init__.__kwdefaults__, name, value)
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
