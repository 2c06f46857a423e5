"""The HTTP face of the fake judge: waits, sends, breaks connections and counts."""

from __future__ import annotations

import asyncio
import hmac
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
from aiohttp import web

from zerowait.config.endpoint import Api
from zerowait.testing.judge_request import BadRequestError, parsed_request
from zerowait.testing.capacity import CapacityGate
from zerowait.testing.draws import body_key
from zerowait.testing.reply_plan import Hold, PlannedReply, planned
from zerowait.testing.replies import FakeReply, failed_reply, models
from zerowait.testing.script import Script
from zerowait.testing.request_log import RequestLog, SeenQuestion

_BACKLOG = 4096  # a thousand clients may connect at once; the usual 128 makes them wait a second
_LARGEST_BODY_BYTES = 256 * 2**20
_TURNS_TO_ACCEPT = 3
_LINGER_NOT_AT_ALL = struct.pack("ii", 1, 0)
_PAGES = ("/v1/models", "/healthz", "/stats")
_APIS: Final[dict[str, Api]] = {
    "responses": "responses",
    "classify": "classify",
    "pooling": "pooling",
    "score": "score",
}
_ALWAYS = {"Content-Type": "application/json", "Server": "zerowait-fake-judge"}


class Visit:
    """One request on its way through the judge."""

    __slots__ = ("api", "inside", "question")

    def __init__(self, api: Api) -> None:
        self.api = api
        self.inside = False
        self.question: SeenQuestion | None = None


