import asyncio
import gc
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerowait.cache import SingleFlight
from zerowait.errors import ClosedError
from zerowait.testing import virtually


class Work:
    """Sends after `queue_s`, answers `answer_s` later, and counts what happened."""

    def __init__(self, *, queue_s=1.0, answer_s=2.0, error=None):
        self.queue_s, self.answer_s, self.error = queue_s, answer_s, error
        self.started = self.sent = self.finished = self.cancelled = 0

    async def __call__(self, sent):
        self.started += 1
        try:
            await asyncio.sleep(self.queue_s)
            self.sent += 1
            sent()
            await asyncio.sleep(self.answer_s)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.finished += 1
        if self.error is not None:
            raise self.error
        return self.started


async def after(seconds, start):
    await asyncio.sleep(seconds)
    return await start()


def test_those_who_ask_the_same_at_the_same_time_share_one_call():
    work = Work()

    async def main():
        async with SingleFlight() as flights, asyncio.TaskGroup() as group:
            tasks = [group.create_task(flights.run("k", work)) for _ in range(5)]
            tasks.append(group.create_task(after(2.5, lambda: flights.run("k", work))))
        return [task.result() for task in tasks]

    results, elapsed_s = virtually(main())
    assert results == [(1, False), *[(1, True)] * 5]
    assert work.started == 1
    assert elapsed_s == 3.0


def test_different_keys_are_different_calls():
    work = Work()

    async def main():
        async with SingleFlight() as flights, asyncio.TaskGroup() as group:
            for key in "abc":
                group.create_task(flights.run(key, work))

    virtually(main())
    assert work.started == 3


def test_a_call_that_has_landed_is_not_joined():
    work = Work()

    async def main():
        async with SingleFlight() as flights:
            first = await flights.run("k", work)
            second = await flights.run("k", work)
            return first, second, len(flights)

    assert virtually(main())[0] == ((1, False), (2, False), 0)


@pytest.mark.parametrize("leaver", [0, 1, 2])
@pytest.mark.parametrize("when_s", [0.0, 0.5, 2.0])
def test_one_callers_cancellation_never_cancels_anothers(leaver, when_s):
    work = Work()

    async def main():
        async with SingleFlight() as flights, asyncio.TaskGroup() as group:
            tasks = [group.create_task(flights.run("k", work)) for _ in range(3)]
            await asyncio.sleep(when_s)
            tasks[leaver].cancel()
        return [task.cancelled() or task.result()[0] for task in tasks]

    expected = [1, 1, 1]
    expected[leaver] = True
    assert virtually(main())[0] == expected
    assert work.finished == 1


def test_a_joiner_keeps_its_own_deadline():
    work = Work(answer_s=60.0)

    async def main():
        async with SingleFlight() as flights, asyncio.TaskGroup() as group:
            patient = group.create_task(flights.run("k", work))
            await asyncio.sleep(0)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5.0):
                    await flights.run("k", work)
            assert asyncio.get_running_loop().time() == 5.0
        return patient.result()

    assert virtually(main())[0] == (1, False)


def test_when_the_last_one_leaves_a_call_that_was_not_sent_is_cancelled():
    work = Work(queue_s=10.0)

    async def main():
        async with SingleFlight() as flights:
            tasks = [asyncio.create_task(flights.run("k", work)) for _ in range(2)]
            await asyncio.sleep(1.0)
            tasks[0].cancel()
            await asyncio.sleep(1.0)
            assert work.cancelled == 0
            tasks[1].cancel()
            await asyncio.wait(tasks)
            await asyncio.sleep(0)
            assert (work.cancelled, len(flights)) == (1, 0)

    virtually(main())
    assert work.sent == 0


def test_when_the_last_one_leaves_a_call_that_was_sent_goes_on_to_its_end():
    work = Work(queue_s=1.0, answer_s=10.0)

    async def main():
        async with SingleFlight() as flights:
            task = asyncio.create_task(flights.run("k", work))
            await asyncio.sleep(2.0)
            task.cancel()
            await asyncio.sleep(20.0)
            assert task.cancelled()
            assert len(flights) == 0

    virtually(main())
    assert (work.finished, work.cancelled) == (1, 0)


def test_a_newcomer_joins_a_sent_call_that_everybody_left():
    work = Work(queue_s=1.0, answer_s=10.0)

    async def main():
        async with SingleFlight() as flights:
            task = asyncio.create_task(flights.run("k", work))
            await asyncio.sleep(2.0)
            task.cancel()
            await asyncio.sleep(1.0)
            return await flights.run("k", work)

    assert virtually(main())[0] == (1, True)


def test_a_newcomer_never_joins_a_call_that_is_being_cancelled():
    async def slow_to_die(sent):
        try:
            await asyncio.sleep(100.0)
        finally:
            await asyncio.sleep(5.0)

    work = Work()

    async def main():
        async with SingleFlight() as flights:
            task = asyncio.create_task(flights.run("k", slow_to_die))
            await asyncio.sleep(1.0)
            task.cancel()
            await asyncio.sleep(1.0)
            result = await flights.run("k", work)
            await asyncio.sleep(10.0)
            return result, len(flights)

    assert virtually(main())[0] == ((1, False), 0)


