"""HTTP app of the fake judge: waits, replies, breaks connections, and counts requests."""

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
from zerowait.errors import DataError
from zerowait.testing.capacity import CapacityGate
from zerowait.testing.draws import body_key
from zerowait.testing.judge_request import BadRequestError, parse_request
from zerowait.testing.replies import FakeReply, error_reply, models
from zerowait.testing.reply_plan import AnswerFunction, HoldFunction, plan_reply
from zerowait.testing.request_log import BodyHistory, RequestLog
from zerowait.testing.script import Script

_BACKLOG = 4096  # with the usual 128, a thousand connecting clients wait for a second
_LARGEST_BODY_BYTES = 256 * 2**20
_TURNS_TO_ACCEPT = 3
_LINGER_NOT_AT_ALL = struct.pack("ii", 1, 0)
_GET_PATHS = ("/v1/models", "/healthz", "/stats")
_APIS: Final[dict[str, Api]] = {
    "completions": "completions",
    "responses": "responses",
    "classify": "classify",
    "pooling": "pooling",
    "score": "score",
}
_HEADERS = {"Content-Type": "application/json", "Server": "zerowait-fake-judge"}


class ActiveRequest:
    """State of a request that is being answered."""

    __slots__ = ("api", "inside", "question")

    def __init__(self, api: Api) -> None:
        self.api = api
        self.inside = False
        self.question: BodyHistory | None = None


