"""Concurrent tasks: every item of a list has its end, and no end goes unnoticed."""

import asyncio
import itertools

import pytest

from zerowait.engine.concurrent_tasks import first_of, run_all
from zerowait.errors import ClosedError


def test_an_item_that_is_cancelled_from_elsewhere_is_not_left_out_without_a_word():
    """The results of a list would be one short, and each after it that of its neighbour."""

    async def one(item):
        if item == 1:
            raise asyncio.CancelledError

    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(run_all(range(4), one, at_once=2))
    assert isinstance(first_of(raised.value), ClosedError)


def test_whoever_gives_a_list_up_is_told_of_no_error():
    async def main():
        work = asyncio.create_task(run_all(range(4), lambda _: asyncio.sleep(60), at_once=2))
        await asyncio.sleep(0)
        work.cancel()
        await asyncio.wait({work})
        return work.cancelled()

    assert asyncio.run(main())


def test_the_first_of_a_long_list_is_under_way_while_few_others_have_begun():
    """A judge would wait idle for its first request while the whole list is made ready."""
    begun, begun_when_first_was_sent = [], []

    async def one(item):
        begun.append(item)
        for _ in range(5):  # as a connection is made
            await asyncio.sleep(0)
        if item == 0:
            begun_when_first_was_sent.append(len(begun))

    asyncio.run(run_all(range(2000), one, at_once=2000))
    assert sorted(begun) == list(range(2000))
    assert begun_when_first_was_sent[0] <= 128


@pytest.mark.parametrize("at_once", [2, 2048])
def test_a_list_that_is_answered_from_memory_keeps_nobody_waiting(at_once):
    """Beside it, replies of judges arrive and a trainer's other calls want an answer."""
    done, done_by_turn = [], [0]

    async def one(item):
        done.append(item)

    async def others(work):
        while not work.done():
            done_by_turn.append(len(done))
            await asyncio.sleep(0)

    async def main():
        work = asyncio.create_task(run_all(range(20_000), one, at_once=at_once))
        await others(work)

    asyncio.run(main())
    assert done == list(range(20_000))
    in_a_turn = [after - before for before, after in itertools.pairwise(done_by_turn)]
    assert max(in_a_turn) <= 128
