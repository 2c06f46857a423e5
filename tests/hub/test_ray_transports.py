"""Choice between a TCP connection and calls of the hub's actor; without Ray's processes."""

import asyncio
from contextlib import asynccontextmanager

import pytest

pytest.importorskip("ray")

from zerowait.hub.ray.client import ActorCallTransport, TransportSelection
from zerowait.hub.rpc import RpcAddress, RpcConnection, RpcServer, Sessions, decode_message

HERE = "127.0.0.1"


class Method:
    def __init__(self, method):
        self._method = method

    def remote(self, *arguments):
        return asyncio.create_task(self._method(*arguments))


class Actor:
    """A hub that returns each payload, at its own address or the one that it is given."""

    def __init__(self, address=None):
        self.sessions = Sessions(self._work, heartbeat_s=10.0, session_timeout_s=300.0)
        self._server = RpcServer(self.sessions, HERE)
        self.address, self.previous, self.worked = address, [], asyncio.Event()
        self.open_session, self.submit = Method(self._open_session), Method(self._submit)
        self.collect = Method(self.sessions.collect)
        self.close_session = Method(self._close_session)

    async def left(self):
        while len(self.sessions):  # noqa: ASYNC110 - the end of a session has no event
            await asyncio.sleep(0)
        self._server.close()

    async def _open_session(self, _config, name, _shards, previous):
        self.previous.append(previous)
        self.sessions.open(name, previous)
        return self.address or await self._server.address()

    async def _submit(self, name, message):
        return self.sessions.submit(name, *decode_message(message))

    async def _close_session(self, name):
        self.sessions.close(name)

    async def _work(self, item):
        self.worked.set()
        return item


@asynccontextmanager
async def hanging_up(connections, says=b""):
    """The address of a server that counts its `connections`, sends `says` and hangs up."""

    async def hang_up(_, writer):
        connections.append(1)
        writer.write(says)
        writer.close()

    async with await asyncio.start_server(hang_up, HERE, 0) as server:
        yield RpcAddress(HERE, server.sockets[0].getsockname()[1], "h" * 32)


@asynccontextmanager
async def falling_silent():
    """The address of a server that proves who it is and says nothing more."""
    over = asyncio.Event()

    async def prove(_, writer):
        writer.write(b"h" * 32)
        await over.wait()
        writer.close()

    async with await asyncio.start_server(prove, HERE, 0) as server:
        yield RpcAddress(HERE, server.sockets[0].getsockname()[1], "h" * 32)
        over.set()


async def answer(call, *, more_s=0.0):
    async with asyncio.timeout(30 + more_s):
        return await call


async def asked(transports, actor):
    """The transport of a session and the results of a row; None where the session was over."""
    async with transports.session(actor, "reward.yaml", None, "", answer=answer) as (_, transport):
        submitted = await transport.submit([(1, "row")], [])
        return type(transport), await transport.collect() if submitted else None


def warnings_of(caplog):
    return [one.getMessage() for one in caplog.records if one.name.startswith("zerowait")]


BY_CALLS, CONNECTED = (ActorCallTransport, [(1, "row")]), (RpcConnection, [(1, "row")])


def test_an_address_that_fails_is_tried_once_until_the_hub_is_restarted(caplog):
    async def scenario():
        transports, connections, again = TransportSelection(silence_timeout_s=60.0), [], Actor()
        async with hanging_up(connections) as address:
            results = [await asked(transports, Actor(address)) for _ in range(3)]
        over_tcp = await asked(transports, again)
        await again.left()
        return connections, results, over_tcp

    assert asyncio.run(scenario()) == ([1], [BY_CALLS] * 3, CONNECTED)
    [warning] = warnings_of(caplog)
    assert "rows go there by calls" in warning


def test_rows_go_by_calls_where_connections_are_cut_before_a_message_arrives(caplog):
    async def scenario():
        transports, connections = TransportSelection(silence_timeout_s=60.0), []
        async with hanging_up(connections, says=b"h" * 32) as address:
            behind = Actor(address)
            cut = (await asked(transports, behind))[1]
            return cut, [await asked(transports, behind) for _ in range(3)], connections

    assert asyncio.run(scenario()) == (None, [BY_CALLS] * 3, [1])
    [_] = warnings_of(caplog)


