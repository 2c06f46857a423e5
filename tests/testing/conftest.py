"""A small client: asks a fake judge over a real socket and keeps what came back."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from zerowait.testing import FakeJudge


@dataclass(frozen=True)
class Got:
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    error: str = ""

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def content(self) -> Any:
        return self.json["choices"][0]["message"]["content"]

    @property
    def finish_reason(self) -> Any:
        return self.json["choices"][0]["finish_reason"]


def chat(text: str, **more: Any) -> bytes:
    """The bytes of a request about `text`."""
    message = {"role": "user", "content": text}
    return json.dumps({"model": "judge-1", "messages": [message], **more}).encode()


async def post(session: aiohttp.ClientSession, url: str, body: bytes, **headers: str) -> Got:
    """What came back, or the name of the error that came instead."""
    url = f"{url}/chat/completions"
    try:
        async with session.post(url, data=io.BytesIO(body), headers=headers) as response:
            return Got(response.status, dict(response.headers), await response.read())
    except (aiohttp.ClientError, ConnectionError) as error:
        return Got(error=type(error).__name__)


async def post_all(url: str, bodies: Sequence[bytes], *, at_once: int, **headers: str) -> list[Got]:
    slots = asyncio.Semaphore(at_once)

    async def one(body: bytes) -> Got:
        async with slots:
            return await post(session, url, body, **headers)

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(body)) for body in bodies]
    return [task.result() for task in tasks]


async def until(condition: Callable[[], object]) -> None:
    """Returns when what another thread does has made `condition` true."""
    while not condition():  # noqa: ASYNC110 - the counts of a real server have no event
        await asyncio.sleep(0.001)


@asynccontextmanager
async def held(judge: FakeJudge, bodies: Sequence[bytes]) -> AsyncIterator[aiohttp.ClientSession]:
    """A session; meanwhile `bodies` are in flight at a judge that hangs."""
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
        tasks = [group.create_task(post(session, judge.url, body)) for body in bodies]
        await until(lambda: judge.seen.in_flight == len(bodies))
        yield session
        for task in tasks:
            task.cancel()


class Client:
    """Blocking calls for tests that need no more."""

    chat = staticmethod(chat)
    post = staticmethod(post)
    post_all = staticmethod(post_all)
    until = staticmethod(until)
    held = staticmethod(held)

    def ask(self, url: str, body: bytes | str, **headers: str) -> Got:
        body = chat(body) if isinstance(body, str) else body
        return asyncio.run(post_all(url, [body], at_once=1, **headers))[0]

    def ask_all(self, url: str, bodies: Sequence[bytes], *, at_once: int = 1) -> list[Got]:
        return asyncio.run(post_all(url, bodies, at_once=at_once))


@pytest.fixture
def client() -> Client:
    return Client()
