"""How many judgements per second one hub can carry, by the CPU time that each takes in its process.

    python benchmarks/hub_capacity.py [--rows 4000] [--ray] [--shards 1 2 4]

Two client processes hand in ROWS distinct samples at once through ``HttpHub`` (or two Ray workers
through ``RayHub``), with a fake judge that answers at once in a process of its own; then they do so
again, and everything comes from the cache. CPU time and not the clock is what is compared, so that
other work on the machine does not matter; a core does nothing but this in the rate that is printed.
With ``--shards`` also through Ray hubs of so many actors: the CPU time is then that of all of them,
and the rate what they carry together where each has a core.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from serving import cpu_s

COMMAND = [sys.executable, "-c", "from zerowait.cli import main; main()"]
CLIENTS = 2
RESPONSE = "The capital is Paris, because the question asks for it. " * 20

CLIENT = """
import asyncio, sys
from zerowait import Sample
from zerowait.hub.http import HttpHub

async def main(url, start, end, response):
    async with HttpHub(url) as hub, asyncio.TaskGroup() as tasks:
        for n in range(int(start), int(end)):
            tasks.create_task(hub.reward(Sample("q", f"{response} {n}")))

asyncio.run(main(*sys.argv[1:]))
"""


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=4000)
    options.add_argument("--ray", action="store_true", help="also through a Ray actor")
    options.add_argument("--shards", type=int, nargs="*", default=[], help="and through several")
    chosen = options.parse_args()
    print(f"{'hub':<14} {'answered by':<12} {'CPU ms each':>12} {'rows/s':>8}")
    with (
        tempfile.TemporaryDirectory() as folder,
        started("judge", "--fake", "--port", "0") as judge,
    ):
        measure_service(Path(folder), judge[1], chosen.rows)
        for shards in dict.fromkeys([1] * chosen.ray + chosen.shards):
            measure_actors(Path(folder), judge[1], chosen.rows, shards)


def measure_service(folder: Path, judge: str, rows: int) -> None:
    """Through ``zerowait serve`` and `HttpHub`."""
    config = written(folder, judge, "service")
    with started("serve", "-c", str(config), "--port", "0") as (process, url):

        def hand_in() -> None:
            clients = [
                subprocess.Popen([sys.executable, "-c", CLIENT, url, *map(str, part), RESPONSE])
                for part in parts(rows)
            ]
            for client in clients:
                if client.wait():
                    raise SystemExit("a client failed")

        report("zerowait serve", [process.pid], rows, hand_in)


def measure_actors(folder: Path, judge: str, rows: int, shards: int) -> None:
    """Through `RayHub` and so many Ray actors."""
    import ray

    from zerowait import Sample
    from zerowait.hub.ray import RayHub

    config = str(written(folder, judge, f"actors{shards}", shards))

    @ray.remote(num_cpus=0)
    class Worker:
        def ask(self, start: int, end: int) -> None:
            async def all_rows() -> None:
                hub = RayHub(config, record=None)
                async with asyncio.TaskGroup() as tasks:
                    for n in range(start, end):
                        tasks.create_task(hub.reward(Sample("q", f"{RESPONSE} {n}")))

            asyncio.run(all_rows())

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    hub = RayHub(config, record=None)
    asyncio.run(hub.ready())
    names = ["zerowait-hub", *(f"zerowait-hub-{index}" for index in range(1, shards))]
    pids = ray.get(
        [ray.get_actor(name).__ray_call__.remote(lambda _: os.getpid()) for name in names]
    )
    workers = [Worker.remote() for _ in range(CLIENTS)]

    def hand_in() -> None:
        ray.get([w.ask.remote(*part) for w, part in zip(workers, parts(rows), strict=True)])

    report("Ray actor" if shards == 1 else f"{shards} Ray actors", pids, rows, hand_in)
    ray.shutdown()


def report(name: str, pids: Sequence[int], rows: int, hand_in: Callable[[], None]) -> None:
    """One line for rows that are asked for, and one for the same rows again."""
    for source in ("judge", "cache"):
        before = sum(map(cpu_s, pids))
        hand_in()
        each_s = (sum(map(cpu_s, pids)) - before) / rows
        rate = len(pids) / each_s
        print(f"{name:<14} {source:<12} {1000 * each_s:>12.2f} {rate:>8.0f}", flush=True)


def parts(rows: int) -> list[tuple[int, int]]:
    """The rows of each client."""
    return [(c * rows // CLIENTS, (c + 1) * rows // CLIENTS) for c in range(CLIENTS)]


def written(folder: Path, judge: str, name: str, shards: int = 1) -> Path:
    """A configuration with a judge and a cache of its own."""
    path = folder / f"{name}.yaml"
    endpoint = {"base_url": judge, "model": "m"}
    settings = {
        "components": {"quality": {"judge": "q"}},
        "judges": {"q": {"endpoints": [endpoint], "verdict": {"integer": [1, 10]}}},
        "traffic": {"concurrency": 64},
        "hub": {"shards": shards},
        "cache": {"path": str(folder / f"{name}.db")},
    }
    path.write_text(json.dumps(settings))
    return path


@contextmanager
def started(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running command and the URL that it prints."""
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            said = "" if process.stdout is None else process.stdout.readline()
            yield process, said.split()[-1]
        finally:
            process.terminate()


if __name__ == "__main__":
    began = time.monotonic()
    main()
    print(f"{time.monotonic() - began:.0f} s")