def test_no_warning_where_the_death_of_a_hub_cut_the_connection(caplog):
    async def scenario():
        transports, again = TransportSelection(silence_timeout_s=60.0), Actor()
        async with hanging_up([], says=b"h" * 32) as address:
            cut = (await asked(transports, Actor(address)))[1]
        over_tcp = await asked(transports, again)
        await again.left()
        return cut, over_tcp

    assert asyncio.run(scenario()) == (None, CONNECTED)
    assert warnings_of(caplog) == []


def test_a_connection_is_tried_again_when_a_firewall_may_have_been_opened(leaping, caplog):
    async def scenario(leap):
        transports, actor = TransportSelection(silence_timeout_s=60.0), Actor()
        async with hanging_up([]) as shut:
            actor.address = shut
            results = [await asked(transports, actor) for _ in range(2)]
        async with await asyncio.start_server(actor._server._serve, HERE, shut.port) as opened:
            actor.address = RpcAddress(HERE, shut.port, actor._server._secret)
            transports._avoided = actor.address
            results.append(await asked(transports, actor))
            leap(300)
            results.append(await asked(transports, actor))
            opened.close()
        await actor.left()
        return results

    assert leaping(scenario) == [BY_CALLS, BY_CALLS, BY_CALLS, CONNECTED]
    assert len(warnings_of(caplog)) == 1


def test_rows_go_by_calls_where_connections_fall_silent_twice(caplog):
    async def scenario():
        transports, actor = TransportSelection(silence_timeout_s=0.04), Actor()
        async with falling_silent() as address:
            actor.address = address
            return [await asked(transports, actor) for _ in range(3)]

    silent = (RpcConnection, None)
    assert asyncio.run(scenario()) == [silent, silent, BY_CALLS]
    assert ["by calls" in one for one in warnings_of(caplog)] == [False, False, True]


def test_a_session_whose_connection_was_cut_is_inherited_and_others_are_closed_at_once():
    async def scenario():
        transports, names, actor = TransportSelection(silence_timeout_s=60.0), [], Actor()

        async def leave(name):
            names.append(name)

        actor.close_session = Method(leave)
        async with hanging_up([], says=b"h" * 32) as address:
            actor.address = address
            async with transports.session(actor, "c", None, "", answer=answer) as (cut, transport):
                assert await transport.collect() is None
            actor.address = None
            async with transports.session(actor, "c", None, cut, answer=answer) as (name, _):
                pass
        await actor.left()
        return actor.previous, names == [name], cut

    previous, others_closed, cut = asyncio.run(scenario())
    assert previous == ["", cut]
    assert others_closed


def test_a_session_by_calls_that_the_hub_disconnected_is_inherited_too():
    async def scenario():
        async with hanging_up([]) as address:
            transports, actor = TransportSelection(silence_timeout_s=60.0), Actor(address)
            async with transports.session(actor, "c", None, "", answer=answer) as (name, transport):
                await transport.submit([(1, "row")], [])
                await actor.worked.wait()
                actor.sessions.disconnect(name)  # as it does where it heard nothing for long
                assert await transport.collect() is None
            async with transports.session(actor, "c", None, name, answer=answer) as (_, transport):
                await transport.submit([(1, "another row")], [])
                return await transport.collect()

    assert asyncio.run(scenario()) == [(1, "row")]


def test_a_row_that_cannot_be_pickled_fails_alone_by_calls_too():
    async def scenario():
        async with hanging_up([]) as address:
            session = TransportSelection(silence_timeout_s=60.0).session(
                Actor(address), "c", None, "", answer=answer
            )
            async with session as (_, transport):
                await transport.submit([(1, "row"), (2, (n for n in ()))], [])
                return dict(await transport.collect())

    results = asyncio.run(scenario())
    assert results[1] == "row"
    assert "cannot be sent to another process: TypeError: cannot pickle" in str(results[2])
