"""RPC over TCP: real sockets, and no access without the name of a session."""

import asyncio
import pickle
from contextlib import asynccontextmanager

import pytest

from zerowait.errors import ClosedError, DataError
from zerowait.hub.rpc import (
    PendingCalls,
    RpcAddress,
    RpcServer,
    Sessions,
    encode_message,
    frame,
    open_connection,
    pump,
)

NAME = "n" * 32
HERE = "127.0.0.1"


class Hub:
    """Returns each payload, and holds the payload "hold" until its call is cancelled."""

    def __init__(self, *, heartbeat_s=10.0, session_timeout_s=300.0):
        self.worked_on, self.results = [], 0
        self.begun, self.cancelled = asyncio.Event(), asyncio.Event()
        self.heartbeat_s = heartbeat_s
        self.sessions = Sessions(
            self.work, heartbeat_s=heartbeat_s, session_timeout_s=session_timeout_s
        )
        self.server = RpcServer(self.sessions, HERE)

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
                self.cancelled.set()
        self.results += 1
        return item

    async def done(self, count):
        while self.results < count:  # noqa: ASYNC110 - the end of the work has no event
            await asyncio.sleep(0)

    @asynccontextmanager
    async def connection(self, name=NAME, silence_timeout_s=60.0):
        address = await self.server.address()
        assert address is not None
        connection = await open_connection(
            address,
            name,
            dumps=pickle.dumps,
            heartbeat_s=self.heartbeat_s,
            silence_timeout_s=silence_timeout_s,
        )
        try:
            yield connection
        finally:
            if connection is not None:
                connection.close()

    async def left(self):
        while len(self.sessions):  # noqa: ASYNC110 - the end of a session has no event
            await asyncio.sleep(0)
        self.server.close()


async def results_of(connection, count):
    results = []
    while len(results) < count:
        results += await connection.collect()
    return dict(results)


def test_each_of_a_thousand_callers_gets_its_own_result_over_one_connection():
    async def scenario():
        hub, pending = Hub(), PendingCalls()
        hub.sessions.open(NAME)
        async with hub.connection() as connection:
            carrying = asyncio.create_task(pump(pending, connection))
            async with asyncio.TaskGroup() as tasks:
                waiting = [tasks.create_task(pending.call("x" * n)) for n in range(1000)]
            results = [one.result() for one in waiting]
            with pytest.raises(ClosedError, match="closed"):
                await pending.call("refuse")
            carrying.cancel()
            await asyncio.wait({carrying})
        await hub.left()
        return results

    assert [len(result) for result in asyncio.run(scenario())] == list(range(1000))


def test_a_client_that_knows_no_session_is_refused():
    async def scenario():
        hub = Hub()
        hub.sessions.open(NAME)
        async with hub.connection("m" * 32) as stranger:
            assert stranger is None
        async with hub.connection() as connection:
            await connection.submit([(1, "mine")], [])
            assert await results_of(connection, 1) == {1: "mine"}
        await hub.left()

    asyncio.run(scenario())


def test_calls_are_cancelled_when_their_worker_does_not_come_back(leaping):
    async def scenario(leap):
        hub = Hub()
        hub.sessions.open(NAME)
        async with hub.connection() as connection:
            await connection.submit([(1, "hold"), (2, "quick")], [])
            assert await results_of(connection, 1) == {2: "quick"}
        await hub.left()
        assert not hub.cancelled.is_set()
        leap(5)
        await hub.cancelled.wait()

    leaping(scenario)


def test_a_result_lost_with_a_connection_arrives_over_the_next_and_is_computed_once():
    async def scenario():
        hub, first, second = Hub(), "1" * 32, "2" * 32
        hub.sessions.open(first)
        async with hub.connection(first) as connection:
            await connection.submit([(1, "arrives"), (2, "hold")], [])
            assert await results_of(connection, 1) == {1: "arrives"}
            await connection.submit([(3, "on its way"), (4, "cancelled")], [])
            await hub.done(3)
        hub.sessions.open(second, first)
        async with hub.connection(second) as connection:
            await connection.submit([(3, "on its way"), (5, "new")], [4])
            assert await results_of(connection, 2) == {3: "on its way", 5: "new"}
            hub.sessions.close(second)
        await hub.left()
        return hub.worked_on

    assert asyncio.run(scenario()) == ["arrives", "hold", "on its way", "cancelled", "new"]