def test_an_exception_reaches_everybody_who_waits():
    work = Work(error=ValueError("no"))

    async def main():
        async with SingleFlight() as flights:
            tasks = [asyncio.create_task(flights.run("k", work)) for _ in range(3)]
            await asyncio.wait(tasks)
            return [str(task.exception()) for task in tasks]

    assert virtually(main())[0] == ["no"] * 3
    assert work.started == 1


def test_an_exception_that_nobody_waits_for_is_not_complained_about():
    complaints = []
    work = Work(error=ValueError("no"))

    async def main():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        async with SingleFlight() as flights:
            tasks = [asyncio.create_task(flights.run("k", work)) for _ in range(2)]
            await asyncio.sleep(1.5)
            tasks[0].cancel()
            loop.call_later(1.5, tasks[1].cancel)  # in the very turn in which the call fails
            await asyncio.sleep(10.0)
            del tasks
            gc.collect()

    virtually(main())
    assert work.finished == 1
    assert complaints == []


def test_closing_waits_for_what_was_sent_and_cancels_what_was_not():
    sent, queued = Work(queue_s=0.5, answer_s=3.0), Work(queue_s=50.0)

    async def main():
        flights = SingleFlight()
        first = asyncio.create_task(flights.run("sent", sent))
        second = asyncio.create_task(flights.run("queued", queued))
        await asyncio.sleep(1.0)
        await flights.aclose(drain_s=10.0)
        closed_s = asyncio.get_running_loop().time()
        assert len(flights) == 0
        await asyncio.wait([first, second])
        with pytest.raises(ClosedError):
            await second
        return first.result(), closed_s

    assert virtually(main())[0] == ((1, False), 3.5)
    assert (sent.finished, queued.cancelled) == (1, 1)


def test_closing_cancels_what_was_sent_when_the_time_to_drain_is_over():
    work = Work(answer_s=60.0)

    async def main():
        flights = SingleFlight()
        caller = asyncio.create_task(flights.run("k", work))
        await asyncio.sleep(2.0)
        await flights.aclose(drain_s=10.0)
        assert asyncio.get_running_loop().time() == 12.0
        with pytest.raises(ClosedError):
            await caller

    virtually(main())
    assert work.cancelled == 1


def test_closing_that_is_cancelled_itself_still_leaves_no_call_behind():
    work = Work(answer_s=60.0)

    async def main():
        flights = SingleFlight()
        caller = asyncio.create_task(flights.run("k", work))
        await asyncio.sleep(2.0)
        closing = asyncio.create_task(flights.aclose(drain_s=30.0))
        await asyncio.sleep(1.0)
        closing.cancel()
        await asyncio.wait([closing, caller])
        return len(flights), closing.cancelled()

    assert virtually(main())[0] == (0, True)
    assert work.cancelled == 1


def test_nothing_is_asked_after_closing():
    work = Work()

    async def main():
        flights = SingleFlight()
        await flights.aclose()
        await flights.aclose()
        with pytest.raises(ClosedError):
            await flights.run("k", work)

    virtually(main())
    assert work.started == 0


def test_leaving_the_block_drains_as_long_as_was_said():
    work = Work(queue_s=0.0, answer_s=5.0)

    async def main():
        async with SingleFlight(drain_s=10.0) as flights:
            task = asyncio.create_task(flights.run("k", work))
            await asyncio.sleep(1.0)
        await asyncio.wait([task])
        return task.result()

    assert virtually(main()) == ((1, False), 5.0)


@settings(max_examples=80, deadline=None)
@given(
    callers=st.lists(
        st.tuples(
            st.sampled_from("ab"),
            st.integers(0, 12),
            st.one_of(st.none(), st.integers(0, 12)),
        ),
        max_size=12,
    ),
    queue_s=st.integers(0, 3),
    answer_s=st.integers(0, 3),
)
def test_whoever_stays_gets_a_result_and_a_sent_call_always_finishes(callers, queue_s, answer_s):
    works = {key: Work(queue_s=queue_s, answer_s=answer_s) for key in "ab"}
    running = {key: [0, 0] for key in "ab"}

    async def counted(key, sent):
        running[key][0] += 1
        running[key][1] = max(running[key])
        try:
            return await works[key](sent)
        finally:
            running[key][0] -= 1

    async def main():
        async with SingleFlight() as flights, asyncio.TaskGroup() as group:
            tasks = []
            for key, begin, leave in callers:
                work = partial(counted, key)
                tasks.append(group.create_task(after(begin, partial(flights.run, key, work))))
                if leave is not None:
                    asyncio.get_running_loop().call_at(begin + leave, tasks[-1].cancel)
            await asyncio.sleep(60)
        return tasks

    tasks, _ = virtually(main())
    for task, (_, _, leave) in zip(tasks, callers, strict=True):
        assert task.cancelled() or task.result()[0] >= 1
        assert leave is not None or not task.cancelled()
    for key, work in works.items():
        assert work.sent == work.finished
        assert work.started == work.finished + work.cancelled
        assert running[key][0] == 0
