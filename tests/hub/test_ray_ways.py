"""Where rows go by calls of the hub's actor, and where over a connection; without Ray's processes."""

import asyncio
from contextlib import asynccontextmanager

import pytest

pytest.importorskip("ray")

from zerowait.hub.ray.transports import ActorCallTransport, TransportSelection
from zerowait.hub.rpc.codec import decoded_parts
from zerowait.hub.rpc.connection import RpcAddress, RpcConnection
from zerowait.hub.rpc.server import RpcServer
from zerowait.hub.rpc.sessions import Sessions

HERE = "127.0.0.1"


class Method:
    def __init__(self, method):
        self._method = method

    def remote(self, *arguments):
        return asyncio.create_task(self._method(*arguments))


class Actor:
    """A hub that gives back what it is given, behind a door of its own or another one."""

    def __init__(self, door=None):
        self.sessions = Sessions(self._work, beat_s=10.0, silence_s=300.0)
        self._entrance = RpcServer(self.sessions, HERE)
        self.door, self.afters, self.worked = door, [], asyncio.Event()
        self.join, self.submit = Method(self._join), Method(self._submit)
        self.collect, self.leave = Method(self.sessions.collect), Method(self._leave)

    async def left(self):
        while len(self.sessions):  # noqa: ASYNC110 - a session tells nobody that it is over
            await asyncio.sleep(0)
        self._entrance.close()

    async def _join(self, _config, name, _shards, after):
        self.afters.append(after)
        self.sessions.join(name, after)
        return self.door or await self._entrance.door()

    async def _submit(self, name, parcel):
        return self.sessions.submit(name, *decoded_parts(parcel))

    async def _leave(self, name):
        self.sessions.leave(name)

    async def _work(self, item):
        self.worked.set()
        return item


@asynccontextmanager
async def slammed(came, says=b""):
    """The door to a port at which somebody else listens, and lets each who `came` go at once."""

    async def slam(_, writer):
        came.append(1)
        writer.write(says)
        writer.close()

    async with await asyncio.start_server(slam, HERE, 0) as server:
        yield RpcAddress(HERE, server.sockets[0].getsockname()[1], "h" * 32)


async def answer(call, *, more_s=0.0):
    async with asyncio.timeout(30 + more_s):
        return await call


async def asked(ways, actor):
    """How the session was held, and what came of a row; None where the session was over."""
    async with ways.session(actor, "reward.yaml", None, "", answer=answer) as (_, way):
        handed_in = await way.submit([(1, "row")], [])
        return type(way), await way.collect() if handed_in else None


def warnings_of(caplog):
    return [one.getMessage() for one in caplog.records if one.name.startswith("zerowait")]


BY_CALLS, CONNECTED = (ActorCallTransport, [(1, "row")]), (RpcConnection, [(1, "row")])


def test_a_door_that_leads_nowhere_is_tried_once_until_the_hub_is_started_again(caplog):
    async def scenario():
        ways, came, again = TransportSelection(silence_s=60.0), [], Actor()
        async with slammed(came) as door:
            results = [await asked(ways, Actor(door)) for _ in range(3)]
        connected = await asked(ways, again)
        await again.left()
        return came, results, connected

    assert asyncio.run(scenario()) == ([1], [BY_CALLS] * 3, CONNECTED)
    [warning] = warnings_of(caplog)
    assert "rows go there by calls" in warning


def test_rows_go_by_calls_where_connections_are_made_and_cut_before_the_hub_is_heard(caplog):
    async def scenario():
        ways, came = TransportSelection(silence_s=60.0), []
        async with slammed(came, says=b"h" * 32) as door:
            behind = Actor(door)
            cut = (await asked(ways, behind))[1]
            return cut, [await asked(ways, behind) for _ in range(3)], came

    assert asyncio.run(scenario()) == (None, [BY_CALLS] * 3, [1])
    [_] = warnings_of(caplog)


def test_nobody_is_warned_where_a_hub_that_was_killed_cut_the_connection(caplog):
    async def scenario():
        ways, again = TransportSelection(silence_s=60.0), Actor()
        async with slammed([], says=b"h" * 32) as door:
            cut = (await asked(ways, Actor(door)))[1]
        connected = await asked(ways, again)
        await again.left()
        return cut, connected

    assert asyncio.run(scenario()) == (None, CONNECTED)
    assert warnings_of(caplog) == []


def test_a_session_whose_connection_was_cut_is_left_to_the_next_and_others_are_left_at_once():
    async def scenario():
        ways, names, actor = TransportSelection(silence_s=60.0), [], Actor()

        async def leave(name):
            names.append(name)

        actor.leave = Method(leave)
        async with slammed([], says=b"h" * 32) as door:
            actor.door = door
            async with ways.session(actor, "c", None, "", answer=answer) as (cut, way):
                assert await way.collect() is None
            actor.door = None
            async with ways.session(actor, "c", None, cut, answer=answer) as (name, _):
                pass
        await actor.left()
        return actor.afters, names == [name], cut

    afters, others_left, cut = asyncio.run(scenario())
    assert afters == ["", cut]
    assert others_left


def test_a_session_by_calls_that_the_hub_ended_is_left_to_the_next_as_well():
    async def scenario():
        async with slammed([]) as door:
            ways, actor = TransportSelection(silence_s=60.0), Actor(door)
            async with ways.session(actor, "c", None, "", answer=answer) as (name, way):
                await way.submit([(1, "row")], [])
                await actor.worked.wait()
                actor.sessions.cut(name)  # as it does where it heard nothing for long
                assert await way.collect() is None
            async with ways.session(actor, "c", None, name, answer=answer) as (_, way):
                await way.submit([(1, "another row")], [])
                return await way.collect()

    assert asyncio.run(scenario()) == [(1, "row")]


def test_a_row_that_cannot_travel_fails_alone_by_calls_too():
    async def scenario():
        async with slammed([]) as door:
            session = TransportSelection(silence_s=60.0).session(
                Actor(door), "c", None, "", answer=answer
            )
            async with session as (_, way):
                await way.submit([(1, "row"), (2, (n for n in ()))], [])
                return dict(await way.collect())

    results = asyncio.run(scenario())
    assert results[1] == "row"
    assert "cannot be sent to another process: TypeError: cannot pickle" in str(results[2])
