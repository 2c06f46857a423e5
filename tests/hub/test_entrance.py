"""Sessions over connections: real sockets, and nobody in who does not know a session's name."""

import asyncio
import pickle
from contextlib import asynccontextmanager

import pytest

from zerowait.errors import ClosedError, DataError
from zerowait.hub.rpc.codec import encoded_parts
from zerowait.hub.rpc.connection import RpcAddress, connected, message
from zerowait.hub.rpc.pending_calls import PendingCalls, converse
from zerowait.hub.rpc.server import RpcServer
from zerowait.hub.rpc.sessions import Sessions

NAME = "n" * 32
HERE = "127.0.0.1"


class Hub:
    """Gives back what it is given, and holds what is to be held until it is given up."""

    def __init__(self, *, beat_s=10.0, silence_s=300.0):
        self.worked_on, self.results = [], 0
        self.begun, self.given_up = asyncio.Event(), asyncio.Event()
        self.beat_s = beat_s
        self.sessions = Sessions(self.work, beat_s=beat_s, silence_s=silence_s)
        self.entrance = RpcServer(self.sessions, HERE)

    async def work(self, item):
        self.worked_on.append(item)
        if item == "unpicklable result":
            return Unpicklable()
        if item == "refuse":
            raise ClosedError("closed")
        if item == "hold":
            self.begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.given_up.set()
        self.results += 1
        return item

    async def done(self, count):
        while self.results < count:  # noqa: ASYNC110 - work tells nobody that it is done
            await asyncio.sleep(0)

    @asynccontextmanager
    async def channel(self, name=NAME, silence_s=60.0):
        door = await self.entrance.door()
        assert door is not None
        channel = await connected(
            door, name, dumps=pickle.dumps, beat_s=self.beat_s, silence_s=silence_s
        )
        try:
            yield channel
        finally:
            if channel is not None:
                channel.close()

    async def left(self):
        while len(self.sessions):  # noqa: ASYNC110 - a session tells nobody that it is over
            await asyncio.sleep(0)
        self.entrance.close()


async def results_of(channel, count):
    results = []
    while len(results) < count:
        results += await channel.collect()
    return dict(results)


def test_everybody_gets_their_own_result_over_one_connection():
    async def scenario():
        hub, desk = Hub(), PendingCalls()
        hub.sessions.join(NAME)
        async with hub.channel() as channel:
            carrying = asyncio.create_task(converse(channel, desk))
            async with asyncio.TaskGroup() as tasks:
                waiting = [tasks.create_task(desk.result("x" * n)) for n in range(1000)]
            results = [one.result() for one in waiting]
            with pytest.raises(ClosedError, match="closed"):
                await desk.result("refuse")
            carrying.cancel()
            await asyncio.wait({carrying})
        await hub.left()
        return results

    assert [len(result) for result in asyncio.run(scenario())] == list(range(1000))


def test_who_knows_no_session_is_not_listened_to():
    async def scenario():
        hub = Hub()
        hub.sessions.join(NAME)
        async with hub.channel("m" * 32) as stranger:
            assert stranger is None
        async with hub.channel() as channel:
            await channel.submit([(1, "mine")], [])
            assert await results_of(channel, 1) == {1: "mine"}
        await hub.left()

    asyncio.run(scenario())


def test_what_a_process_asked_for_is_given_up_when_its_connection_ends():
    async def scenario():
        hub = Hub()
        hub.sessions.join(NAME)
        async with hub.channel() as channel:
            await channel.submit([(1, "hold"), (2, "quick")], [])
            assert await results_of(channel, 1) == {2: "quick"}
        await hub.given_up.wait()
        await hub.left()

    asyncio.run(scenario())


def test_what_was_on_its_way_when_a_connection_was_cut_arrives_by_the_next_and_is_done_once():
    async def scenario():
        hub, first, second = Hub(), "1" * 32, "2" * 32
        hub.sessions.join(first)
        async with hub.channel(first) as channel:
            await channel.submit([(1, "arrives"), (2, "hold")], [])
            assert await results_of(channel, 1) == {1: "arrives"}
            await channel.submit([(3, "on its way"), (4, "nobody's")], [])
            await hub.done(3)
        hub.sessions.join(second, first)
        async with hub.channel(second) as channel:
            await channel.submit([(3, "on its way"), (5, "new")], [4])
            assert await results_of(channel, 2) == {3: "on its way", 5: "new"}
            hub.sessions.leave(second)
        await hub.left()
        return hub.worked_on

    assert asyncio.run(scenario()) == ["arrives", "hold", "on its way", "nobody's", "new"]


