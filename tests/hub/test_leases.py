"""Work for a client that was killed is given up; work for one that is merely slow is not."""

import asyncio

import pytest

from zerowait.errors import HubLostError
from zerowait.hub.leases import Leases
from zerowait.testing import virtually


def outcome(scenario):
    return virtually(scenario())


def test_work_ends_when_its_client_was_silent_for_too_long():
    leases = Leases(silence_s=60)
    ended = []

    async def work():
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(asyncio.get_running_loop().time())

    async def scenario():
        with pytest.raises(HubLostError, match="silent for 60 s"):
            await leases.run("a", work)

    _, elapsed_s = outcome(scenario)
    assert ended == [60]
    assert elapsed_s == 60
    assert len(leases) == 0


def test_work_goes_on_for_hours_while_its_client_is_heard_of():
    leases = Leases(silence_s=60)

    async def beat():
        while True:
            await asyncio.sleep(50)
            leases.heard("a")

    async def scenario():
        beats = asyncio.create_task(beat())
        result = await leases.run("a", lambda: asyncio.sleep(7200, "done"))
        beats.cancel()
        return result

    result, elapsed_s = outcome(scenario)
    assert (result, elapsed_s) == ("done", 7200)
    assert len(leases) == 0


def test_a_new_call_counts_as_a_sign_of_life():
    leases = Leases(silence_s=60)

    async def scenario():
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(leases.run("a", lambda: asyncio.sleep(80, 1)))
            await asyncio.sleep(40)
            second = tasks.create_task(leases.run("a", lambda: asyncio.sleep(50, 2)))
        return first.result(), second.result()

    assert outcome(scenario)[0] == (1, 2)


def test_all_work_of_a_silent_client_ends_and_none_of_another():
    leases = Leases(silence_s=60)

    async def of(client):
        try:
            return await leases.run(client, lambda: asyncio.sleep(100, "done"))
        except HubLostError:
            return "given up"

    async def scenario():
        async with asyncio.TaskGroup() as tasks:
            rows = [tasks.create_task(of(client)) for client in "aaab"]
            await asyncio.sleep(30)
            leases.heard("b")
            await asyncio.sleep(30)
            leases.heard("b")
        return [row.result() for row in rows]

    assert outcome(scenario)[0] == ["given up"] * 3 + ["done"]


def test_a_timeout_of_the_work_itself_stays_what_it_is():
    leases = Leases(silence_s=60)

    async def work():
        raise TimeoutError("of the work")

    async def scenario():
        with pytest.raises(TimeoutError, match="of the work"):
            await leases.run("a", work)

    outcome(scenario)


def test_a_cancelled_call_leaves_nothing_behind():
    leases = Leases(silence_s=60)

    async def scenario():
        call = asyncio.create_task(leases.run("a", lambda: asyncio.sleep(100)))
        await asyncio.sleep(1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        return len(leases)

    assert outcome(scenario) == (0, 1)
