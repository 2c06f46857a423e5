import asyncio
import gc
import gzip
import pickle
import socket
import struct
import subprocess
import sys
import traceback
import zlib
from contextlib import asynccontextmanager, suppress

import pytest
import uvloop

from zerowait.client import HttpTransport, Request, TransportError
from zerowait.errors import ClosedError
from zerowait.types import FailureKind

KEY = "sk-planted-0123456789"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Thing: A\r\n\r\nok"


class Wire:
    """A server that does to each request what its script says, byte by byte.

    A step is bytes to write, ``hang``, ``eof`` (it says no more and reads on), ``fin``, ``rst``, or
    a tuple of these.
    """

    def __init__(self, *steps):
        self.steps = list(steps)
        self.requests = []
        self.connections = 0
        self.closed_by_peer = asyncio.Event()
        self.arrived = asyncio.Event()

    async def serve(self, reader, writer):
        self.connections += 1
        try:
            while await self.one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            self.closed_by_peer.set()
        finally:
            writer.close()

    async def seen(self, count):
        async with asyncio.timeout(60.0):
            while len(self.requests) < count:
                self.arrived.clear()
                await self.arrived.wait()

    async def one(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        lengths = [int(line[15:]) for line in lines if line.startswith(b"content-length:")]
        length = sum(lengths)
        self.requests.append((head, await reader.readexactly(length)))
        self.arrived.set()
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        for part in step if isinstance(step, tuple) else (step,):
            if part == "hang":
                await reader.readexactly(1)
            elif part == "eof":
                writer.write_eof()
            elif part == "rst":
                writer.get_extra_info("socket").setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
                return False
            elif part == "fin":
                return False
            else:
                writer.write(part)
                await writer.drain()
        return True


@asynccontextmanager
async def serving(*steps, **options):
    wire = Wire(*steps)
    server = await asyncio.start_server(wire.serve, "127.0.0.1", 0, backlog=256)
    port = server.sockets[0].getsockname()[1]
    # however busy the machine is, no connection is late, or too old to be used again
    transport = HttpTransport(**{"connect_timeout_s": 60.0, "keepalive_s": 60.0} | options)
    wire.request = Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"},
        b'{"model":"m"}',
    )
    try:
        yield wire, transport
    finally:
        await transport.aclose()
        server.close()
        await server.wait_closed()


async def failure(transport, request, timeout_s=60.0):
    with pytest.raises(TransportError) as caught:
        await transport.send(request, timeout_s=timeout_s)
    return caught.value


def test_a_reply_arrives_whole_with_lower_case_header_names():
    async def main():
        async with serving(OK) as (wire, transport):
            return await transport.send(wire.request, timeout_s=60.0), wire.requests

    reply, requests = asyncio.run(main())
    assert (reply.status, reply.body, reply.headers["x-thing"]) == (200, b"ok", "A")
    ((head, body),) = requests
    assert head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
    assert body == b'{"model":"m"}'
    assert f"Bearer {KEY}".encode() in head
    assert b"cookie" not in head.lower()
    assert b"accept" not in head.lower()


def test_a_large_body_arrives_whole_and_without_a_warning():
    body = b"x" * (3 * 2**20)

    async def main():
        async with serving(OK) as (wire, transport):
            request = Request(wire.request.url, {}, body)
            await transport.send(request, timeout_s=60.0)
            return wire.requests[0][1]

    assert asyncio.run(main()) == body


def test_one_connection_serves_calls_that_follow_each_other():
    async def main():
        async with serving(OK) as (wire, transport):
            for _ in range(5):
                await transport.send(wire.request, timeout_s=60.0)
            return wire.connections

    assert asyncio.run(main()) == 1


def test_calls_at_the_same_time_are_not_held_back_by_the_pool():
    async def main():
        async with serving("hang") as (wire, transport):
            async with asyncio.TaskGroup() as group:
                calls = [
                    group.create_task(transport.send(wire.request, timeout_s=60.0))
                    for _ in range(150)
                ]
                await wire.seen(150)
                for call in calls:
                    call.cancel()
            return wire.connections

    assert asyncio.run(main()) == 150


