"""The service's side of an `HttpHub`: many rewards at once over one WebSocket."""

from __future__ import annotations

import asyncio
import logging
import weakref
from contextlib import AbstractContextManager
from functools import partial

import aiohttp
import msgspec
from aiohttp import web

from zerowait.errors import ClosedError, DataError, ZerowaitError
from zerowait.hub import wire
from zerowait.hub.actor import BEAT_S
from zerowait.hub.job import JobHub

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
            heartbeat=BEAT_S, compress=False, max_msg_size=self._max_message_bytes
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
