"""The hub behind HTTP, for trainers outside Ray, OpenRLHF, and everything that speaks JSON."""

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
from zerowait.errors import ClosedError, ConfigError, DataError, JudgementError, ZerowaitError
from zerowait.hub.http import metrics, wire
from zerowait.hub.http.settings import ServiceSettings, is_loopback
from zerowait.hub.job import JobHub
from zerowait.hub.rpc.sessions import HEARTBEAT_S
from zerowait.types import Reward, Sample

NDJSON: Final = "application/x-ndjson"


class Lines:
    """A reply of JSON lines, of which nothing is sent before the first line is known.

    So whoever asks for what cannot be gets the status of his mistake, and not a 200.
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
        await self._response.write(wire.line(index, reward))

    async def end(self, complaint: bytes = b"") -> web.StreamResponse:
        """The whole reply; a complaint is its last line and says why lines are missing."""
        await self._begin()
        await self._response.write_eof(complaint + b"\n" if complaint else b"")
        return self._response

    async def _begin(self) -> None:
        if not self.begun:
            await self._response.prepare(self._request)


_log = logging.getLogger(__name__)


class Sockets:
    """The open connections of hub handles.

    A connection that ends takes the calls of its client along, as a killed process would; calls
    that others share go on. While the service drains, new calls are left lying: their client
    hands them in again where it connects next.
    """

    def __init__(
        self, hub: JobHub, *, busy: AbstractContextManager[None], max_message_bytes: int
    ) -> None:
        self._hub = hub
        self._busy = busy
        self._max_message_bytes = max_message_bytes
        self._open: weakref.WeakSet[web.WebSocketResponse] = weakref.WeakSet()
        self._draining = False

    async def talk(self, request: web.Request) -> web.StreamResponse:
        """Answers one client until it leaves."""
        if "Origin" in request.headers:
            # a page in somebody's browser may open a WebSocket to any address
            raise web.HTTPForbidden(text="browsers may not connect here")
        socket = web.WebSocketResponse(
            heartbeat=HEARTBEAT_S, compress=False, max_msg_size=self._max_message_bytes
        )
        await socket.prepare(request)
        self._open.add(socket)
        await socket.send_bytes(wire.hello(self._max_message_bytes))
        calls: dict[int, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as tasks:
            async for message in socket:
                if message.type is not aiohttp.WSMsgType.BINARY:
                    break
                try:
                    call = wire.call_in(message.data)
                except DataError:
                    await socket.close(code=aiohttp.WSCloseCode.UNSUPPORTED_DATA)
                    break
                if call.given_up:
                    if call.id in calls:
                        calls[call.id].cancel()
                elif not self._draining:
                    task = tasks.create_task(self._answer(socket, call.id, call.sample))
                    calls[call.id] = task
                    task.add_done_callback(partial(_forget, calls, call.id))
            for task in calls.values():
                task.cancel()
        return socket

    def drain(self) -> None:
        """Take no more calls."""
        self._draining = True

    async def aclose(self) -> None:
        """Send every client away; they come back where the service is started again."""
        for socket in list(self._open):
            await socket.close(code=aiohttp.WSCloseCode.GOING_AWAY, message=b"the service ends")

    async def _answer(
        self, socket: web.WebSocketResponse, number: int, sample: msgspec.Raw
    ) -> None:
        with self._busy:
            try:
                streamed = await self._hub.reward(wire.sample_in(sample))
                answer = wire.answered(number, streamed)
            except ClosedError:
                return  # the socket is closed next, and the client comes back with this call
            except ZerowaitError as error:
                answer = wire.failed(number, error)
            except Exception as error:  # noqa: BLE001 - logged, and the caller is told
                _log.exception("a call of a hub's client failed")
                kind = type(error).__name__
                answer = wire.failed(number, ZerowaitError(f"the hub failed ({kind}): see its log"))
            try:
                await socket.send_bytes(answer)
            except ConnectionError:
                return  # nobody is there any more


def _forget(calls: dict[int, asyncio.Task[None]], number: int, _: asyncio.Task[None]) -> None:
    calls.pop(number, None)


Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

HUB_PATH: Final = "/v1/hub"
_PORT: Final = re.compile(r":\d+$")

_STATUS: Final[Mapping[type[Exception], int]] = {
    DataError: 400,
    JudgementError: 502,
    ClosedError: 503,
    TimeoutError: 504,
}


class ServiceBusy:
    """Requests that are being answered, and whether there will be more."""

    def __init__(self) -> None:
        self.requests = 0
        self.draining = False
        self.idle = asyncio.Event()
        self.idle.set()

    def __enter__(self) -> None:
        self.requests += 1
        self.idle.clear()

    def __exit__(self, *_: object) -> None:
        self.requests -= 1
        if not self.requests:
            self.idle.set()


_BUSY: Final = web.AppKey("_BUSY", ServiceBusy)
_SOCKETS: Final = web.AppKey("_SOCKETS", Sockets)
_LINES: Final = web.RequestKey("_LINES", Lines)
"""Where a request keeps the lines of its reply."""


def application(hub: JobHub, settings: ServiceSettings) -> web.Application:
    """The service's routes over an open hub."""
    busy = ServiceBusy()
    sockets = Sockets(hub, busy=busy, max_message_bytes=settings.max_body_bytes)
    faces = _Faces(hub, settings, busy)
    app = web.Application(
        client_max_size=settings.max_body_bytes,
        middlewares=[_plain_complaints, _admission(settings, busy), _deadline(settings.deadline_s)],
    )
    app[_BUSY], app[_SOCKETS] = busy, sockets
    app.add_routes(
        [
            web.get("/healthz", faces.healthz),
            web.get("/metrics", faces.metrics),
            web.get("/v1/stats", faces.stats),
            web.post("/v1/score", faces.score, expect_handler=_expected),
            web.get(HUB_PATH, sockets.talk),
            web.post("/get_reward", faces.get_reward, expect_handler=_expected),
        ]
    )
    return app