def test_an_idle_connection_is_not_used_past_its_keepalive():
    async def main():
        async with serving(OK, keepalive_s=0.01) as (wire, transport):
            await transport.send(wire.request, timeout_s=60.0)
            await asyncio.sleep(0.05)
            await transport.send(wire.request, timeout_s=60.0)
            return wire.connections

    assert asyncio.run(main()) == 2


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ("rst", "the connection broke"),
        ("fin", "closed without an answer"),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", "fin"), "cut short"),
        ((b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", "fin"), "cut short"),
        ((b"HTTP/1.1 200 OK\r\nContent-Len", "fin"), "closed without an answer"),
        ((b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "fin"), "not HTTP"),
    ],
)
@pytest.mark.parametrize("reused", [False, True])
def test_a_broken_connection_is_unreachable_and_says_whether_it_was_reused(step, words, reused):
    async def main():
        async with serving(*([OK] if reused else []), step) as (wire, transport):
            if reused:
                await transport.send(wire.request, timeout_s=60.0)
            return await failure(transport, wire.request), len(wire.requests)

    error, requests = asyncio.run(main())
    assert error.kind is FailureKind.UNREACHABLE
    assert words in error.detail
    assert error.reused_connection is reused
    assert error.sent
    assert requests == 1 + reused  # nothing is sent twice behind our back


def test_a_connection_that_the_server_closed_while_idle_is_replaced_without_an_error():
    async def main():
        async with serving((OK, "eof"), OK) as (wire, transport):
            await transport.send(wire.request, timeout_s=60.0)
            async with asyncio.timeout(60.0):  # until it has seen the end, and closed its own
                await wire.closed_by_peer.wait()
            await transport.send(wire.request, timeout_s=60.0)
            return wire.connections

    assert asyncio.run(main()) == 2


