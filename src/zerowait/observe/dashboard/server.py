"""HTTP server of the dashboard: its page, and the JSON that the page reads."""

from __future__ import annotations

import asyncio
import math
import re
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from aiohttp import hdrs, web

from zerowait.errors import ConfigError, DataError
from zerowait.observe.dashboard.access import (
    LOGIN_PATH,
    AccessControl,
    DashboardSettings,
    PageHandler,
)
from zerowait.observe.dashboard.agreement import anchors_file, given_verdicts, human_agreement
from zerowait.observe.dashboard.runs import NotYetError, WatchedRun, run_names
from zerowait.observe.dashboard.samples import (
    Order,
    SampleQuery,
    choices,
    group_of,
    opinions_of,
    sample_page,
)

T = TypeVar("T")

_LARGEST_BODY_BYTES: Final = 64 * 2**10
_LONGEST_NOTE_CHARS: Final = 2000
_LONGEST_NAME_CHARS: Final = 100
_MOST_AT_ONCE: Final = 200
_PICTURE: Final = re.compile(r"[0-9a-f]{64}\.(png|jpg|jpeg|gif|webp)")
_TYPES: Final = {".css": "text/css", ".html": "text/html", ".js": "text/javascript"}
_OWN: Final = files("zerowait.observe.dashboard") / "page"
_REPORT: Final = files("zerowait.observe.page")
_STATIC: Final = {
    **{
        name: _OWN / name
        for name in ("address.js", "app.js", "browser.js", "dashboard.css", "overview.js")
    },
    **{name: _REPORT / name for name in ("charts.js", "page.css")},
    **{name: _REPORT / "uplot" / name for name in ("uPlot.iife.min.js", "uPlot.min.css")},
}
_encode = msgspec.json.Encoder(enc_hook=str).encode


class _Paging(msgspec.Struct, frozen=True, kw_only=True):
    """How a page of samples is cut: the parameters beside the filter."""

    order: Order = "newest"
    after: str | None = None
    limit: int = 50


