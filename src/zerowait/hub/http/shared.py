"""Shared service: one hub for the ranks of a ``torch.distributed`` job, run by rank 0."""

from __future__ import annotations

import asyncio
import atexit
import os
import secrets
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from zerowait.client import Secret
from zerowait.config import RewardConfig
from zerowait.engine.portal import Portal
from zerowait.errors import ConfigError
from zerowait.hub.http.service import serving
from zerowait.hub.http.settings import ServiceSettings

_KEY: Final = "zerowait/service"
_DRAIN_S: Final = 5.0


class SharedService:
    """The address and token of the job's service; on rank 0 also the service itself.

    Args:
        url: its base URL.
        token: what it asks of its clients.
        running: on rank 0, the loop it runs on and the event that ends it.
    """

    def __init__(
        self, url: str, token: Secret, running: tuple[Portal, asyncio.Event] | None = None
    ) -> None:
        self.url = url
        self.token = token
        self._running = running
        if running is not None:
            atexit.register(self.close)

    @classmethod
    def of_job(cls, config: RewardConfig, rank: int, *, record: Path | None = None) -> Self:
        """The service of this job; every rank has to call this, once.

        Ranks learn the address from the store that ``torch.distributed`` was set up with.

        Args:
            config: the reward configuration; rank 0 serves its own.
            rank: of this process.
            record: the folder of the job's record, which rank 0 keeps; None keeps none.

        Raises:
            ConfigError: rank 0 cannot serve it; raised on every rank.
        """
        from torch.distributed import distributed_c10d

        store: Any = distributed_c10d._get_default_store()  # noqa: SLF001 - collectives need the main thread
        if rank:
            told = msgspec.json.decode(store.get(_KEY), type=dict[str, str])
            if "error" in told:
                raise ConfigError(told["error"])
            return cls(told["url"], Secret(told["token"]))
        try:
            service = cls._start(config, record)
        except BaseException as error:
            store.set(_KEY, msgspec.json.encode({"error": f"rank 0: {error}"}))
            raise
        store.set(_KEY, msgspec.json.encode({"url": service.url, "token": service.token.reveal()}))
        return service

    @classmethod
    def _start(cls, config: RewardConfig, record: Path | None) -> Self:
        one_machine = os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE")
        token = Secret(secrets.token_hex(16))
        settings = ServiceSettings(
            host="127.0.0.1" if one_machine else "0.0.0.0",  # noqa: S104 - asks for the token
            port=0,
            token=token,
            drain_s=_DRAIN_S,
        )
        portal = Portal("zerowait-service")
        started: Future[str] = Future()
        stop = asyncio.Event()
        portal.submit(lambda: _run(config, settings, record, (started, stop)))
        try:
            url = started.result()
        except BaseException:
            portal.close()
            raise
        if not one_machine:
            url = url.replace("0.0.0.0", os.environ["MASTER_ADDR"])  # noqa: S104
        return cls(url, token, (portal, stop))

    def close(self) -> None:
        """End the service, if this rank runs it. Idempotent."""
        running, self._running = self._running, None
        if running is not None:
            atexit.unregister(self.close)
            portal, stop = running
            portal.call(lambda: _set(stop))
            portal.close()


async def _run(
    config: RewardConfig,
    settings: ServiceSettings,
    record: Path | None,
    events: tuple[Future[str], asyncio.Event],
) -> None:
    """Serve until the second of `events` is set; the first gets the URL."""
    started, stop = events
    try:
        async with serving(config, settings, record=record) as (url, drain):
            started.set_result(url)
            await stop.wait()
            await drain(settings.drain_s)
    except BaseException as error:
        if not started.done():
            started.set_exception(error)
        raise


async def _set(stop: asyncio.Event) -> None:
    stop.set()
