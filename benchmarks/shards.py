"""How long a batch takes against the ideal, N x latency / C, when a hub of several processes asks.

python benchmarks/shards.py [--concurrency 2000] [--shards 4 8] [--workers 8] [--latency 0.2]

Workers hand in the rows of a batch together, a group's rows through different ones, as verl's
reward workers do; the hub's actors share the one limit C. Everybody is started and has asked a few
rows before the clock starts; it stops at the last reward of the batch. Beside it: aiohttp by hand
in as many processes as there are actors, each with its part of C, and one process of ours. Of
several rounds, each with rows of its own, the one with the middle time is shown.

Every row has to get its own score, the judges have to be asked once for each, and never for more
than C at once, over all processes: otherwise the exit code is 1. To see that exactly, hedging is
off, since a copy that was cancelled is still in the judges' hands for a moment.

A process at 100 % is what limits: the busiest one of each kind is shown, in CPU time of all its
threads per second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any

import msgspec
from asking import TEXT, Run, by_hand, clocks, reward_config, run_of, through_engine
from counting import Judges, judges, score_of
from serving import START_S, cpu_s, show_load

from zerowait import Sample
from zerowait.cli.tables import show
from zerowait.config.traffic import MOST_SHARDS
from zerowait.engine.garbage_collection import collect_rarely
from zerowait.hub.ray import RayHub

GROUP = 8
WARM = 16
WARM_FROM = 10_000_000
HEAD = (
    *("C", "way", "time / ideal", "rows/s"),
    *("CPU ms a row: asking", "hub", "busiest: asking", "hub", "judge", "peak in flight"),
)


class Batch(msgspec.Struct, frozen=True):
    """What is to be judged, by whom."""

    judges: Judges
    concurrency: int
    latency_s: float
    rounds: int

    @property
    def count(self) -> int:
        """Rows of a round."""
        return 10 * self.concurrency

    @property
    def ideal_s(self) -> float:
        """No limit of that many in flight can be used better."""
        return self.count * self.latency_s / self.concurrency

    @property
    def traffic(self) -> dict[str, Any]:
        """The part of the configuration that says how hard to ask."""
        return {"concurrency": self.concurrency, "hedge": "off"}


class Measured(msgspec.Struct, frozen=True):
    """A batch that was judged: how long it took, and each process's CPU seconds."""

    wall_s: float
    peak: int
    asking: list[float]
    hub: list[float]
    judge: list[float]


