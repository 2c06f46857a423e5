"""When a stand-in is made ready, on a clock that jumps."""

import asyncio

from zerowait.engine.slots import Patience, Slots
from zerowait.engine.spare import Spare
from zerowait.testing import virtually

PATIENCE = Patience(ready_s=0.125, start_s=0.5, lull_s=1.0)


def preparations(*works, takes_s=0.5, stand_ins="z", until_s=100.0, fails=False):
    """When a stand-in began to be made ready, beside `works`: (begins at, seconds)."""

    async def main():
        loop, ready, begun = asyncio.get_running_loop(), set(), []

        async def prepare(stand_in):
            begun.append(round(loop.time(), 3))
            await asyncio.sleep(takes_s)
            if not fails:
                ready.add(stand_in)

        slots = Slots("a", stand_ins, is_ready=ready.__contains__, patience=PATIENCE)
        spare = Spare(slots, prepare)

        async def one(begin_s, seconds):
            await asyncio.sleep(begin_s)
            async with slots.stint() as stint:
                stint.begins()
                await asyncio.sleep(seconds)
                if stint.worker in ready and seconds > PATIENCE.start_s:
                    ready.discard(stint.worker)  # it was ended at its deadline
            spare.after_work()

        began_s = loop.time()
        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(one(*work))
        await asyncio.sleep(until_s)
        await spare.aclose()
        return [round(begin_s - began_s, 3) for begin_s in begun]

    return virtually(main())[0]


def test_a_stand_in_is_made_ready_once_in_the_first_lull():
    assert preparations((0, 0.25), (10, 0.25), (20, 0.25)) == [1.25]


def test_nothing_is_made_ready_while_somebody_waits():
    """Two are always asked for at once, until 5 s; it is looked again after what comes then."""
    assert preparations(*[(0, 0.25)] * 20)[0] >= 5.0


def test_nothing_is_made_ready_before_the_first_work():
    assert preparations() == []


def test_a_stand_in_that_was_ended_is_made_ready_again():
    """The ready one takes over at 10 s; it hangs itself at 20 s, and is ended."""
    works = [(0, 0.25), (10, 5.0), (10, 0.25), (20, 5.0)]
    assert preparations(*works)[0] == 1.25
    assert len(preparations(*works)) == 2


def test_one_that_cannot_be_made_ready_is_tried_again_after_more_work_only():
    assert preparations((0, 0.25), (10, 0.25), fails=True) == [1.25, 11.25]


def test_a_stand_in_takes_no_work_while_it_is_made_ready():
    async def main():
        slots = Slots("a", "z", is_ready=lambda _: False, patience=PATIENCE)
        ready = asyncio.Event()

        async def prepare(_):
            await ready.wait()

        preparing = asyncio.create_task(slots.prepare(prepare))
        async with slots.stint() as stint:
            stint.begins()
            waits = asyncio.create_task(worker_of(slots))
            await asyncio.sleep(50)
            assert not waits.done()
            ready.set()
            await preparing
            return await waits

    assert virtually(main())[0] == "z"


def test_a_pool_that_closes_before_the_lull_makes_nothing_ready():
    assert preparations((0, 0.25), until_s=0.5) == []


async def worker_of(slots):
    async with slots.stint() as stint:
        return stint.worker


def test_where_the_last_stand_in_was_needed_meanwhile_none_is_made_ready():
    prepared = []

    async def how(stand_in):
        prepared.append(stand_in)

    async def main():
        slots = Slots("a", "", is_ready=lambda _: False, patience=Patience())
        await slots.prepare(how)

    virtually(main())
    assert prepared == []