class JudgeApp:
    """Answers HTTP requests according to a script; belongs to one event loop.

    Args:
        script: of the judge.
        log: counts the requests.
        answer: content of the replies, from the decoded body; None takes the script's verdicts.
        hold: awaited with the decoded body before each reply.
        api_key: the only accepted key; None accepts all.
    """

    def __init__(
        self,
        script: Script,
        log: RequestLog,
        *,
        answer: AnswerFunction | None,
        hold: HoldFunction | None = None,
        api_key: str | None,
    ) -> None:
        self._script = script
        self._log = log
        self._answer = answer
        self._hold = hold
        self._expected = None if api_key is None else api_key.encode()
        self._gate = CapacityGate(script.capacity)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closing = False
        self.crash: Exception | None = None

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """The response to any request."""
        api = _api(request.path)
        match request.method, request.path:
            case "POST", _ if api is not None:
                return await self._serve(request, api)
            case "GET", "/v1/models":
                ok = self._is_authorised(request)
                return _response(FakeReply(body=models(self._script)) if ok else _unauthorised())
            case "GET", "/healthz":
                return _response(FakeReply(body=b'{"status":"ok"}'))
            case "GET", "/stats":
                return _response(FakeReply(body=msgspec.json.encode(self._log.snapshot())))
            case _, path if api is not None or path in _GET_PATHS:
                return _response(error_reply(405, f"{request.method} is not allowed on {path}"))
        return _response(error_reply(404, f"there is no {request.path} here"))

    def close(self) -> None:
        """Cancel every request in flight; further ones get a 503."""
        self._closing = True
        for task in self._tasks:
            task.cancel()

    async def _serve(self, request: web.BaseRequest, api: Api) -> web.StreamResponse:
        if self._closing:
            return _response(error_reply(503, "the judge is closing"))
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine that runs has a task
        self._tasks.add(task)
        try:
            return await self._exchange(request, ActiveRequest(api))
        finally:
            self._tasks.discard(task)

    async def _exchange(
        self, request: web.BaseRequest, active: ActiveRequest
    ) -> web.StreamResponse:
        if self._log.at_peak or self._gate.full:
            # A client that cancels one request and sends the next counts once: let the loop
            # process the closed connection first
            for _ in range(3):
                await asyncio.sleep(0)
        self._log.arrived(with_key=_key_in(request) is not None)
        try:
            reply = await self._reply_when_due(request, active)
            if reply.sent != "all":
                return await self._break_off(request, reply)
        except ConnectionError:
            self._log.lost(by_client=True)
            return _no_response()
        except BaseException:
            self._log.lost(by_client=not self._closing)
            raise
        finally:
            if active.inside:
                self._gate.leave()
        return await self._send(request, reply, active)

    async def _reply_when_due(self, request: web.BaseRequest, active: ActiveRequest) -> FakeReply:
        if not self._is_authorised(request):
            return _unauthorised()
        raw = await request.read()
        key = body_key(raw)
        active.question = self._log.asked(key)
        try:
            parsed = parse_request(raw, active.api)
            self._log.showed(parsed.messages)
        except (BadRequestError, DataError) as error:
            return error_reply(400, str(error))
        rejection = self._gate.enter(
            tokens=parsed.prompt_tokens + (parsed.tokens or 0),
            now_s=asyncio.get_running_loop().time(),
        )
        if rejection is not None:
            return error_reply(429, headers=rejection.headers, fault="capacity")
        active.inside = True
        # Rejected requests are not numbered, so that draws do not depend on the order of arrival
        active.question.admitted += 1
        try:
            reply = plan_reply(self._script, parsed, key, active.question.admitted, self._answer)
            if self._hold is not None:
                await self._hold(parsed.body)
        except Exception as error:  # noqa: BLE001 - the test's own function; raised again by close()
            self.crash = self.crash or error
            return error_reply(500, f"the test's own function raised {type(error).__name__}")
        if reply.latency_s:
            await asyncio.sleep(reply.latency_s * self._gate.slowdown())
        return reply

    async def _break_off(self, request: web.BaseRequest, reply: FakeReply) -> web.StreamResponse:
        """Send the part of the reply that the fault allows, then break the connection or hang."""
        response = web.StreamResponse(headers=_HEADERS)
        response.content_length = len(reply.body)
        if reply.sent != "nothing":
            await response.prepare(request)
            await response.write(reply.body[: len(reply.body) // 2 * (reply.sent == "half")])
        if reply.then == "hang":
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(0)  # uvloop sends at the end of a turn; abort() drops unsent data
        self._log.broken(reply.fault)
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
        self, request: web.BaseRequest, reply: FakeReply, active: ActiveRequest
    ) -> web.StreamResponse:
        answers = active.question if reply.verdict else None
        headers = self._gate.headers()
        response = _response(reply, headers | reply.headers if headers else reply.headers)
        # Counted before the bytes are sent, since a client may read the counts right after them
        self._log.sent(reply.status, reply.fault, answers)
        try:
            await response.prepare(request)
            await response.write_eof()
        except ConnectionError:
            self._log.not_sent(reply.status, reply.fault, answers)
        except asyncio.CancelledError:
            self._log.not_sent(reply.status, reply.fault, answers)
            raise
        return response

    def _is_authorised(self, request: web.BaseRequest) -> bool:
        if self._expected is None:
            return True
        given = (_key_in(request) or "").encode("utf-8", "surrogateescape")
        return hmac.compare_digest(given, self._expected)


@asynccontextmanager
async def listening(app: JudgeApp, host: str, port: int) -> AsyncIterator[int]:
    """Serve `app` while the context lasts; the port.

    Args:
        app: the judge.
        host: the address to listen on.
        port: 0 takes a free one.

    Raises:
        OSError: the port cannot be bound.
    """
    loop = asyncio.get_running_loop()

    # aiohttp's default factory refuses bodies above 1 MiB
    def factory(message: Any, payload: Any, *connection: Any) -> web.BaseRequest:
        protocol, writer, task = connection
        return web.BaseRequest(
            message, payload, protocol, writer, task, loop, client_max_size=_LARGEST_BODY_BYTES
        )

    server = web.Server(
        app.handle, request_factory=factory, handler_cancellation=True, access_log=None
    )
    runner = web.ServerRunner(server, shutdown_timeout=1.0)
    await runner.setup()
    try:
        tcp = web.TCPSite(runner, host, port, backlog=_BACKLOG)
        await tcp.start()
        yield tcp.port
    finally:
        app.close()
        # asyncio's loop leaks a connection that is being accepted while its server closes
        for _ in range(_TURNS_TO_ACCEPT):
            await asyncio.sleep(0)
        await runner.cleanup()


def _api(path: str) -> Api | None:
    """The API at the end of `path`; Azure has its deployments before it."""
    if path.endswith("/chat/completions"):
        return "chat"
    _, _, last = path.rpartition("/")
    return _APIS.get(last)


def _key_in(request: web.BaseRequest) -> str | None:
    """The API key of a request in the header of OpenAI's or of Azure's clients; None without."""
    given = request.headers.get("Authorization")
    if given is None:
        return request.headers.get("api-key")
    scheme, _, key = given.partition(" ")
    return key if scheme.lower() == "bearer" else ""


def _response(reply: FakeReply, headers: dict[str, str] | None = None) -> web.Response:
    more = headers or reply.headers
    return web.Response(
        body=reply.body, status=reply.status, headers=_HEADERS | more if more else _HEADERS
    )


def _no_response() -> web.StreamResponse:
    """An empty response for a handler whose connection is gone; it is never sent."""
    return web.Response()


def _unauthorised() -> FakeReply:
    return error_reply(401, "Incorrect API key provided.")
