"""A handle on a hub behind HTTP: for trainers that run without Ray."""

from __future__ import annotations

import asyncio
import random
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import msgspec

from zerowait.client import Secret
from zerowait.client.scrubber import Scrubber
from zerowait.config.checks import seconds
from zerowait.config.urls import secrets_in_url, shown_url
from zerowait.engine import Stats
from zerowait.errors import ClosedError, ConfigError, DataError, HubLostError, ZerowaitError
from zerowait.hub.http import wire
from zerowait.hub.rpc.pending_calls import PendingCalls
from zerowait.hub.rpc.sessions import HEARTBEAT_S
from zerowait.hub.streaming import Streamed
from zerowait.types import Sample, check_sample

if TYPE_CHECKING:
    import aiohttp

_PAUSE_S: Final = (0.1, 0.5)
_CONNECT_S: Final = 10.0
_FRAME_BYTES: Final = 64
_decode_stats = msgspec.json.Decoder(Stats).decode


class HttpHub:
    """A handle on the hub that ``zerowait serve`` runs; opened and closed with ``async with``.

    However many rewards are waited for, there is one connection. When the service is started
    again, callers do not notice: what they wait for is handed in again, and whatever was judged
    and committed before comes from the cache. It belongs to one event loop.

    Args:
        url: the service's base URL, such as ``http://127.0.0.1:8002``.
        token: what the service's ``--token-env`` variable holds; never shown.
        patience_s: how long the service may be gone before callers are told.
        deadline_s: the longest that one reward may take, over all tries.

    Raises:
        ConfigError: the URL is none, or a time is no number above 0.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        patience_s: float = 120.0,
        deadline_s: float = 3600.0,
    ) -> None:
        if not isinstance(url, str):
            raise ConfigError(f"HttpHub takes the service's URL, not a {type(url).__name__}")
        if not url.startswith(("http://", "https://")):
            raise ConfigError("the hub's url must start with http:// or https://")
        self._url = url.rstrip("/")
        self._token = None if token is None else Secret(token)
        del token
        keys, values = secrets_in_url(url)
        known: list[Secret | str] = [*keys]
        if self._token is not None:
            known.append(self._token)
        self._scrubber = Scrubber(known, values)
        self._name = self._scrubber.text(shown_url(self._url))
        self._patience_s = seconds("patience_s", patience_s)
        self._deadline_s = seconds("deadline_s", deadline_s)
        self._desk: PendingCalls[bytes, Streamed] = PendingCalls()
        self._session: aiohttp.ClientSession | None = None
        self._courier: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        import aiohttp

        headers = {}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token.reveal()}"
        self._session = aiohttp.ClientSession(
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
        )
        self._courier = asyncio.create_task(self._deliver(self._session))
        self._courier.add_done_callback(self._delivers_no_more)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection; the service goes on for others. Idempotent."""
        session, self._session = self._session, None
        courier, self._courier = self._courier, None
        if courier is not None:
            courier.cancel()
            await asyncio.wait({courier})
        if session is not None:
            await session.close()

    async def reward(self, sample: Sample) -> Streamed:
        """See `JobHub.reward`.

        Raises:
            JudgementError, DataError: as the hub raised it.
            ConfigError: the service does not know the token, or is no hub.
            HubLostError: the service was gone for longer than `patience_s`, or there was no
                answer in `deadline_s`.
        """
        if self._courier is None or self._courier.done():
            raise ClosedError("the hub's handle is not open: use it inside `async with`")
        check_sample(sample, "HttpHub.reward")
        try:
            async with asyncio.timeout(self._deadline_s):
                return await self._desk.result(wire.encode(sample))
        except TimeoutError:
            raise HubLostError(
                f"the hub {self._name} gave no reward in {self._deadline_s:g} s"
            ) from None

    async def stats(self) -> Stats:
        """A frozen snapshot of the whole job; after a restart it starts from 0.

        Raises:
            HubLostError: the service does not answer now.
        """
        import aiohttp

        if self._session is None:
            raise ClosedError("the hub's handle is not open: use it inside `async with`")
        try:
            async with (
                asyncio.timeout(_CONNECT_S),
                self._session.get(f"{self._url}/v1/stats") as reply,
            ):
                body = await reply.read()
        except (aiohttp.ClientError, OSError) as error:
            why = self._scrubber.text(str(error))
            raise HubLostError(f"the hub {self._name} does not answer: {why}") from None
        if reply.status != 200:
            raise self._refused(reply.status, wire.complained(body))
        return _decode_stats(body)

    async def _deliver(self, session: aiohttp.ClientSession) -> None:
        """Keeps a connection while there is something to say; ends only by cancellation."""
        import aiohttp

        clock = asyncio.get_running_loop().time
        lost_at: float | None = None
        while True:
            await self._desk.asked()
            lost_at = lost_at or clock()
            why = "it ended the connection"
            try:
                async with asyncio.timeout(_CONNECT_S):
                    socket = await session.ws_connect(
                        f"{self._url}/v1/hub", heartbeat=HEARTBEAT_S, max_msg_size=0
                    )
                if await self._converse(socket):
                    lost_at = clock()
            except aiohttp.WSServerHandshakeError as error:
                why = f"it answers with {error.status}"
                if error.status < 500:
                    self._desk.fail(self._refused(error.status, error.message))
            except (aiohttp.ClientError, OSError, msgspec.DecodeError) as error:
                why = self._scrubber.text(str(error)) or type(error).__name__
            if clock() - lost_at > self._patience_s:
                self._desk.fail(
                    HubLostError(f"the hub {self._name} was gone for {self._patience_s:g} s: {why}")
                )
            await asyncio.sleep(0)  # those who were told leave the desk
            if not self._desk.waiting:
                lost_at = None
            self._desk.again()  # all of it, where the next connection leads
            await asyncio.sleep(random.uniform(*_PAUSE_S))

    async def _converse(self, socket: aiohttp.ClientWebSocketResponse) -> bool:
        """Says what is to be said and hears answers until the connection ends; heard any?"""
        writing: asyncio.Task[None] | None = None
        try:
            async for message in socket:
                if not isinstance(message.data, bytes):
                    break
                answer = wire.decode_answer(message.data)
                if answer.max_message_bytes is not None:
                    writing = asyncio.create_task(self._write(socket, answer.max_message_bytes))
                self._hear(answer)
        finally:
            if writing is not None:
                writing.cancel()
                await asyncio.wait({writing})
            await socket.close()
        return writing is not None

    def _hear(self, answer: wire.WireAnswer) -> None:
        if answer.error is not None:
            self._desk.settle([(answer.id, wire.raised_by_hub(answer.error))])
        elif answer.streamed is not None:
            self._desk.settle([(answer.id, answer.streamed)])

    async def _write(self, socket: aiohttp.ClientWebSocketResponse, longest: int) -> None:
        try:
            while True:
                samples, given_up = await self._desk.batch()
                for number, sample in samples:
                    if len(sample) + _FRAME_BYTES > longest:
                        error = DataError(f"a sample is longer than the hub's {longest} bytes")
                        self._desk.settle([(number, error)])
                    else:
                        await socket.send_bytes(wire.call(number, sample))
                for number in given_up:
                    await socket.send_bytes(wire.give_up(number))
        except ConnectionError:
            return  # the reader sees the end too

    def _delivers_no_more(self, courier: asyncio.Task[None]) -> None:
        error = None if courier.cancelled() else courier.exception()
        why = "the hub's handle was closed" if error is None else f"the hub's handle broke: {error}"
        self._desk.fail(ClosedError(why))

    def _refused(self, status: int, why: str) -> ZerowaitError:
        why = self._scrubber.text(why)
        if status == 401:
            return ConfigError(f"the hub {self._name} does not know this token")
        if status >= 500:
            return HubLostError(f"the hub {self._name} answers with {status}: {why}")
        return ConfigError(f"{self._name} answers with {status} and seems to be no hub: {why}")