def test_a_process_that_only_listens_is_no_silent_one(leaping):
    async def scenario(leap):
        hub = Hub(beat_s=10.0, silence_s=300.0)
        hub.sessions.join(NAME)
        async with hub.channel() as channel:
            for _ in range(40):  # signs of life of the hub, 400 s of them
                sign = asyncio.create_task(channel.collect())
                while not sign.done():
                    await asyncio.sleep(0.001)
                    leap(1)
                assert sign.result() == []
            await channel.submit([(1, "still here")], [])
            assert await results_of(channel, 1) == {1: "still here"}
        await hub.left()

    leaping(scenario)


def test_a_process_that_says_nothing_is_gone(leaping):
    async def scenario(leap):
        hub = Hub(beat_s=10.0, silence_s=300.0)
        hub.sessions.join(NAME)
        door = await hub.entrance.door()
        reader, writer = await asyncio.open_connection(door.host, door.port)
        writer.write(NAME.encode() + message(encoded_parts([(1, "hold")], [], dumps=pickle.dumps)))
        await hub.begun.wait()
        leap(300)
        await hub.given_up.wait()
        await reader.read()  # to the end of the connection
        writer.close()
        await hub.left()

    leaping(scenario)


def test_a_hub_that_says_nothing_is_noticed():
    async def scenario():
        hub = Hub()
        hub.sessions.join(NAME)
        async with hub.channel(silence_s=0.05) as channel:
            with pytest.raises(TimeoutError):
                await channel.collect()
        await hub.left()

    asyncio.run(scenario())


def test_a_process_that_was_stopped_for_long_hears_what_the_hub_said_meanwhile(leaping):
    async def scenario(leap):
        hub = Hub(beat_s=10.0)
        hub.sessions.join(NAME)
        async with hub.channel(silence_s=130.0) as channel:
            sign = asyncio.create_task(channel.collect())
            await asyncio.sleep(0.001)
            leap(200)
            assert await sign == []
            await channel.submit([(1, "still here")], [])
            assert await results_of(channel, 1) == {1: "still here"}
        await hub.left()

    leaping(scenario)


class Unimportable:
    """As a class of the user's that only the process that asks can import."""

    def __reduce__(self):
        return pickle.loads, (b"\x80\x04cnowhere\nC\n.",)


class Unpicklable:
    """As a lock or an open file."""

    def __reduce__(self):
        raise TypeError("not this one")


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (Unpicklable(), "cannot be sent to another process: TypeError: not this one"),
        (Unimportable(), "cannot read it: ModuleNotFoundError: No module named 'nowhere'"),
        ("unpicklable result", "cannot be sent to another process: TypeError: not this one"),
    ],
)
def test_what_cannot_travel_fails_alone_and_says_why(item, why):
    async def scenario():
        hub = Hub()
        hub.sessions.join(NAME)
        async with hub.channel() as channel:
            await channel.submit([(1, "before"), (2, item), (3, "after")], [])
            results = await results_of(channel, 3)
            await channel.submit([(4, "later")], [])
            results |= await results_of(channel, 1)
        await hub.left()
        return results

    results = asyncio.run(scenario())
    error = results.pop(2)
    assert isinstance(error, DataError)
    assert why in str(error)
    assert results == {1: "before", 3: "after", 4: "later"}


def test_a_process_does_not_read_what_a_stranger_sends_from_where_the_hub_was():
    unpickled = []

    class Trap:
        def __reduce__(self):
            return unpickled.append, ("trapped",)

    async def stranger(_, writer):
        writer.write(b"s" * 32 + message(pickle.dumps(Trap())))
        writer.close()

    async def scenario():
        async with await asyncio.start_server(stranger, HERE, 0) as server:
            door = RpcAddress(HERE, server.sockets[0].getsockname()[1], "h" * 32)
            return await connected(door, NAME, dumps=pickle.dumps, beat_s=10.0, silence_s=60.0)

    assert asyncio.run(scenario()) is None
    assert unpickled == []


def test_there_is_no_door_without_an_address_and_none_after_closing():
    async def scenario():
        hub = Hub()
        opened = await hub.entrance.door()
        hub.entrance.close()
        nowhere = RpcServer(hub.sessions, "192.0.2.1")  # an address that no machine has
        unreachable = await connected(opened, NAME, dumps=pickle.dumps, beat_s=10.0, silence_s=60.0)
        return opened, [
            await hub.entrance.door(),
            await RpcServer(hub.sessions, None).door(),
            await nowhere.door(),
            unreachable,
        ]

    opened, others = asyncio.run(scenario())
    assert isinstance(opened, RpcAddress)
    assert others == [None] * 4