class _Faces:
    def __init__(self, hub: JobHub, settings: ServiceSettings, busy: ServiceBusy) -> None:
        self._hub = hub
        self._settings = settings
        self._busy = busy

    async def healthz(self, request: web.Request) -> web.StreamResponse:
        del request
        draining = self._busy.draining
        state = {"status": "draining" if draining else "ok"}
        return _json(wire.encode(state), status=503 if draining else 200)

    async def metrics(self, request: web.Request) -> web.StreamResponse:
        del request
        text = metrics.exposition(await self._hub.stats())
        return web.Response(body=text.encode(), headers={"Content-Type": metrics.CONTENT_TYPE})

    async def stats(self, request: web.Request) -> web.StreamResponse:
        del request
        return _json(wire.encode(await self._hub.stats()))

    async def score(self, request: web.Request) -> web.StreamResponse:
        body = await _body(request, self._settings.body_s, lines=True)
        if request.content_type == NDJSON:
            return await self._in_lines(request, wire.samples_in_lines(body))
        samples, many = wire.samples_in(body)
        if NDJSON in request.headers.get("Accept", ""):
            return await self._in_lines(request, samples)
        if many:
            return _json(wire.encode(await self._hub.score_all(samples)))
        return _json(wire.encode(await self._hub.score(samples[0])))

    async def _in_lines(
        self, request: web.Request, samples: Sequence[Sample]
    ) -> web.StreamResponse:
        lines = request[_LINES] = Lines(request)
        rewards = self._hub.score_each(samples)
        async with aclosing(rewards):
            async for index, reward in rewards:
                await lines.write(index, reward)
        return await lines.end()

    async def get_reward(self, request: web.Request) -> web.StreamResponse:
        samples = wire.samples_asked(
            await _body(request, self._settings.body_s), dict(request.query)
        )
        rewards = await self._hub.score_all(samples)
        return _json(wire.encode(wire.remote_answer(rewards, self._settings.on_abstain)))


