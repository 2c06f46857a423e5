"""The HTTP service of a hub: for trainers without Ray, OpenRLHF, and other JSON clients."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import weakref
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import (
    AbstractContextManager,
    aclosing,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import aiohttp
import msgspec
from aiohttp import web

from zerowait.config import RewardConfig, load_config
from zerowait.engine.concurrent_tasks import side_by_side
from zerowait.engine.monitor import prometheus
from zerowait.errors import ClosedError, ConfigError, DataError, JudgementError, ZerowaitError
from zerowait.hub.http import openapi, wire
from zerowait.hub.http.openapi import NDJSON
from zerowait.hub.http.settings import ServiceSettings, is_loopback
from zerowait.hub.job import JobHub
from zerowait.hub.rpc import HEARTBEAT_S
from zerowait.types import Reward, Sample

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

HUB_PATH: Final = "/v1/hub"
_PORT: Final = re.compile(r":\d+$")
_STATUS: Final[Mapping[type[Exception], int]] = {
    DataError: 400,
    JudgementError: 502,
    ClosedError: 503,
    TimeoutError: 504,
}

_log = logging.getLogger(__name__)


class LinesResponse:
    """A response of JSON lines, whose status is sent with the first line.

    So a request that fails before it gets the status of its error, not a 200.
    """

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._response = web.StreamResponse(headers={"Content-Type": NDJSON})

    @property
    def begun(self) -> bool:
        """Whether the status has been sent."""
        return self._response.prepared

    async def write(self, index: int, reward: Reward) -> None:
        """Send one line."""
        await self._begin()
        await self._response.write(wire.encode_line(index, reward))

    async def end(self, error: bytes = b"") -> web.StreamResponse:
        """The complete response; `error` is its last line and says why lines are missing."""
        await self._begin()
        await self._response.write_eof(error + b"\n" if error else b"")
        return self._response

    async def _begin(self) -> None:
        if not self.begun:
            await self._response.prepare(self._request)


class HubSockets:
    """The open WebSockets of `HttpHub` clients.

    When a connection ends, the calls of its client are cancelled; judgements that others share go
    on. While the service drains, new calls are ignored: the client sends them again with its next
    connection.

    Args:
        hub: an open hub.
        in_flight: entered for each call.
        max_message_bytes: the limit for a client's messages.
    """

    def __init__(
        self, hub: JobHub, *, in_flight: AbstractContextManager[None], max_message_bytes: int
    ) -> None:
        self._hub = hub
        self._in_flight = in_flight
        self._max_message_bytes = max_message_bytes
        self._open: weakref.WeakSet[web.WebSocketResponse] = weakref.WeakSet()
        self._draining = False

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer the calls of one client until its connection ends."""
        if "Origin" in request.headers:
            # a web page may open a WebSocket to any address
            raise web.HTTPForbidden(text="browsers may not connect here")
        socket = web.WebSocketResponse(
            heartbeat=HEARTBEAT_S, compress=False, max_msg_size=self._max_message_bytes
        )
        await socket.prepare(request)
        self._open.add(socket)
        await socket.send_bytes(wire.encode_hello(self._max_message_bytes))
        calls: dict[int, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as tasks:
            async for message in socket:
                if message.type is not aiohttp.WSMsgType.BINARY:
                    break
                try:
                    call = wire.decode_call(message.data)
                except DataError:
                    await socket.close(code=aiohttp.WSCloseCode.UNSUPPORTED_DATA)
                    break
                if call.cancelled:
                    if call.id in calls:
                        calls[call.id].cancel()
                elif not self._draining:
                    task = tasks.create_task(self._answer(socket, call))
                    calls[call.id] = task
                    task.add_done_callback(partial(_forget_call, calls, call.id))
            for task in calls.values():
                task.cancel()
        return socket

    def drain(self) -> None:
        """Ignore new calls from now on."""
        self._draining = True

    async def aclose(self) -> None:
        """Close every connection; clients connect again once the service is restarted."""
        for socket in list(self._open):
            await socket.close(code=aiohttp.WSCloseCode.GOING_AWAY, message=b"the service ends")

    async def _answer(self, socket: web.WebSocketResponse, call: wire.WireCall) -> None:
        with self._in_flight:
            try:
                answer = await self._result(call)
            except ClosedError:
                return  # the socket is closed next, and the client sends this call again
            except ZerowaitError as error:
                answer = wire.encode_error(call.id, error)
            except Exception as error:  # noqa: BLE001 - logged, and the caller gets an error
                _log.exception("a call of a hub's client failed")
                kind = type(error).__name__
                hub_error = ZerowaitError(f"the hub failed ({kind}): see its log")
                answer = wire.encode_error(call.id, hub_error)
            try:
                await socket.send_bytes(answer)
            except ConnectionError:
                return  # the client has gone

    async def _result(self, call: wire.WireCall) -> bytes:
        """The message that answers a call with what the hub says."""
        if not call.samples:
            streamed = await self._hub.reward(wire.decode_sample(call.sample))
            return wire.encode_result(call.id, streamed)
        samples = [wire.decode_sample(sample) for sample in call.samples]
        rewards = await self._hub.score_all(samples, deadline_s=call.deadline_s)
        return wire.encode_results(call.id, rewards)


def _forget_call(calls: dict[int, asyncio.Task[None]], call_id: int, _: object) -> None:
    calls.pop(call_id, None)


class RequestsInFlight:
    """The number of requests being answered, and whether new ones are refused (`draining`)."""

    def __init__(self) -> None:
        self.count = 0
        self.draining = False
        self.idle = asyncio.Event()
        self.idle.set()

    def __enter__(self) -> None:
        self.count += 1
        self.idle.clear()

    def __exit__(self, *_: object) -> None:
        self.count -= 1
        if not self.count:
            self.idle.set()


_IN_FLIGHT: Final = web.AppKey("_IN_FLIGHT", RequestsInFlight)
_SOCKETS: Final = web.AppKey("_SOCKETS", HubSockets)
_LINES: Final = web.RequestKey("_LINES", LinesResponse)
"""The key under which a request keeps its `LinesResponse`."""


def application(hub: JobHub, settings: ServiceSettings) -> web.Application:
    """The aiohttp application with the service's routes over an open hub."""
    in_flight = RequestsInFlight()
    sockets = HubSockets(hub, in_flight=in_flight, max_message_bytes=settings.max_body_bytes)
    handlers = _Handlers(hub, settings, in_flight)
    app = web.Application(
        client_max_size=settings.max_body_bytes,
        middlewares=[
            _errors_as_json,
            _admission(settings, in_flight),
            _deadline(settings.deadline_s),
        ],
    )
    app[_IN_FLIGHT], app[_SOCKETS] = in_flight, sockets
    app.add_routes(
        [
            web.get("/healthz", handlers.healthz),
            web.get("/metrics", handlers.metrics),
            web.get("/openapi.json", handlers.openapi),
            web.get("/v1/stats", handlers.stats),
            web.post("/v1/score", handlers.score, expect_handler=_answer_expect),
            web.get(HUB_PATH, sockets.serve),
            web.post("/get_reward", handlers.get_reward, expect_handler=_answer_expect),
        ]
    )
    return app


class _Handlers:
    """The handler of each route but the WebSocket's."""

    def __init__(self, hub: JobHub, settings: ServiceSettings, in_flight: RequestsInFlight) -> None:
        self._hub = hub
        self._settings = settings
        self._in_flight = in_flight

    async def healthz(self, request: web.Request) -> web.StreamResponse:
        del request
        draining = self._in_flight.draining
        state = wire.Health("draining" if draining else "ok")
        return _json(wire.encode(state), status=503 if draining else 200)

    async def metrics(self, request: web.Request) -> web.StreamResponse:
        del request
        text = prometheus.exposition(await self._hub.stats())
        return web.Response(body=text.encode(), headers={"Content-Type": prometheus.CONTENT_TYPE})

    async def openapi(self, request: web.Request) -> web.StreamResponse:
        del request
        return _json(openapi.openapi_document())

    async def stats(self, request: web.Request) -> web.StreamResponse:
        del request
        return _json(wire.encode(await self._hub.stats()))

    async def score(self, request: web.Request) -> web.StreamResponse:
        body = await _body(request, self._settings.body_s, lines=True)
        if request.content_type == NDJSON:
            return await self._in_lines(request, wire.decode_ndjson(body))
        samples, many = wire.decode_samples(body)
        if NDJSON in request.headers.get("Accept", ""):
            return await self._in_lines(request, samples)
        if many:
            return _json(wire.encode(await self._hub.score_all(samples)))
        return _json(wire.encode(await self._hub.score(samples[0])))

    async def _in_lines(
        self, request: web.Request, samples: Sequence[Sample]
    ) -> web.StreamResponse:
        lines = request[_LINES] = LinesResponse(request)
        rewards = self._hub.score_each(samples)
        async with aclosing(rewards):
            async for index, reward in rewards:
                await lines.write(index, reward)
        return await lines.end()

    async def get_reward(self, request: web.Request) -> web.StreamResponse:
        samples = wire.decode_openrlhf(
            await _body(request, self._settings.body_s), dict(request.query)
        )
        on_abstain = self._settings.on_abstain
        if on_abstain == "neutral":
            streamed = await side_by_side(self._hub.reward(sample) for sample in samples)
            rewards = [each.reward for each in streamed]
            values = [
                each.number(sample.split) for each, sample in zip(streamed, samples, strict=True)
            ]
        else:
            rewards = await side_by_side(self._hub.score(sample) for sample in samples)
            values = [wire.openrlhf_value(reward, on_abstain) for reward in rewards]
        return _json(wire.encode(wire.openrlhf_reply(rewards, values)))


async def _body(request: web.Request, within_s: float, *, lines: bool = False) -> bytes:
    """The request's body; requires a JSON content type, which web pages cannot send elsewhere.

    A body with a Content-Length beyond the limit is refused before it is read, one without a length
    once it exceeds the limit, and one that has not arrived after `within_s` seconds with 408.
    """
    known = ["application/json", NDJSON] if lines else ["application/json"]
    if request.content_type not in known:
        raise web.HTTPUnsupportedMediaType(text=f"send Content-Type: {' or '.join(known)}")
    _check_length(request)
    limit = asyncio.timeout(within_s)
    try:
        async with limit:
            return await request.read()
    except TimeoutError:
        if not limit.expired():
            raise
        why = f"the body did not arrive in {within_s:g} s"
        raise web.HTTPRequestTimeout(text=why) from None
    except web.RequestPayloadError as error:  # not packed as it says
        # or aiohttp goes on reading, and logs the client's mistake as an error of ours
        request.content.feed_eof()
        request.protocol.close()
        why = f"the body cannot be read: {' '.join(str(error).split())}"
        raise web.HTTPBadRequest(text=why) from None


def _check_length(request: web.Request) -> None:
    declared, most = request.content_length or 0, request.client_max_size
    if declared > most:
        raise web.HTTPRequestEntityTooLarge(max_size=most, actual_size=declared)


async def _answer_expect(request: web.Request) -> web.StreamResponse | None:
    """Answer ``Expect: 100-continue``; None lets the body come, a response refuses it."""
    if request.headers.get("Expect", "").lower() != "100-continue":
        return _error_response(web.HTTPExpectationFailed())
    try:
        _check_length(request)
    except web.HTTPRequestEntityTooLarge as error:
        return _error_response(error)
    if request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    return None


def _json(body: bytes, *, status: int = 200, **headers: str) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json", headers=headers)


def _error_response(error: web.HTTPException) -> web.Response:
    response = _json(wire.error_body(error, error.text), status=error.status)
    if error.status in (408, 413):
        response.force_close()  # the rest of the body must not be read as another request
    return response


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn errors into JSON bodies with their status; an unexpected one is a logged 500."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return _error_response(error)
    except tuple(_STATUS) as error:
        status = next(code for kind, code in _STATUS.items() if isinstance(error, kind))
        return await _failed(request, error, status)
    except Exception as error:  # noqa: BLE001 - logged, and the caller gets an error
        _log.exception("a request to %s failed", request.path)
        kind = type(error).__name__
        return await _failed(request, ZerowaitError(f"the hub failed ({kind}): see its log"), 500)


async def _failed(request: web.Request, error: Exception, status: int) -> web.StreamResponse:
    """The reply to a request that failed; the last line where its lines have begun."""
    lines: LinesResponse | None = request.get(_LINES)
    if lines is not None and lines.begun:
        return await lines.end(wire.error_body(error))
    headers = {"Retry-After": "1"} if status == 503 else {}
    return _json(wire.error_body(error), status=status, **headers)


def _admission(settings: ServiceSettings, in_flight: RequestsInFlight) -> Any:
    """Middleware that lets in clients with the token, unless the service drains."""

    @web.middleware
    async def admission(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path == "/healthz":
            return await handler(request)
        if settings.token is None and not _is_local_program(request):
            raise web.HTTPForbidden(text="browsers may not ask here: start it with a token")
        if not settings.admits(request.headers.get("Authorization")):
            raise web.HTTPUnauthorized(
                text="send the token as Authorization: Bearer TOKEN",
                headers={"WWW-Authenticate": "Bearer"},
            )
        if in_flight.draining:
            raise ClosedError("the service is ending; ask again in a moment")
        if request.path == HUB_PATH:  # its calls are counted, not the connection
            return await handler(request)
        with in_flight:
            return await handler(request)

    return admission


def _is_local_program(request: web.Request) -> bool:
    """Whether no web page sent it: no Origin, and a loopback Host (against DNS rebinding)."""
    host = request.host.rpartition(":")[0] if _PORT.search(request.host) else request.host
    return "Origin" not in request.headers and is_loopback(host.strip("[]"))


def _deadline(deadline_s: float) -> Any:
    """Middleware that answers 504 after `deadline_s` seconds; WebSockets have no deadline."""

    @web.middleware
    async def deadline(request: web.Request, handler: Handler) -> web.StreamResponse:
        limit = asyncio.timeout(None if request.path == HUB_PATH else deadline_s)
        try:
            async with limit:
                return await handler(request)
        except TimeoutError:
            if not limit.expired():
                raise
            raise TimeoutError(f"not done in {deadline_s:g} s") from None

    return deadline


@web.middleware
async def _below_callers_span(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Make the span in a client's ``traceparent`` header the parent of its judgements' spans."""
    from opentelemetry import context, propagate

    token = context.attach(propagate.extract(request.headers))
    try:
        return await handler(request)
    finally:
        context.detach(token)


@asynccontextmanager
async def serving(
    config: str | Path | Mapping[str, Any] | RewardConfig,
    settings: ServiceSettings,
    *,
    record: Path | None = None,
) -> AsyncIterator[tuple[str, Callable[[float], Coroutine[Any, Any, None]]]]:
    """A running service: its base URL, and ``drain(seconds)``, which lets open requests end.

    Args:
        config: a path to a ``reward.yaml``, a mapping, or a `RewardConfig`.
        settings: of the service.
        record: the folder for the record, or None.

    Raises:
        ConfigError: the configuration is wrong or asks for several shards, or the address cannot
            be listened on.
    """
    config = load_config(config)
    if config.hub.shards > 1:
        why = "is for a hub under Ray: this service is one process; leave it out, or set it to 1"
        config.fail(("hub", "shards"), why)
    async with JobHub(config, record=record) as hub:
        app = application(hub, settings)
        if config.log_to.otel is not None:
            app.middlewares.append(_below_callers_span)
        # a request whose client disconnects is cancelled; judgements that others share go on
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, settings.host, settings.port)

        async def drain(within_s: float) -> None:
            give_up_at = asyncio.get_running_loop().time() + within_s
            app[_IN_FLIGHT].draining = True
            app[_SOCKETS].drain()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(give_up_at):
                    await app[_IN_FLIGHT].idle.wait()
            left_s = give_up_at - asyncio.get_running_loop().time()
            await hub.aclose(drain_s=max(0.0, left_s))

        try:
            try:
                await site.start()
            except OSError as error:
                raise ConfigError(
                    f"cannot listen on {settings.host} port {settings.port}: {error.strerror}; "
                    "name another port (--port), or 0 for a free one"
                ) from None
            port = runner.addresses[0][1]
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            yield f"http://{host}:{port}", drain
        finally:
            await app[_SOCKETS].aclose()
            await runner.cleanup()


async def serve_forever(
    config: str | Path | Mapping[str, Any] | RewardConfig,
    settings: ServiceSettings,
    *,
    record: Path | None = None,
    on_ready: Callable[[str], Any] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, then drain for ``drain_s``; a second signal stops at once.

    Args:
        config: a path to a ``reward.yaml``, a mapping, or a `RewardConfig`.
        settings: of the service.
        record: the folder for the record, or None.
        on_ready: called with the base URL once the service listens.

    Raises:
        ConfigError: see `serving`.
    """
    config = load_config(config)
    # ``/metrics`` is one of the routes
    config = msgspec.structs.replace(config, log_to=config.log_to.without("prometheus"))
    with _stop_signals() as (stop, stop_now):
        async with serving(config, settings, record=record) as (url, drain):
            if on_ready is not None:
                on_ready(url)
            await stop.wait()
            draining = asyncio.create_task(drain(settings.drain_s))
            stopping_now = asyncio.create_task(stop_now.wait())
            await asyncio.wait({draining, stopping_now}, return_when=asyncio.FIRST_COMPLETED)
            for task in (draining, stopping_now):
                task.cancel()
            await asyncio.wait({draining, stopping_now})


@contextmanager
def _stop_signals() -> Iterator[tuple[asyncio.Event, asyncio.Event]]:
    """Events that the first and the second SIGINT or SIGTERM set."""
    loop = asyncio.get_running_loop()
    stop, stop_now = asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        (stop_now if stop.is_set() else stop).set()

    signals = (signal.SIGINT, signal.SIGTERM)
    # impossible on Windows and off the main thread; there only cancellation stops the service
    with suppress(NotImplementedError, RuntimeError, ValueError):
        for number in signals:
            loop.add_signal_handler(number, on_signal)
    try:
        yield stop, stop_now
    finally:
        with suppress(NotImplementedError, RuntimeError, ValueError):
            for number in signals:
                loop.remove_signal_handler(number)
