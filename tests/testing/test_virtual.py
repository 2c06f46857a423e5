"""Time that jumps."""

import asyncio
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerowait.testing import DeadlockError, virtually

seconds = st.floats(0.0, 1e5, allow_nan=False)


def test_an_hour_of_sleep_takes_an_hour_and_no_time():
    began = time.monotonic()
    assert virtually(asyncio.sleep(3600.0, "done")) == ("done", 3600.0)
    assert time.monotonic() - began < 60


def test_the_clock_starts_at_zero_and_nothing_moves_it_but_waiting():
    async def work():
        await asyncio.sleep(0)
        return asyncio.get_running_loop().time()

    assert virtually(work()) == (0.0, 0.0)


@settings(max_examples=25, deadline=None)
@given(st.lists(seconds, min_size=1, max_size=8))
def test_sleepers_side_by_side_take_as_long_as_the_slowest(waits_s):
    async def work():
        async with asyncio.TaskGroup() as group:
            for wait_s in waits_s:
                group.create_task(asyncio.sleep(wait_s))

    assert virtually(work(), limit_s=1e6)[1] == pytest.approx(max(waits_s))


@settings(max_examples=25, deadline=None)
@given(st.lists(seconds, min_size=1, max_size=8))
def test_sleeps_in_a_row_take_the_sum(waits_s):
    async def work():
        for wait_s in waits_s:
            await asyncio.sleep(wait_s)

    assert virtually(work(), limit_s=1e7)[1] == pytest.approx(sum(waits_s))


def test_a_timeout_fires_at_its_deadline():
    async def work():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(7.0):
                await asyncio.Event().wait()

    assert virtually(work())[1] == 7.0


def test_a_timeout_that_is_not_needed_costs_no_time():
    async def work():
        async with asyncio.timeout(1000.0):
            await asyncio.sleep(2.0)

    assert virtually(work())[1] == 2.0


def test_timers_run_in_the_order_of_their_deadlines():
    async def work():
        order = []
        loop = asyncio.get_running_loop()
        for wait_s in (3, 1, 2):
            loop.call_later(wait_s, order.append, wait_s)
        await asyncio.sleep(4)
        return order

    assert virtually(work()) == ([1, 2, 3], 4.0)


def test_waiting_for_something_that_cannot_happen_is_a_deadlock_that_names_the_place():
    async def wait_for_ever():
        await asyncio.Event().wait()

    async def work():
        await asyncio.sleep(5.0)
        await wait_for_ever()

    with pytest.raises(DeadlockError, match=r"at 5.0 s(.|\n)*wait_for_ever \(test_virtual.py:"):
        virtually(work())


def test_a_deadlock_still_runs_the_finally_blocks():
    cleaned = []

    async def work():
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(1.0)
            cleaned.append("yes")

    with pytest.raises(DeadlockError):
        virtually(work())
    assert cleaned == ["yes"]


def test_a_heartbeat_does_not_hide_that_nothing_else_happens():
    async def beat():
        while True:  # noqa: ASYNC110 - the very thing under test
            await asyncio.sleep(1.0)

    async def work():
        async with asyncio.TaskGroup() as group:
            group.create_task(beat())
            await asyncio.Event().wait()

    with pytest.raises(DeadlockError, match="not done after 100"):
        virtually(work(), limit_s=100.0)


def test_an_error_of_the_coroutine_is_raised():
    async def work():
        await asyncio.sleep(1.0)
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        virtually(work())


def test_it_refuses_to_run_inside_another_loop_and_leaves_nothing_unawaited():
    async def outer():
        virtually(asyncio.sleep(1.0))

    with pytest.raises(RuntimeError, match="one is running here"):
        asyncio.run(outer())


def test_a_thread_of_the_loop_takes_no_virtual_time_and_is_not_a_deadlock():
    async def work():
        async with asyncio.timeout(60.0):
            await asyncio.to_thread(time.sleep, 0.02)
        await asyncio.sleep(1.0)
        return await asyncio.to_thread(threading.get_ident)

    ident, elapsed_s = virtually(work())
    assert ident != threading.get_ident()
    assert elapsed_s == 1.0


def test_a_thread_that_needs_the_loop_to_sleep_gets_its_sleep():
    async def work():
        loop = asyncio.get_running_loop()

        def in_thread():
            return asyncio.run_coroutine_threadsafe(asyncio.sleep(0.02, "slept"), loop).result()

        return await asyncio.to_thread(in_thread)

    assert virtually(work()) == ("slept", 0.02)


def test_a_foreign_thread_can_wake_the_loop_within_the_patience():
    async def work():
        loop = asyncio.get_running_loop()
        woken = loop.create_future()

        def elsewhere():
            time.sleep(0.02)
            loop.call_soon_threadsafe(woken.set_result, "woken")

        thread = threading.Thread(target=elsewhere)
        thread.start()
        async with asyncio.timeout(3600.0):
            result = await woken
        thread.join()
        return result

    assert virtually(work(), patience_s=20.0) == ("woken", 0.0)


def test_patience_ends_in_a_deadlock_and_not_in_a_hang():
    async def work():
        await asyncio.Event().wait()

    with pytest.raises(DeadlockError):
        virtually(work(), patience_s=0.01)