def test_when_one_connection_turns_out_stale_those_that_were_idle_for_longer_are_closed_too():
    """A load balancer that restarts resets all of them, each when it is used again."""
    connections, opened = [], asyncio.Event()

    async def once(reader, writer):
        connections.append(writer)
        if len(connections) == 4:
            opened.set()
        await reader.readuntil(b"\r\n\r\n{}")
        await opened.wait()
        writer.write(OK)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\n{}")
        writer.transport.abort()

    async def main():
        server = await asyncio.start_server(once, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        request = Request(f"http://127.0.0.1:{port}/v1", {}, b"{}")
        transport = HttpTransport(connect_timeout_s=60.0, keepalive_s=60.0)
        async with server:
            async with asyncio.TaskGroup() as group:
                for _ in range(4):
                    group.create_task(transport.send(request, timeout_s=60.0))
            error = await failure(transport, request)
            reply = await transport.send(request, timeout_s=60.0)
            await transport.aclose()
        return error, reply

    error, reply = asyncio.run(main())
    assert error.reused_connection
    assert reply.body == b"ok"
    assert len(connections) == 5


def test_a_name_server_that_is_away_for_a_while_costs_no_request(leaping):
    """The addresses that it gave before are used; a name that it never knew is unknown."""

    async def main(leap):
        loop = asyncio.get_running_loop()
        resolve, lookups = loop.getaddrinfo, []

        async def away(host, *arguments, **options):
            lookups.append(host)
            if len(lookups) in (2, 3):
                raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
            return await resolve(host, *arguments, **options)

        loop.getaddrinfo = away
        closing = OK.replace(b"X-Thing: A", b"Connection: close")
        async with serving((closing, "fin")) as (wire, transport):
            for _ in range(4):
                await transport.send(wire.request, timeout_s=60.0)
                leap(11)
        async with serving(OK) as (wire, transport):
            lookups[:] = ["one"]
            return await failure(transport, wire.request), len(wire.requests)

    error, requests = leaping(main)
    assert "the host's name is unknown (Temporary failure in name resolution)" in error.detail
    assert not error.sent
    assert requests == 0


@pytest.mark.parametrize("before_s", [300.0, 60.0])
def test_a_request_has_its_own_time_on_a_connection_that_served_another(before_s, leaping):
    async def main(leap):
        async with serving(OK, "hang") as (wire, transport):
            await transport.send(wire.request, timeout_s=before_s)
            waiting = asyncio.create_task(failure(transport, wire.request, timeout_s=90.0))
            await wire.seen(2)
            leap(60)  # the time of the one before may be over
            for _ in range(20):
                await asyncio.sleep(0.001)
            is_over_early = waiting.done()
            leap(30)
            return await waiting, is_over_early, wire.connections

    error, is_over_early, connections = leaping(main)
    assert error.detail == "no complete reply in 90 s"
    assert not is_over_early
    assert connections == 1


@pytest.mark.parametrize(
    "step", ["hang", (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", "hang")]
)
def test_no_complete_reply_in_time_is_a_timeout_and_closes_the_connection(step, leaping):
    async def main(leap):
        async with serving(step) as (wire, transport):
            waiting = asyncio.create_task(failure(transport, wire.request, timeout_s=60.0))
            await wire.seen(1)
            leap(60)
            error = await waiting
            async with asyncio.timeout(60.0):
                await wire.closed_by_peer.wait()
            return error

    error = leaping(main)
    assert error.kind is FailureKind.TIMEOUT
    assert error.detail == "no complete reply in 60 s"
    assert error.sent


def test_cancelling_a_call_closes_its_connection_at_once():
    async def main():
        async with serving("hang") as (wire, transport):
            call = asyncio.create_task(transport.send(wire.request, timeout_s=60.0))
            async with asyncio.timeout(60.0):
                await wire.seen(1)
                call.cancel()
                await wire.closed_by_peer.wait()
            assert call.cancelled()

    asyncio.run(main())


def test_a_port_where_nobody_listens_is_unreachable():
    async def main(port):
        transport = HttpTransport()
        try:
            return await failure(transport, Request(f"http://127.0.0.1:{port}/", {}, b""))
        finally:
            await transport.aclose()

    with socket.socket() as ours:  # bound, so that no other process takes it, and not listening
        ours.bind(("127.0.0.1", 0))
        error = asyncio.run(main(ours.getsockname()[1]))
    assert error.kind is FailureKind.UNREACHABLE
    assert error.reused_connection is False
    assert not error.sent
    assert "no connection" in error.detail


def test_a_server_that_never_accepts_is_unreachable_and_not_a_timeout():
    async def main():
        with socket.socket() as full:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            address = full.getsockname()
            with socket.create_connection(address):  # fills the queue of waiting connections
                transport = HttpTransport(connect_timeout_s=0.1)
                try:
                    request = Request(f"http://127.0.0.1:{address[1]}/", {}, b"")
                    return await failure(transport, request, timeout_s=60.0)
                finally:
                    await transport.aclose()

    error = asyncio.run(main())
    assert error.kind is FailureKind.UNREACHABLE
    assert "no connection in time" in error.detail
    assert not error.sent


def test_a_server_that_does_not_speak_tls_is_unreachable():
    def plain(_, writer):
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def main():
        server = await asyncio.start_server(plain, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        transport = HttpTransport()
        try:
            return await failure(transport, Request(f"https://127.0.0.1:{port}/", {}, b""))
        finally:
            await transport.aclose()
            server.close()

    error = asyncio.run(main())
    assert error.kind is FailureKind.UNREACHABLE
    assert error.reused_connection is False
    assert "TLS" in error.detail


def test_a_transport_error_survives_pickling():
    error = TransportError(FailureKind.UNREACHABLE, "gone", reused_connection=True, sent=False)
    again = pickle.loads(pickle.dumps(error))
    assert (again.kind, again.detail, again.reused_connection, again.sent, str(again)) == (
        FailureKind.UNREACHABLE,
        "gone",
        True,
        False,
        "gone",
    )


def test_redirects_are_not_followed():
    moved = b"HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"

    async def main():
        async with serving(moved) as (wire, transport):
            return (await transport.send(wire.request, timeout_s=60.0)).status

    assert asyncio.run(main()) == 307


def test_cookies_are_not_kept():
    cookie = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 2\r\n\r\nok"

    async def main():
        async with serving(cookie) as (wire, transport):
            for _ in range(2):
                await transport.send(wire.request, timeout_s=60.0)
            return wire.requests[1][0]

    assert b"cookie" not in asyncio.run(main()).lower()


def test_no_proxy_of_the_environment_is_used(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)

    async def main():
        async with serving(OK) as (wire, transport):
            return (await transport.send(wire.request, timeout_s=60.0)).status

    assert asyncio.run(main()) == 200


@pytest.mark.parametrize("step", ["rst", "fin", (b"HTTP/1.1 2x0\r\n\r\n", "fin")])
def test_no_error_carries_the_key_even_where_a_traceback_is_shown_with_its_causes(step):
    async def main():
        async with serving(step) as (wire, transport):
            return await failure(transport, wire.request)

    error = asyncio.run(main())
    chain, shown = error, []
    while chain is not None:
        shown.append(repr(chain) + str(vars(chain)))
        chain = chain.__cause__ or chain.__context__
    assert "planted" not in "".join(shown + traceback.format_exception(error))


def test_a_closed_transport_leaves_nothing_open_and_refuses_to_send():
    async def main():
        async with serving(OK, "hang") as (wire, transport):
            await transport.send(wire.request, timeout_s=60.0)
            call = asyncio.create_task(transport.send(wire.request, timeout_s=60.0))
            await wire.seen(2)
            await transport.aclose()
            await transport.aclose()
            with pytest.raises(TransportError):
                await call
            with pytest.raises(ClosedError):
                await transport.send(wire.request, timeout_s=60.0)

    asyncio.run(main())
    gc.collect()  # an unclosed session or connector would warn, and warnings are errors


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n"
GZIPPED = gzip.compress(b"ok", mtime=0)  # with the time in it, no two processes agree on ids
PACKED = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b" % (
    len(GZIPPED),
    GZIPPED,
)
_PACKER = zlib.compressobj(wbits=-15)  # no header around it, as some servers understand deflate
_DEFLATED = _PACKER.compress(b"ok") + _PACKER.flush()
BARE = b"HTTP/1.1 200 OK\r\nContent-Encoding: deflate\r\nContent-Length: %d\r\n\r\n%b" % (
    len(_DEFLATED),
    _DEFLATED,
)


@pytest.mark.parametrize(
    "step",
    [
        (OK[:30], OK[30:]),
        CHUNKED,
        (CHUNKED[:60], CHUNKED[60:]),
        PACKED,
        OK.replace(b"X-Thing: A", b"Content-Encoding: identity"),
        BARE,
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
        (b"HTTP/1.1 200 OK\r\n\r\nok", "fin"),
        (b"HTTP/1.0 200 OK\r\n\r\nok", "fin"),
    ],
)
def test_a_body_arrives_whole_however_it_is_framed(step):
    async def main():
        async with serving(step) as (wire, transport):
            return await transport.send(wire.request, timeout_s=60.0)

    reply = asyncio.run(main())
    assert (reply.status, reply.body) == (200, b"ok")


def test_a_reply_that_nobody_asked_for_never_becomes_the_next_one():
    async def main():
        async with serving(OK + OK.replace(b"ok", b"no"), OK) as (wire, transport):
            replies = [await transport.send(wire.request, timeout_s=60.0) for _ in range(2)]
            return [reply.body for reply in replies], wire.connections

    assert asyncio.run(main()) == ([b"ok", b"ok"], 2)


def test_a_connection_that_the_server_wants_closed_is_not_used_again():
    last = OK.replace(b"X-Thing: A", b"Connection: close")

    async def main():
        async with serving(last, OK) as (wire, transport):
            for _ in range(2):
                await transport.send(wire.request, timeout_s=60.0)
            return wire.connections

    assert asyncio.run(main()) == 2


def test_the_transport_keeps_its_promises_under_uvloop_too():
    async def main():
        async with serving(OK, OK, "hang") as (wire, transport):
            for _ in range(2):
                assert (await transport.send(wire.request, timeout_s=60.0)).body == b"ok"
            call = asyncio.create_task(transport.send(wire.request, timeout_s=60.0))
            async with asyncio.timeout(60.0):
                await wire.seen(3)
                call.cancel()
                await wire.closed_by_peer.wait()
            return wire.connections

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(main()) == 1


def test_a_transport_that_never_sent_can_be_closed():
    asyncio.run(HttpTransport().aclose())


def test_importing_the_client_does_not_load_aiohttp():
    code = "import sys, zerowait.client; sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_reply_without_an_end_does_not_fill_the_memory():
    chunk = b"100000\r\n" + b"x" * 2**20 + b"\r\n"
    endless = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

    async def main():
        async with serving((endless, *[chunk] * 40, "hang")) as (wire, transport):
            error = await failure(transport, wire.request, timeout_s=60.0)
            async with asyncio.timeout(60.0):
                await wire.closed_by_peer.wait()
            return error

    error = asyncio.run(main())
    assert error.kind is FailureKind.UNREACHABLE
    assert error.detail == "the reply is longer than 16 MiB"


def test_a_reply_that_unpacks_without_an_end_does_not_fill_the_memory():
    bomb = gzip.compress(b"x" * (17 * 2**20))
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"

    async def main():
        async with serving(head % len(bomb) + bomb) as (wire, transport):
            return await failure(transport, wire.request, timeout_s=60.0)

    assert asyncio.run(main()).detail == "the reply is longer than 16 MiB"


@pytest.mark.parametrize("encoding", ["br", "zstd", "compress", "gzip, br"])
def test_a_reply_that_is_packed_in_a_way_that_was_not_asked_for_says_so(encoding):
    packed = OK.replace(b"X-Thing: A", b"Content-Encoding: " + encoding.encode())

    async def main():
        async with serving(packed) as (wire, transport):
            return await failure(transport, wire.request)

    says = f"the reply is packed as '{encoding}', which was not asked for"
    assert asyncio.run(main()).detail == says