def test_a_worker_that_only_receives_sends_heartbeats(leaping):
    async def scenario(leap):
        hub = Hub(heartbeat_s=10.0, session_timeout_s=300.0)
        hub.sessions.open(NAME)
        async with hub.connection() as connection:
            for _ in range(40):  # heartbeats of the hub, for 400 s
                sign = asyncio.create_task(connection.collect())
                while not sign.done():
                    await asyncio.sleep(0.001)
                    leap(1)
                assert sign.result() == []
            await connection.submit([(1, "still here")], [])
            assert await results_of(connection, 1) == {1: "still here"}
        await hub.left()

    leaping(scenario)


def test_a_silent_worker_is_disconnected(leaping):
    async def scenario(leap):
        hub = Hub(heartbeat_s=10.0, session_timeout_s=300.0)
        hub.sessions.open(NAME)
        address = await hub.server.address()
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(NAME.encode() + frame(encode_message([(1, "hold")], [], dumps=pickle.dumps)))
        await hub.begun.wait()
        leap(300)
        await hub.cancelled.wait()
        await reader.read()  # to the end of the connection
        writer.close()
        await hub.left()

    leaping(scenario)


def test_a_connection_to_a_silent_hub_is_over():
    async def scenario():
        hub = Hub()
        hub.sessions.open(NAME)
        async with hub.connection(silence_timeout_s=0.05) as connection:
            assert await connection.collect() is None
            assert (connection.over, connection.silent) == (True, True)
        await hub.left()

    asyncio.run(scenario())


def test_a_worker_that_was_suspended_for_long_still_receives_the_hubs_messages(leaping):
    async def scenario(leap):
        hub = Hub(heartbeat_s=10.0)
        hub.sessions.open(NAME)
        async with hub.connection(silence_timeout_s=130.0) as connection:
            sign = asyncio.create_task(connection.collect())
            await asyncio.sleep(0.001)
            leap(200)
            assert await sign == []
            await connection.submit([(1, "still here")], [])
            assert await results_of(connection, 1) == {1: "still here"}
        await hub.left()

    leaping(scenario)


class Unimportable:
    """As an instance of a user's class that only the worker can import."""

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
        hub.sessions.open(NAME)
        async with hub.connection() as connection:
            await connection.submit([(1, "before"), (2, item), (3, "after")], [])
            results = await results_of(connection, 3)
            await connection.submit([(4, "later")], [])
            results |= await results_of(connection, 1)
        await hub.left()
        return results

    results = asyncio.run(scenario())
    error = results.pop(2)
    assert isinstance(error, DataError)
    assert why in str(error)
    assert results == {1: "before", 3: "after", 4: "later"}


def test_a_worker_unpickles_nothing_from_a_stranger_at_the_hubs_former_address():
    unpickled = []

    class Trap:
        def __reduce__(self):
            return unpickled.append, ("trapped",)

    async def stranger(_, writer):
        writer.write(b"s" * 32 + frame(pickle.dumps(Trap())))
        writer.close()

    async def scenario():
        async with await asyncio.start_server(stranger, HERE, 0) as server:
            address = RpcAddress(HERE, server.sockets[0].getsockname()[1], "h" * 32)
            return await open_connection(
                address, NAME, dumps=pickle.dumps, heartbeat_s=10.0, silence_timeout_s=60.0
            )

    assert asyncio.run(scenario()) is None
    assert unpickled == []


def test_a_server_has_no_address_without_a_host_and_none_after_closing():
    async def scenario():
        hub = Hub()
        opened = await hub.server.address()
        hub.server.close()
        nowhere = RpcServer(hub.sessions, "192.0.2.1")  # an address that no machine has
        unreachable = await open_connection(
            opened, NAME, dumps=pickle.dumps, heartbeat_s=10.0, silence_timeout_s=60.0
        )
        return opened, [
            await hub.server.address(),
            await RpcServer(hub.sessions, None).address(),
            await nowhere.address(),
            unreachable,
        ]

    opened, others = asyncio.run(scenario())
    assert isinstance(opened, RpcAddress)
    assert others == [None] * 4