class JudgeApp:
    """Answers HTTP requests according to a script; belongs to one loop."""

    def __init__(
        self,
        script: Script,
        tally: RequestLog,
        *,
        answer: PlannedReply | None,
        hold: Hold | None = None,
        api_key: str | None,
    ) -> None:
        self._script = script
        self._tally = tally
        self._answer = answer
        self._hold = hold
        self._expected = None if api_key is None else api_key.encode()
        self._gate = CapacityGate(script.capacity)
        self._visitors: set[asyncio.Task[Any]] = set()
        self._closing = False
        self.crash: Exception | None = None

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """The response to any request."""
        api = _api(request.path)
        match request.method, request.path:
            case "POST", _ if api is not None:
                return await self._visit(request, api)
            case "GET", "/v1/models":
                ok = self._may_ask(request)
                return _response(FakeReply(body=models(self._script)) if ok else _unauthorised())
            case "GET", "/healthz":
                return _response(FakeReply(body=b'{"status":"ok"}'))
            case "GET", "/stats":
                return _response(FakeReply(body=msgspec.json.encode(self._tally.snapshot())))
            case _, path if api is not None or path in _PAGES:
                return _response(failed_reply(405, f"{request.method} is not allowed on {path}"))
        return _response(failed_reply(404, f"there is no {request.path} here"))

    def close(self) -> None:
        """Send everybody away who is still waiting."""
        self._closing = True
        for visitor in self._visitors:
            visitor.cancel()

    async def _visit(self, request: web.BaseRequest, api: Api) -> web.StreamResponse:
        if self._closing:
            return _response(failed_reply(503, "the judge is closing"))
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine that runs has a task
        self._visitors.add(task)
        try:
            return await self._exchange(request, Visit(api))
        finally:
            self._visitors.discard(task)

    async def _exchange(self, request: web.BaseRequest, visit: Visit) -> web.StreamResponse:
        if self._tally.at_peak or self._gate.full:
            # a client that gave up one request and sends the next is not two clients: let the
            # loop see the closed connection first
            for _ in range(3):
                await asyncio.sleep(0)
        self._tally.arrived(with_key=_key_in(request) is not None)
        try:
            reply = await self._reply_when_due(request, visit)
            if reply.sent != "all":
                return await self._break_off(request, reply)
        except ConnectionError:
            self._tally.lost(by_client=True)
            return _nobody_listens()
        except BaseException:
            self._tally.lost(by_client=not self._closing)
            raise
        finally:
            if visit.inside:
                self._gate.leave()
        return await self._send(request, reply, visit)

    async def _reply_when_due(self, request: web.BaseRequest, visit: Visit) -> FakeReply:
        if not self._may_ask(request):
            return _unauthorised()
        raw = await request.read()
        key = body_key(raw)
        visit.question = self._tally.asked(key)
        try:
            ask = parsed_request(raw, visit.api)
        except BadRequestError as error:
            return failed_reply(400, str(error))
        busy = self._gate.enter(
            tokens=ask.prompt_tokens + (ask.tokens or 0),
            now_s=asyncio.get_running_loop().time(),
        )
        if busy is not None:
            return failed_reply(429, headers=busy.headers, fault="capacity")
        visit.inside = True
        # a request turned away has no number, so that chance does not depend on who came first
        visit.question.admitted += 1
        try:
            reply = planned(self._script, ask, key, visit.question.admitted, self._answer)
            if self._hold is not None:
                await self._hold(ask.body)
        except Exception as error:  # noqa: BLE001 - the test's own function; raised again by close()
            self.crash = self.crash or error
            return failed_reply(500, f"the test's own function raised {type(error).__name__}")
        if reply.latency_s:
            await asyncio.sleep(reply.latency_s * self._gate.slowdown())
        return reply

    async def _break_off(self, request: web.BaseRequest, reply: FakeReply) -> web.StreamResponse:
        """Send the part of the reply that the fault lets through, then break or fall silent."""
        response = web.StreamResponse(headers=_ALWAYS)
        response.content_length = len(reply.body)
        if reply.sent != "nothing":
            await response.prepare(request)
            await response.write(reply.body[: len(reply.body) // 2 * (reply.sent == "half")])
        if reply.then == "hang":
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(0)  # uvloop sends at the end of a turn; abort() drops what is unsent
        self._tally.broken(reply.fault)
        transport = request.transport
        if transport is None:
            return response
        if reply.then == "close":
            transport.close()
            return response
        sock: socket.socket | None = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT_AT_ALL)
        transport.abort()
        return response

    async def _send(
        self, request: web.BaseRequest, reply: FakeReply, visit: Visit
    ) -> web.StreamResponse:
        answers = visit.question if reply.verdict else None
        headers = self._gate.headers()
        response = _response(reply, headers | reply.headers if headers else reply.headers)
        # before the bytes leave: who has read them may look at the counts at once
        self._tally.sent(reply.status, reply.fault, answers)
        try:
            await response.prepare(request)
            await response.write_eof()
        except ConnectionError:
            self._tally.not_sent(reply.status, reply.fault, answers)
        except asyncio.CancelledError:
            self._tally.not_sent(reply.status, reply.fault, answers)
            raise
        return response

    def _may_ask(self, request: web.BaseRequest) -> bool:
        if self._expected is None:
            return True
        given = (_key_in(request) or "").encode("utf-8", "surrogateescape")
        return hmac.compare_digest(given, self._expected)


@asynccontextmanager
async def listening(face: JudgeApp, host: str, port: int) -> AsyncIterator[int]:
    """The port on which `face` answers while the context lasts.

    Raises:
        OSError: the port cannot be bound.
    """
    loop = asyncio.get_running_loop()

    # aiohttp's own factory refuses bodies above 1 MiB
    def factory(message: Any, payload: Any, *link: Any) -> web.BaseRequest:
        protocol, writer, task = link
        return web.BaseRequest(
            message, payload, protocol, writer, task, loop, client_max_size=_LARGEST_BODY_BYTES
        )

    server = web.Server(
        face.handle, request_factory=factory, handler_cancellation=True, access_log=None
    )
    runner = web.ServerRunner(server, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, backlog=_BACKLOG)
        await site.start()
        yield site.port
    finally:
        face.close()
        # asyncio's own loop never closes a connection that is being accepted when its server closes
        for _ in range(_TURNS_TO_ACCEPT):
            await asyncio.sleep(0)
        await runner.cleanup()


def _api(path: str) -> Api | None:
    """The API that answers at `path`, whatever comes before: Azure has deployments there."""
    if path.endswith("/chat/completions"):
        return "chat"
    _, _, last = path.rpartition("/")
    return _APIS.get(last)


def _key_in(request: web.BaseRequest) -> str | None:
    """The key that a request carries, as OpenAI's clients send it or as Azure's do."""
    given = request.headers.get("Authorization")
    if given is None:
        return request.headers.get("api-key")
    scheme, _, key = given.partition(" ")
    return key if scheme.lower() == "bearer" else ""


def _response(reply: FakeReply, headers: dict[str, str] | None = None) -> web.Response:
    more = headers or reply.headers
    return web.Response(
        body=reply.body, status=reply.status, headers=_ALWAYS | more if more else _ALWAYS
    )


def _nobody_listens() -> web.StreamResponse:
    """What a handler returns when there is no connection left; it goes nowhere."""
    return web.Response()


def _unauthorised() -> FakeReply:
    return failed_reply(401, "Incorrect API key provided.")
