"""Who stands in for whom, and when, on a clock that jumps."""

import asyncio

import pytest

from zerowait.engine.slots import Patience, Slots
from zerowait.testing import virtually


def slots_of(regular, stand_ins, ready=""):
    return Slots(
        regular, stand_ins, is_ready=lambda each: each in ready, patience=Patience(0.125, 0.5)
    )


def endings(*works, regular="ab", stand_ins="yz", ready=""):
    """Who ended each of `works`, (begins at, seconds, may be replaced), and when, in order."""

    async def main():
        slots = slots_of(regular, stand_ins, ready)
        done = []

        async def one(begin_s, seconds, may_be_replaced):
            await asyncio.sleep(begin_s)
            async with slots.stint() as stint:
                if may_be_replaced:
                    stint.begins()
                await asyncio.sleep(seconds)
                done.append((stint.worker, round(asyncio.get_running_loop().time(), 3)))

        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(one(*work))
        return done

    return virtually(main())[0]


def test_short_work_is_done_by_the_regular_workers_alone():
    done = endings(*[(0, 0.25, True)] * 8)
    assert {worker for worker, _ in done} == {"a", "b"}


def test_those_who_wait_get_a_stand_in_after_the_patience():
    hung, *others = [(0, 100.0, True), *[(0, 0.25, True)] * 3]
    done = endings(hung, *others, regular="a")
    assert [worker for worker, _ in done] == ["z", "z", "z", "a"]
    assert done[0][1] - done[2][1] == -0.5


def test_a_stand_in_that_is_ready_takes_over_sooner():
    works = [(0, 100.0, True), (0, 0.25, True)]
    assert endings(*works, regular="a", stand_ins="z", ready="z")[0] == ("z", 0.375)
    assert endings(*works, regular="a", stand_ins="z")[0] == ("z", 0.75)


@pytest.mark.parametrize("ready", "xyz")
def test_of_several_stand_ins_the_one_that_is_ready_takes_over(ready):
    works = [(0, 100.0, True), (0, 0.25, True)]
    assert endings(*works, regular="a", stand_ins="xyz", ready=ready)[0][0] == ready


def test_where_nobody_waits_nobody_stands_in_until_somebody_does():
    done = endings((0, 100.0, True), (10.25, 0.25, True), regular="a")
    assert [worker for worker, _ in done] == ["z", "a"]


def test_work_that_may_not_be_replaced_keeps_the_others_waiting():
    done = endings((0, 100.0, False), (0, 0.25, True), regular="a")
    assert [worker for worker, _ in done] == ["a", "a"]


def test_there_are_never_more_than_the_stand_ins_beside_what_takes_long():
    """Four hang: two regular workers, and both stand-ins; the fifth waits for the first to end."""
    done = endings(*[(0, 100.0, True)] * 4, (0.1, 1.0, True))
    assert [worker for worker, _ in done][-1] in {"a", "b"}
    assert len({worker for worker, _ in done}) == 4


def test_who_was_replaced_is_the_next_to_stand_in():
    works = [(0, 5.0, True), (0, 9.0, True), (20, 5.0, True), (20, 0.25, True)]
    done = endings(*works, regular="a", stand_ins="z")
    assert [worker for worker, _ in done] == ["a", "z", "a", "z"]


def test_a_cancelled_wait_leaves_the_worker_to_the_next():
    async def main():
        slots = slots_of("a", "z")

        async def hold(seconds):
            async with slots.stint() as stint:
                await asyncio.sleep(seconds)
                return stint.worker

        first = asyncio.create_task(hold(1))
        await asyncio.sleep(0)
        second = asyncio.create_task(hold(1))
        await asyncio.sleep(0.1)
        second.cancel()
        return await first, await hold(0)

    assert virtually(main())[0] == ("a", "a")
