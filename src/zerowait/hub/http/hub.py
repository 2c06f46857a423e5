"""A handle on a hub behind HTTP, for trainers that run without Ray."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, cast

import msgspec

from zerowait.client import Secret
from zerowait.client.scrubber import Scrubber
from zerowait.config.checks import seconds
from zerowait.config.urls import secrets_in_url, shown_url
from zerowait.engine import Stats
from zerowait.engine.concurrent_tasks import first_of
from zerowait.errors import ClosedError, ConfigError, DataError, HubLostError, ZerowaitError
from zerowait.hub.http import wire
from zerowait.hub.rpc import HEARTBEAT_S, PendingCalls
from zerowait.hub.streaming import Streamed
from zerowait.types import Reward, Sample, check_sample, samples_in

if TYPE_CHECKING:
    import aiohttp

_RECONNECT_PAUSE_S: Final = (0.1, 0.5)
_CONNECT_TIMEOUT_S: Final = 10.0
_STATS_TIMEOUT_S: Final = 60.0
_CALL_OVERHEAD_BYTES: Final = 64
_ROWS_PER_CALL: Final = 16
_decode_stats = msgspec.json.Decoder(Stats).decode


class HttpHub:
    """A handle on the hub that ``zerowait serve`` runs; opened and closed with ``async with``.

    All calls share one WebSocket connection. When the service is restarted, callers do not notice:
    their pending samples are sent again, and what was judged and committed before comes from the
    cache. Belongs to one event loop.

    Args:
        url: the service's base URL, such as ``http://127.0.0.1:8002``.
        token: the value of the service's ``--token-env`` variable; never shown.
        patience_s: how many seconds the service may be gone before callers get a `HubLostError`;
            above 0.
        deadline_s: the longest that one reward may take in seconds, over all connections; above 0.

    Raises:
        ConfigError: `url` is no http(s) URL, or a time is no number above 0.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | Secret | None = None,
        patience_s: float = 120.0,
        deadline_s: float = 3600.0,
    ) -> None:
        if not isinstance(url, str):
            raise ConfigError(f"HttpHub takes the service's URL, not a {type(url).__name__}")
        if not url.startswith(("http://", "https://")):
            raise ConfigError("the hub's url must start with http:// or https://")
        self._url = url.rstrip("/")
        self._token = Secret(token) if isinstance(token, str) else token
        del token
        keys, values = secrets_in_url(url)
        known: list[Secret | str] = [*keys]
        if self._token is not None:
            known.append(self._token)
        self._scrubber = Scrubber(known, values)
        self._name = self._scrubber.text(shown_url(self._url))
        self._patience_s = seconds("patience_s", patience_s)
        self._deadline_s = seconds("deadline_s", deadline_s)
        self._pending: PendingCalls[bytes, Streamed | list[Reward]] = PendingCalls()
        self._session: aiohttp.ClientSession | None = None
        self._connecting: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        import aiohttp

        headers = {}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token.reveal()}"
        self._session = aiohttp.ClientSession(
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_S),
        )
        self._connecting = asyncio.create_task(self._keep_connected(self._session))
        self._connecting.add_done_callback(self._fail_pending)
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
        connecting, self._connecting = self._connecting, None
        if connecting is not None:
            connecting.cancel()
            await asyncio.wait({connecting})
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
        check_sample(sample, "HttpHub.reward")
        return cast("Streamed", await self._call(wire.call_for(sample)))

    async def score_all(
        self,
        samples: Iterable[Sample],
        *,
        on_reward: Callable[[int, Reward], None] | None = None,
        deadline_s: float | None = None,
    ) -> list[Reward]:
        """See `Engine.score_all`; the hub gets whole groups, several in a message.

        Args:
            samples: to score.
            on_reward: called with a sample's index and final reward as soon as those of its
                message are known.
            deadline_s: seconds from when the hub gets them.

        Raises:
            JudgementError, DataError, ConfigError, HubLostError: see `reward`.
        """
        rows = samples_in(samples, "score_all", one="submit")
        if deadline_s is not None:
            deadline_s = seconds("deadline_s", deadline_s)
        rewards: list[Reward | None] = [None] * len(rows)

        async def one(indices: list[int]) -> None:
            body = wire.call_for_all([rows[i] for i in indices], deadline_s)
            for index, reward in zip(indices, await self._call(body), strict=True):
                rewards[index] = reward
                if on_reward is not None:
                    on_reward(index, reward)

        try:
            async with asyncio.TaskGroup() as calls:
                for indices in _whole_groups(rows):
                    calls.create_task(one(indices))
        except* ZerowaitError as errors:
            raise first_of(errors) from None
        return [reward for reward in rewards if reward is not None]

    async def _call(self, body: bytes) -> Any:
        """The hub's answer to a call, over however many connections it takes."""
        if self._connecting is None or self._connecting.done():
            raise ClosedError("the hub's handle is not open: use it inside `async with`")
        try:
            async with asyncio.timeout(self._deadline_s):
                return await self._pending.call(body)
        except TimeoutError:
            raise HubLostError(
                f"the hub {self._name} gave no reward in {self._deadline_s:g} s"
            ) from None

    async def stats(self) -> Stats:
        """A frozen snapshot of the whole job; counters begin at 0 with each start of the service.

        Raises:
            HubLostError: the service does not answer within 60 s.
            ClosedError: the handle is not open.
        """
        import aiohttp

        if self._session is None:
            raise ClosedError("the hub's handle is not open: use it inside `async with`")
        try:
            async with (
                asyncio.timeout(_STATS_TIMEOUT_S),
                self._session.get(f"{self._url}/v1/stats") as reply,
            ):
                body = await reply.read()
        except (aiohttp.ClientError, OSError) as error:  # a TimeoutError is one, without words
            why = self._scrubber.text(str(error)) or f"not in {_STATS_TIMEOUT_S:g} s"
            raise HubLostError(f"the hub {self._name} does not answer: {why}") from None
        if reply.status != 200:
            raise self._error_of_status(reply.status, wire.error_message(body))
        return _decode_stats(body)

    async def _keep_connected(self, session: aiohttp.ClientSession) -> None:
        """Connect whenever calls are queued, through restarts; ends only by cancellation."""
        import aiohttp

        clock = asyncio.get_running_loop().time
        lost_at: float | None = None
        while True:
            await self._pending.wait_until_queued()
            lost_at = lost_at or clock()
            why = "it ended the connection"
            try:
                async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                    socket = await session.ws_connect(
                        f"{self._url}/v1/hub", heartbeat=HEARTBEAT_S, max_msg_size=0
                    )
                if await self._exchange(socket):
                    lost_at = clock()
            except aiohttp.WSServerHandshakeError as error:
                why = f"it answers with {error.status}"
                if error.status < 500:
                    self._pending.fail(self._error_of_status(error.status, error.message))
            except (aiohttp.ClientError, OSError, msgspec.DecodeError) as error:
                why = self._scrubber.text(str(error)) or type(error).__name__
            if clock() - lost_at > self._patience_s:
                self._pending.fail(
                    HubLostError(f"the hub {self._name} was gone for {self._patience_s:g} s: {why}")
                )
            await asyncio.sleep(0)  # callers that got an error leave `_pending`
            if not self._pending.waiting:
                lost_at = None
            self._pending.requeue()
            await asyncio.sleep(random.uniform(*_RECONNECT_PAUSE_S))

    async def _exchange(self, socket: aiohttp.ClientWebSocketResponse) -> bool:
        """Send calls and settle them until the connection ends; whether the service said hello."""
        sending: asyncio.Task[None] | None = None
        try:
            async for message in socket:
                if not isinstance(message.data, bytes):
                    break
                answer = wire.decode_answer(message.data)
                if answer.max_message_bytes is not None:
                    sending = asyncio.create_task(
                        self._send_calls(socket, answer.max_message_bytes)
                    )
                if answer.error is not None:
                    self._pending.settle([(answer.id, wire.exception_of(answer.error))])
                elif (result := answer.streamed or answer.rewards) is not None:
                    self._pending.settle([(answer.id, result)])
        finally:
            if sending is not None:
                sending.cancel()
                await asyncio.wait({sending})
            await socket.close()
        return sending is not None

    async def _send_calls(self, socket: aiohttp.ClientWebSocketResponse, max_bytes: int) -> None:
        try:
            while True:
                calls, cancelled = await self._pending.next_batch()
                for call_id, body in calls:
                    if len(body) + _CALL_OVERHEAD_BYTES > max_bytes:
                        error = DataError(
                            f"a sample, or its group, is longer than the hub's {max_bytes} bytes"
                        )
                        self._pending.settle([(call_id, error)])
                    else:
                        await socket.send_bytes(wire.encode_call(call_id, body))
                for call_id in cancelled:
                    await socket.send_bytes(wire.encode_cancel(call_id))
        except ConnectionError:
            return  # `_exchange` sees the end of the connection, too

    def _fail_pending(self, connecting: asyncio.Task[None]) -> None:
        error = None if connecting.cancelled() else connecting.exception()
        why = "the hub's handle was closed" if error is None else f"the hub's handle broke: {error}"
        self._pending.fail(ClosedError(why))

    def _error_of_status(self, status: int, why: str) -> ZerowaitError:
        why = self._scrubber.text(why)
        if status == 401:
            return ConfigError(f"the hub {self._name} does not know this token")
        if status >= 500:
            return HubLostError(f"the hub {self._name} answers with {status}: {why}")
        return ConfigError(f"{self._name} answers with {status} and seems to be no hub: {why}")


def _whole_groups(rows: Sequence[Sample]) -> Iterator[list[int]]:
    """The indices of all rows in chunks of about 16, none of which divides a group."""
    groups: dict[object, list[int]] = {}
    for index, row in enumerate(rows):
        groups.setdefault(index if row.group is None else f"={row.group}", []).append(index)
    chunk: list[int] = []
    for indices in groups.values():
        chunk += indices
        if len(chunk) >= _ROWS_PER_CALL:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
