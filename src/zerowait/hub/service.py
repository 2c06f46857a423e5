"""The hub behind HTTP, for trainers outside Ray, OpenRLHF, and everything that speaks JSON."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

from aiohttp import web

from zerowait.config import RewardConfig, load_config
from zerowait.errors import ClosedError, ConfigError, DataError, JudgementError
from zerowait.hub import metrics, wire
from zerowait.hub.job import JobHub
from zerowait.hub.lines import NDJSON, Lines
from zerowait.hub.settings import ServiceSettings, is_loopback
from zerowait.hub.socket import Sockets
from zerowait.types import Sample

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

HUB_PATH: Final = "/v1/hub"
_PORT: Final = re.compile(r":\d+$")

_STATUS: Final[Mapping[type[Exception], int]] = {
    DataError: 400,
    JudgementError: 502,
    ClosedError: 503,
    TimeoutError: 504,
}


class Busy:
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


_BUSY: Final = web.AppKey("_BUSY", Busy)
_SOCKETS: Final = web.AppKey("_SOCKETS", Sockets)
_LINES: Final = web.RequestKey("_LINES", Lines)
"""Where a request keeps the lines of its reply."""


def application(hub: JobHub, settings: ServiceSettings) -> web.Application:
    """The service's routes over an open hub."""
    busy = Busy()
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
    def __init__(self, hub: JobHub, settings: ServiceSettings, busy: Busy) -> None:
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


def _admission(settings: ServiceSettings, busy: Busy) -> Any:
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
    with _told_to_end() as (told, hurry):
        async with serving(config, settings, record=record) as (url, drain):
            if on_ready is not None:
                on_ready(url)
            await told.wait()
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
    told, hurry = asyncio.Event(), asyncio.Event()

    def tell() -> None:
        (hurry if told.is_set() else told).set()

    signals = (signal.SIGINT, signal.SIGTERM)
    # not on Windows and not off the main thread; there the runner cancels us, or nobody does
    with suppress(NotImplementedError, RuntimeError, ValueError):
        for number in signals:
            loop.add_signal_handler(number, tell)
    try:
        yield told, hurry
    finally:
        with suppress(NotImplementedError, RuntimeError, ValueError):
            for number in signals:
                loop.remove_signal_handler(number)