def main() -> int:
    """Print one row for each way."""
    given = arguments()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a socket for each request in flight
    rows: list[Sequence[str]] = [HEAD]
    with judges(given.judges, given.latency) as those, cluster():
        for concurrency in given.concurrency:
            batch = Batch(those, concurrency, given.latency, given.rounds)
            for shards in given.shards:
                name = f"zerowait, {shards} shards, {given.workers} workers"
                rows.append(row(name, batch, by_shards(batch, shards, given.workers)))
                name = f"aiohttp by hand, {shards} processes"
                rows.append(row(name, batch, by_hands(batch, shards)))
            rows.append(row("zerowait, 1 process", batch, by_one(batch)))
    show(rows)
    print(f"{given.judges} judge processes, {given.latency:g} s for an answer")
    show_load()
    return 0


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--concurrency", type=int, nargs="+", default=[2000], help="C")
    options.add_argument("--shards", type=int, nargs="+", default=[4], help="actors of the hub")
    options.add_argument("--workers", type=int, default=8, help="processes that hand in rows")
    options.add_argument("--latency", type=float, default=0.2, help="of every answer, in seconds")
    options.add_argument("--rounds", type=int, default=3)
    cpus = os.cpu_count() or 1
    options.add_argument("--judges", type=int, default=max(1, cpus // 4), help="processes")
    given = options.parse_args()
    for shards in given.shards:
        if not 1 <= shards <= MOST_SHARDS:
            options.error(f"--shards must be from 1 to {MOST_SHARDS}, not {shards}")
    return given


def row(name: str, batch: Batch, rounds: Sequence[Measured]) -> list[str]:
    """The table's row of the round with the middle time."""
    shown = sorted(rounds, key=lambda one: one.wall_s)[len(rounds) // 2]
    kinds = (shown.asking, shown.hub, shown.judge)
    each = [f"{1000 * sum(cpu) / batch.count:.2f}" if cpu else "-" for cpu in kinds[:2]]
    busiest = [f"{max(cpu) / shown.wall_s:.0%}" if cpu else "-" for cpu in kinds]
    ratio, rate = shown.wall_s / batch.ideal_s, batch.count / shown.wall_s
    peak = max(one.peak for one in rounds)
    return [str(batch.concurrency), name, f"{ratio:.3f}", f"{rate:.0f}", *each, *busiest, str(peak)]


def measured(
    batch: Batch, go: Callable[[], list[Run]], *, hub: Sequence[int] = (), rows: range | None = None
) -> Measured:
    """What one round takes, the processes `hub` included; the judges have to see `rows`, if given.

    Raises:
        SystemExit: a limit, or a row, was not kept.
    """
    batch.judges.asked()
    pids = [*hub, *batch.judges.pids]
    before = [cpu_s(pid) for pid in pids]
    runs = go()
    spent = [cpu_s(pid) - was for pid, was in zip(pids, before, strict=True)]
    asked = batch.judges.asked()
    if asked.peak > batch.concurrency:
        raise SystemExit(f"{asked.peak} requests were in flight, of {batch.concurrency}")
    if len(asked.rows) != batch.count or (rows is not None and sorted(asked.rows) != list(rows)):
        raise SystemExit(f"{batch.count} rows, but {len(asked.rows)} requests, or other rows")
    wall_s = max(run.began_s + run.wall_s for run in runs) - min(run.began_s for run in runs)
    cpu = [run.cpu_s for run in runs]
    return Measured(wall_s, asked.peak, cpu, spent[: len(hub)], spent[len(hub) :])


def by_one(batch: Batch) -> list[Measured]:
    """Through an engine in one process that does nothing else."""
    way = partial(through_engine, batch.judges.url, batch.count, traffic=batch.traffic)
    return in_processes(batch, 1, way)


def by_hands(batch: Batch, processes: int) -> list[Measured]:
    """With aiohttp, in several processes that know nothing of each other."""
    if batch.concurrency % processes:
        raise SystemExit(f"{batch.concurrency} cannot be divided by {processes}")
    mine = batch.concurrency // processes
    way = partial(by_hand, batch.judges.url, batch.count // processes, concurrency=mine)
    return in_processes(batch, processes, way)


def in_processes(batch: Batch, count: int, way: Callable[[], Run]) -> list[Measured]:
    """`way` in each of so many processes, which begin together."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(count + 1)
    with ProcessPoolExecutor(
        count, mp_context=context, initializer=_begin_with, initargs=(barrier,)
    ) as pool:

        def go() -> list[Run]:
            runs = [pool.submit(_when_all_are_there, way) for _ in range(count)]
            barrier.wait(START_S)
            return [run.result() for run in runs]

        return [measured(batch, go) for _ in range(batch.rounds)]


_barriers: list[Barrier] = []


def _begin_with(barrier: Barrier) -> None:
    _barriers.append(barrier)
    collect_rarely()


def _when_all_are_there(way: Callable[[], Run]) -> Run:
    _barriers[0].wait(START_S)
    return way()


@contextmanager
def cluster() -> Iterator[None]:
    """Ray on this machine."""
    import ray

    ray.init(include_dashboard=False, log_to_driver=False)
    try:
        yield
    finally:
        ray.shutdown()


def by_shards(batch: Batch, shards: int, workers: int) -> list[Measured]:
    """Through a hub of so many Ray actors, by so many workers."""
    import ray

    with hub_of(batch, shards) as (config, pids):
        all_workers = [ray.remote(Worker).remote(config) for _ in range(workers)]
        found = []
        for number in range(batch.rounds):
            rows = range(number * batch.count, (number + 1) * batch.count)
            first = WARM_FROM + number * WARM * workers
            warm = range(first, first + WARM * workers)
            parts = [(rows[w::workers], warm[w::workers]) for w in range(workers)]
            ray.get([w.ready.remote(*part) for w, part in zip(all_workers, parts, strict=True)])

            def go() -> list[Run]:
                at_s = time.monotonic() + 1.0
                return ray.get([worker.hand_in.remote(at_s) for worker in all_workers])

            found.append(measured(batch, go, hub=pids, rows=rows))
        for worker in all_workers:
            ray.kill(worker)
        return found


@contextmanager
def hub_of(batch: Batch, shards: int) -> Iterator[tuple[str, list[int]]]:
    """An open hub of so many actors: its configuration, and their processes."""
    import ray

    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "reward.yaml"
        asked = reward_config(batch.judges.url, traffic=batch.traffic, cache="off")
        config.write_text(json.dumps(asked | {"hub": {"shards": shards}}))
        hub = RayHub(str(config), record=None)
        wait_until_open(hub, batch.concurrency)
        names = ["zerowait-hub", *(f"zerowait-hub-{index}" for index in range(1, shards))]
        actors = [ray.get_actor(name) for name in names]
        yield str(config), ray.get([a.__ray_call__.remote(lambda _: os.getpid()) for a in actors])
        asyncio.run(hub.aclose())


def wait_until_open(hub: RayHub, concurrency: int) -> None:
    """Wait until the hub is there and has given all its slots to its shards."""
    asyncio.run(hub.ready())
    give_up = time.monotonic() + START_S
    while asyncio.run(hub.stats()).limit < concurrency:
        if time.monotonic() > give_up:
            raise SystemExit("the hub's shards did not get all its slots")
        time.sleep(0.1)


class Worker:
    """A process of a trainer that hands in rows."""

    def __init__(self, config: str) -> None:
        self._hub = RayHub(config, record=None)
        self._samples: dict[int, Sample] = {}

    async def ready(self, rows: range, warm: range) -> None:
        """Have the rows `warm` judged, and `rows` at hand."""
        self._samples = {number: sample(number) for number in warm}
        await self.hand_in(time.monotonic())
        self._samples = {number: sample(number) for number in rows}

    async def hand_in(self, at_s: float) -> Run:
        """Hand in all of them at that time, and wait for all.

        Raises:
            SystemExit: a row got another's score.
        """
        await asyncio.sleep(at_s - time.monotonic())
        began = clocks()
        async with asyncio.TaskGroup() as tasks:
            waited = {
                number: tasks.create_task(self._hub.reward(one))
                for number, one in self._samples.items()
            }
        ended = clocks()
        wrong = [n for n, one in waited.items() if one.result().value != score_of(n)]
        if wrong:
            raise SystemExit(f"{len(wrong)} rows got another's score, such as row {wrong[0]}")
        return run_of(len(waited), began, ended)


def sample(number: int) -> Sample:
    """The row of that number."""
    return Sample(
        "Say something.", f"{number} {TEXT}", group=f"g{number // GROUP}", group_size=GROUP
    )


if __name__ == "__main__":
    sys.exit(main())
