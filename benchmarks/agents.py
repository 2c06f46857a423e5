"""How long many search agents take, against the time that the network alone would take.

    python benchmarks/agents.py [--agents 64] [--turns 4] [--latency 0.2] [--rounds 3]

Each agent searches `turns` times, at a retriever that takes `latency` for every request, and then
answers. Once the model writes in no time, once it writes for 0 to 1 s a turn, which is the same in
every row. The ideal is that of the slowest agent if nobody waited for anybody else.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from statistics import median

import aiohttp
import msgspec
import uvloop
from serving import show_load, slow_retriever

from zerowait.cli.tables import show
from zerowait.search import Retriever, RetrieverSettings, Searcher, SearchSettings, StopReason, Turn

ROOM = 4096


class Task(msgspec.Struct, frozen=True):
    """What is to be done: `writing_s[agent][turn]`, against the retriever at `url`."""

    url: str
    latency_s: float
    writing_s: Sequence[Sequence[float]]

    @property
    def ideal_s(self) -> float:
        """The time of the slowest agent, if it never waited for another."""
        return max(sum(turns) + self.latency_s * (len(turns) - 1) for turns in self.writing_s)


class Characters:
    """A tokenizer whose tokens are characters."""

    def encode(self, text: str, /) -> Sequence[int]:
        """The code points of `text`."""
        return [ord(letter) for letter in text]

    def decode(self, tokens: Sequence[int], /) -> str:
        """The text of code points."""
        return "".join(map(chr, tokens))


def main() -> int:
    """Print one table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--agents", type=int, default=64)
    options.add_argument("--turns", type=int, default=4)
    options.add_argument("--latency", type=float, default=0.2)
    options.add_argument("--rounds", type=int, default=3)
    given = options.parse_args()
    random = Random(5)
    shape = [range(given.turns + 1)] * given.agents
    with slow_retriever(given.latency) as url:
        at_once = Task(url, given.latency, [[0.0 for _ in turns] for turns in shape])
        writing = Task(url, given.latency, [[random.random() for _ in turns] for turns in shape])
        rows = [
            [
                name,
                *(cell for task in (at_once, writing) for cell in _cells(way, task, given.rounds)),
            ]
            for name, way in {
                "zerowait's episodes and retriever": through_zerowait,
                "aiohttp by hand, one post a search": by_hand,
                "all agents in lockstep, one post a turn": in_lockstep,
            }.items()
        ]
    ideal = ["ideal", f"{at_once.ideal_s:.2f}", "1.00", "", f"{writing.ideal_s:.2f}", "1.00", ""]
    header = ["", "model at once s", "/ ideal", "posts", "model writes s", "/ ideal", "posts"]
    show([header, ideal, *rows])
    show_load()
    return 0


Way = Callable[[Task], Awaitable[int]]


def _cells(way: Way, task: Task, rounds: int) -> list[str]:
    """The median time of some rounds, and the posts of one."""
    times, posts = [], 0
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for _ in range(rounds):
            began = time.perf_counter()
            posts = runner.run(way(task))
            times.append(time.perf_counter() - began)
    took_s = median(times)
    return [f"{took_s:.2f}", f"{took_s / task.ideal_s:.2f}", str(posts)]


async def through_zerowait(task: Task) -> int:
    """Episodes token by token, over one `Retriever`."""
    async with Retriever(RetrieverSettings(url=task.url, topk=1)) as retriever:

        async def agent(number: int, writing_s: Sequence[float]) -> None:
            turns = iter(enumerate(writing_s))

            async def generate(context: Sequence[int], most: int) -> Turn:
                del context, most
                turn, seconds = next(turns)
                await asyncio.sleep(seconds)
                last = turn == len(writing_s) - 1
                said = "<answer>yes</answer>" if last else f"<search>{number} {turn}</search>"
                return Turn(Characters().encode(said))

            searcher = Searcher(
                SearchSettings(max_turns=len(writing_s) - 1),
                generate=generate,
                retrieve=retriever.find,
                tokens=Characters(),
            )
            episode = await searcher.episode([1], room=ROOM)
            if episode.stop is not StopReason.ANSWERED or episode.failed_searches:
                raise SystemExit(f"agent {number} ended as {episode.stop}")

        async with asyncio.TaskGroup() as tasks:
            for number, writing_s in enumerate(task.writing_s):
                tasks.create_task(agent(number, writing_s))
        return retriever.stats.requests


async def by_hand(task: Task) -> int:
    """Each agent posts for itself."""
    posts = 0
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def agent(number: int, writing_s: Sequence[float]) -> None:
            nonlocal posts
            for turn, seconds in enumerate(writing_s):
                await asyncio.sleep(seconds)
                if turn < len(writing_s) - 1:
                    posts += 1
                    await _post(session, task.url, [f"{number} {turn}"])

        async with asyncio.TaskGroup() as tasks:
            for number, writing_s in enumerate(task.writing_s):
                tasks.create_task(agent(number, writing_s))
    return posts


async def in_lockstep(task: Task) -> int:
    """All write a turn, then all search in one post, and so on: what a batched rollout does."""
    turns = len(task.writing_s[0])
    async with aiohttp.ClientSession() as session:
        for turn in range(turns):
            await asyncio.sleep(max(writing_s[turn] for writing_s in task.writing_s))
            if turn < turns - 1:
                queries = [f"{number} {turn}" for number in range(len(task.writing_s))]
                await _post(session, task.url, queries)
    return turns - 1


async def _post(session: aiohttp.ClientSession, url: str, queries: list[str]) -> None:
    body = {"queries": queries, "topk": 1, "return_scores": True}
    async with session.post(url, json=body) as reply:
        found = await reply.json()
    if len(found["result"]) != len(queries):
        raise SystemExit("a query was not answered")


if __name__ == "__main__":
    sys.exit(main())