class _Thumb(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person thinks of a sample; `up` None takes an earlier opinion back."""

    row: int
    up: bool | None
    note: str = ""
    who: str = ""


class _Handlers:
    """The handler of each route."""

    def __init__(self, runs: Sequence[WatchedRun], admission: AccessControl) -> None:
        self._runs = runs
        self._admission = admission

    async def page(self, request: web.Request) -> web.StreamResponse:
        del request
        return _file(_OWN / "dashboard.html")

    async def login_page(self, request: web.Request) -> web.StreamResponse:
        del request
        return _file(_OWN / "login.html")

    async def log_in(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        return self._admission.log_in(str(form.get("token", "")))

    async def static(self, request: web.Request) -> web.StreamResponse:
        return _file(_STATIC[request.match_info["name"]])

    async def runs(self, request: web.Request) -> web.StreamResponse:
        del request
        return _json(
            [
                {"run": number} | msgspec.structs.asdict(run.status())
                for number, run in enumerate(self._runs)
            ]
        )

    async def choices(self, request: web.Request) -> web.StreamResponse:
        return _json(await self._run(request).read(choices))

    async def view(self, request: web.Request) -> web.StreamResponse:
        return _json(await self._run(request).view(request.match_info["name"]))

    async def last_views(self, request: web.Request) -> web.StreamResponse:
        return _json(await self._run(request).last_views())

    async def point(self, request: web.Request) -> web.StreamResponse:
        return _json(await self._run(request).point(int(request.match_info["at"])))

    async def verdicts(self, request: web.Request) -> web.StreamResponse:
        query = partial(given_verdicts, judge=request.query.get("judge", ""))
        return _json(await self._run(request).read(query, long=True))

    async def samples(self, request: web.Request) -> web.StreamResponse:
        given = {name: value for name, value in request.query.items() if value}
        paging = {name: given.pop(name) for name in _Paging.__struct_fields__ if name in given}
        wanted = _converted(given, SampleQuery)
        paged = _converted(paging, _Paging)
        query = partial(
            sample_page,
            wanted=wanted,
            order=paged.order,
            after=paged.after,
            limit=min(max(paged.limit, 1), _MOST_AT_ONCE),
        )
        return _json(await self._run(request).read(query))

    async def group(self, request: web.Request) -> web.StreamResponse:
        row = int(request.match_info["row"])
        return _json(await self._run(request).read(partial(group_of, row=row)))

    async def human_agreement(self, request: web.Request) -> web.StreamResponse:
        component = request.query.get("component") or None
        threshold = _number(request, "threshold")
        query = partial(human_agreement, component=component, threshold=threshold)
        return _json(await self._run(request).read(query))

    async def anchors(self, request: web.Request) -> web.StreamResponse:
        judge = request.query.get("judge", "")
        up, down = _number(request, "up"), _number(request, "down")
        if not judge or up is None or down is None:
            raise web.HTTPBadRequest(text="anchors need judge, and the verdicts up and down")
        run = self._run(request)
        made = await run.read(partial(anchors_file, judge=judge, up=up, down=down))
        return web.Response(
            body=made.lines,
            content_type="application/jsonl",
            headers={
                hdrs.CONTENT_DISPOSITION: 'attachment; filename="anchors.jsonl"',
                "X-Anchors": str(made.anchors),
                "X-Left-Out": str(made.left_out),
            },
        )

    async def give_opinion(self, request: web.Request) -> web.StreamResponse:
        if request.content_type != "application/json":
            raise web.HTTPUnsupportedMediaType(text="send Content-Type: application/json")
        try:
            thumb = msgspec.json.decode(await request.read(), type=_Thumb)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise web.HTTPBadRequest(text=f"this is no opinion: {error}") from None
        run = self._run(request)
        await run.rate(
            thumb.row,
            up=thumb.up,
            note=thumb.note.strip()[:_LONGEST_NOTE_CHARS],
            who=thumb.who.strip()[:_LONGEST_NAME_CHARS],
        )
        found = await run.read(partial(opinions_of, rows=[thumb.row]))
        return _json({"opinions": found.get(thumb.row, [])})

    async def picture(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        path = self._run(request).folder / "pictures" / name
        if not _PICTURE.fullmatch(name) or not path.is_file():
            raise web.HTTPNotFound(text="the run has no such picture")
        return web.FileResponse(path, headers={hdrs.CACHE_CONTROL: "private, max-age=86400"})

    def _run(self, request: web.Request) -> WatchedRun:
        number = int(request.match_info["run"])
        if number >= len(self._runs):
            raise web.HTTPNotFound(text=f"there is no run {number}")
        return self._runs[number]


@web.middleware
async def _errors_as_statuses(request: web.Request, handler: PageHandler) -> web.StreamResponse:
    try:
        return await handler(request)
    except NotYetError as error:
        raise web.HTTPServiceUnavailable(text=str(error), headers={"Retry-After": "1"}) from None
    except DataError as error:
        raise web.HTTPBadRequest(text=str(error)) from None
    except OverflowError:  # of SQLite's integers
        raise web.HTTPBadRequest(text="a number has more than 18 digits") from None


def _converted(given: dict[str, str], kind: type[T]) -> T:
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise web.HTTPBadRequest(text=str(error)) from None


def _number(request: web.Request, name: str) -> float | None:
    text = request.query.get(name, "")
    if not text:
        return None
    number = _converted({"number": text}, _Number).number
    if not math.isfinite(number):
        raise web.HTTPBadRequest(text=f"{name} must be a finite number, not {text[:20]}")
    return number


class _Number(msgspec.Struct):
    number: float


def _json(result: Any) -> web.Response:
    body = result if isinstance(result, bytes) else _encode(result)
    return web.Response(body=body, content_type="application/json")


def _file(file: Traversable) -> web.Response:
    return web.Response(
        body=file.read_bytes(),
        content_type=_TYPES[Path(file.name).suffix],
        charset="utf-8",
        headers={hdrs.CACHE_CONTROL: "no-cache"},
    )


def _application(runs: Sequence[WatchedRun], settings: DashboardSettings) -> web.Application:
    admission = AccessControl(
        settings.token, static=frozenset({"/page/page.css", "/page/dashboard.css"})
    )
    handlers = _Handlers(runs, admission)
    app = web.Application(
        client_max_size=_LARGEST_BODY_BYTES,
        middlewares=[admission.middleware, _errors_as_statuses],
    )
    of_run = "/api/runs/{run:[0-9]{1,4}}"
    names = "|".join(map(re.escape, _STATIC))
    app.add_routes(
        [
            web.get("/", handlers.page),
            web.get(LOGIN_PATH, handlers.login_page),
            web.post(LOGIN_PATH, handlers.log_in),
            web.get(f"/page/{{name:{names}}}", handlers.static),
            web.get("/api/runs", handlers.runs),
            web.get(f"{of_run}/views/{{name:[a-z]+}}", handlers.view),
            web.get(f"{of_run}/views", handlers.last_views),
            web.get(f"{of_run}/points/{{at:-?[0-9]{{1,15}}}}", handlers.point),
            web.get(f"{of_run}/choices", handlers.choices),
            web.get(f"{of_run}/verdicts", handlers.verdicts),
            web.get(f"{of_run}/samples", handlers.samples),
            web.get(f"{of_run}/samples/{{row:[0-9]{{1,15}}}}/group", handlers.group),
            web.get(f"{of_run}/agreement", handlers.human_agreement),
            web.get(f"{of_run}/anchors", handlers.anchors),
            web.get(f"{of_run}/pictures/{{name}}", handlers.picture),
            web.post(f"{of_run}/opinions", handlers.give_opinion),
        ]
    )
    return app


@asynccontextmanager
async def serving_dashboard(
    folders: Sequence[Path], settings: DashboardSettings
) -> AsyncIterator[str]:
    """Serve the dashboard of these runs while the context lasts; its base URL.

    Raises:
        ConfigError: the address cannot be listened on.
        DataError: a folder has no record.
    """
    async with AsyncExitStack() as stack:
        runs = [
            await stack.enter_async_context(WatchedRun(folder, name))
            for folder, name in zip(folders, run_names(folders), strict=True)
        ]
        runner = web.AppRunner(_application(runs, settings), access_log=None, shutdown_timeout=1)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        try:
            await web.TCPSite(runner, settings.host, settings.port).start()
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {settings.host} port {settings.port}: {error.strerror}; name "
                "another port (--port), or 0 for a free one"
            ) from None
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        yield f"http://{host}:{runner.addresses[0][1]}"


async def show_until_stopped(
    folders: Sequence[Path], settings: DashboardSettings, *, on_ready: Callable[[str], Any]
) -> None:
    """Serve the dashboard until SIGINT or SIGTERM.

    Args:
        folders: of the runs.
        settings: of the dashboard.
        on_ready: called with the base URL once it listens.

    Raises:
        ConfigError, DataError: see `serving_dashboard`.
    """
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    # impossible on Windows and off the main thread; there only cancellation ends it
    with suppress(NotImplementedError, RuntimeError, ValueError):
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
    async with serving_dashboard(folders, settings) as url:
        on_ready(url)
        await stop.wait()