async def _body(request: web.Request, within_s: float, *, lines: bool = False) -> bytes:
    """The request's bytes; a page in somebody's browser cannot send JSON to another origin.

    One that says that it is too long is refused before it is read, one without a length as soon as
    it has become too long, and one that trickles in after `within_s`.
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


def _check_length(request: web.Request) -> None:
    declared, most = request.content_length or 0, request.client_max_size
    if declared > most:
        raise web.HTTPRequestEntityTooLarge(max_size=most, actual_size=declared)


async def _expected(request: web.Request) -> web.StreamResponse | None:
    """The answer to ``Expect: 100-continue``: whether the body may come at all."""
    if request.headers.get("Expect", "").lower() != "100-continue":
        return _refused(web.HTTPExpectationFailed())
    try:
        _check_length(request)
    except web.HTTPRequestEntityTooLarge as error:
        return _refused(error)
    if request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    return None


def _json(body: bytes, *, status: int = 200, **headers: str) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json", headers=headers)


def _refused(error: web.HTTPException) -> web.Response:
    response = _json(wire.complaint(error, error.text), status=error.status)
    if error.status in (408, 413):
        response.force_close()  # what is left of the body is nobody's request
    return response


@web.middleware
async def _plain_complaints(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every refusal as one line of JSON; what is nobody's fault but ours stays a logged 500."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return _refused(error)
    except tuple(_STATUS) as error:
        lines: Lines | None = request.get(_LINES)
        if lines is not None and lines.begun:
            return await lines.end(wire.complaint(error))
        status = next(code for kind, code in _STATUS.items() if isinstance(error, kind))
        headers = {"Retry-After": "1"} if status == 503 else {}
        return _json(wire.complaint(error), status=status, **headers)


def _admission(settings: ServiceSettings, busy: ServiceBusy) -> Any:
    @web.middleware
    async def admission(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path == "/healthz":
            return await handler(request)
        if settings.token is None and not _is_asked_from_here(request):
            raise web.HTTPForbidden(text="browsers may not ask here: start it with a token")
        if not settings.admits(request.headers.get("Authorization")):
            raise web.HTTPUnauthorized(
                text="send the token as Authorization: Bearer TOKEN",
                headers={"WWW-Authenticate": "Bearer"},
            )
        if busy.draining:
            raise ClosedError("the service is ending; ask again in a moment")
        if request.path == HUB_PATH:  # a connection stays; its calls are what counts
            return await handler(request)
        with busy:
            return await handler(request)

    return admission


def _is_asked_from_here(request: web.Request) -> bool:
    """Whether no page in a browser asks: its origin, or a name that it had resolved to us."""
    host = request.host.rpartition(":")[0] if _PORT.search(request.host) else request.host
    return "Origin" not in request.headers and is_loopback(host.strip("[]"))


def _deadline(deadline_s: float) -> Any:
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


@asynccontextmanager
async def serving(
    config: str | Path | Mapping[str, Any] | RewardConfig,
    settings: ServiceSettings,
    *,
    record: Path | None = None,
) -> AsyncIterator[tuple[str, Callable[[float], Coroutine[Any, Any, None]]]]:
    """A running service: its base URL, and ``drain(seconds)``, which ends it gently.

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
        # a client that goes away takes its request along; calls that others share go on
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, settings.host, settings.port)

        async def drain(within_s: float) -> None:
            give_up_at = asyncio.get_running_loop().time() + within_s
            app[_BUSY].draining = True
            app[_SOCKETS].drain()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(give_up_at):
                    await app[_BUSY].idle.wait()
            left_s = give_up_at - asyncio.get_running_loop().time()
            await hub.aclose(drain_s=max(0.0, left_s))

        try:
            try:
                await site.start()
            except OSError as error:
                raise ConfigError(
                    f"cannot listen on {settings.host} port {settings.port}: {error.strerror}"
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
    """Serve until SIGINT or SIGTERM, then answer what was asked; a second signal ends that too."""
    with _told_to_end() as (raised_by_hub, hurry):
        async with serving(config, settings, record=record) as (url, drain):
            if on_ready is not None:
                on_ready(url)
            await raised_by_hub.wait()
            draining = asyncio.create_task(drain(settings.drain_s))
            hurrying = asyncio.create_task(hurry.wait())
            await asyncio.wait({draining, hurrying}, return_when=asyncio.FIRST_COMPLETED)
            for task in (draining, hurrying):
                task.cancel()
            await asyncio.wait({draining, hurrying})


@contextmanager
def _told_to_end() -> Iterator[tuple[asyncio.Event, asyncio.Event]]:
    """Events that are set when the process is told to end, and told so again."""
    loop = asyncio.get_running_loop()
    raised_by_hub, hurry = asyncio.Event(), asyncio.Event()

    def tell() -> None:
        (hurry if raised_by_hub.is_set() else raised_by_hub).set()

    signals = (signal.SIGINT, signal.SIGTERM)
    # not on Windows and not off the main thread; there the runner cancels us, or nobody does
    with suppress(NotImplementedError, RuntimeError, ValueError):
        for number in signals:
            loop.add_signal_handler(number, tell)
    try:
        yield raised_by_hub, hurry
    finally:
        with suppress(NotImplementedError, RuntimeError, ValueError):
            for number in signals:
                loop.remove_signal_handler(number)
