"""The same judgements: through the engine, its client, a loop as one writes it, the openai SDK."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import aiohttp
import msgspec
import uvloop

import zerowait
from zerowait.client import EndpointStates, HttpTransport, JudgeClient, JudgeReply
from zerowait.config import Endpoint, Traffic
from zerowait.engine import Engine, Stats
from zerowait.judge import decode_reply
from zerowait.types import Abstain

TEXT = "The quick brown fox jumps over the lazy dog. " * 40  # 1.8 kB, as a short response has
VERDICT = {"integer": [1, 10]}


class Run(msgspec.Struct, frozen=True):
    """What `count` judgements took, from `began_s` on the clock that all processes share."""

    count: int
    wall_s: float
    cpu_s: float
    stats: Stats | None = None
    began_s: float = 0.0

    @property
    def cpu_ms(self) -> float:
        """CPU milliseconds of this process per judgement."""
        return self.cpu_s / self.count * 1000

    @property
    def per_s(self) -> float:
        """Judgements per second."""
        return self.count / self.wall_s


def reward_config(url: str, *, traffic: dict[str, Any], cache: str) -> dict[str, Any]:
    """A configuration with one judge and nothing else."""
    return {
        "components": {"quality": {"judge": "quality"}},
        "judges": {"quality": {"endpoints": [{"base_url": url, "model": "m"}], "verdict": VERDICT}},
        "traffic": traffic,
        "cache": cache,
    }


def through_engine(
    url: str, count: int, *, traffic: dict[str, Any], cache: str = "off", rounds: int = 1
) -> Run:
    """`count` different samples through the whole engine; of several rounds, the last."""
    config = reward_config(url, traffic=traffic, cache=cache)
    samples = [zerowait.Sample("Say something.", f"{number} {TEXT}") for number in range(count)]

    async def main() -> Run:
        async with Engine(config) as engine:
            for _ in range(rounds):
                began = clocks()
                rewards = await engine.score_all(samples)
                ended = clocks()
            lost = sum(reward.abstained for reward in rewards)
            if lost:
                raise SystemExit(f"{lost} of {count} judgements were not reached")
            return run_of(count, began, ended, engine.stats())

    return _run(main())


def by_client(url: str, count: int, *, traffic: dict[str, Any]) -> Run:
    """The same posts through the engine's client alone: limiter, retries, hedging, no reward."""
    settings = Traffic(**traffic)

    async def main() -> Run:
        transport = HttpTransport()
        judge = JudgeClient(
            endpoints=[Endpoint(base_url=url, model="m")],
            transport=transport,
            endpoint_states=EndpointStates(settings),
            decode=decode_reply,
            traffic=settings,
        )

        async def one(number: int) -> JudgeReply | Abstain:
            return await judge.ask(msgspec.json.encode(question(number)))

        try:
            return await _all_at_once(one, count)
        finally:
            await transport.aclose()

    return _run(main())


def by_hand(url: str, count: int, *, concurrency: int) -> Run:
    """The same number of posts with aiohttp under a semaphore: no retry, cache, record, parser."""

    async def main() -> Run:
        gate = asyncio.Semaphore(concurrency)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:

            async def one(number: int) -> str:
                body = question(number)
                async with gate, session.post(f"{url}/chat/completions", json=body) as reply:
                    return (await reply.json())["choices"][0]["message"]["content"]

            return await _all_at_once(one, count)

    return _run(main())


def by_sdk(url: str, count: int, *, concurrency: int) -> Run | None:
    """The same with the openai SDK under a semaphore; None where it is not installed."""
    try:
        from openai import AsyncOpenAI
    except ImportError:
        return None

    async def main() -> Run:
        gate = asyncio.Semaphore(concurrency)
        async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:

            async def one(number: int) -> str | None:
                async with gate:
                    reply = await client.chat.completions.create(**question(number))
                return reply.choices[0].message.content

            return await _all_at_once(one, count)

    return _run(main())


def question(number: int) -> dict[str, Any]:
    """The body of one request, as one writes it by hand."""
    text = f"Rate this response from 1 to 10.\n\nSay something.\n\n{number} {TEXT}"
    messages = [{"role": "user", "content": text}]
    return {"model": "m", "messages": messages, "max_tokens": 1024, "temperature": 0}


def clocks() -> tuple[float, float]:
    """The time on the clock that all processes share, and this process's CPU time, in seconds."""
    return time.monotonic(), time.process_time()


def run_of(
    count: int,
    began: tuple[float, float],
    ended: tuple[float, float],
    stats: Stats | None = None,
) -> Run:
    """What `count` judgements took between two looks at the `clocks`."""
    return Run(count, ended[0] - began[0], ended[1] - began[1], stats, began[0])


async def _all_at_once(one: Callable[[int], Coroutine[Any, Any, Any]], count: int) -> Run:
    began = clocks()
    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            tasks.create_task(one(number))
    ended = clocks()
    return run_of(count, began, ended)


def _run(main: Coroutine[Any, Any, Run]) -> Run:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)
