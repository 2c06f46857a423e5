"""Whether anything grows: 1,000 steps of asked and of cached rewards in one process.

    python benchmarks/soak.py [--steps 1000]

Each step asks 48 new judgements and takes 64 from the cache. Memory, descriptors, tasks and threads
after step 50 are compared with those at the end; the exit code says whether they grew.
"""

import argparse
import asyncio
import gc
import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import NamedTuple

import uvloop
from asking import TEXT, reward_config
from serving import quick_judge, show_load

import zerowait
from zerowait.cli.tables import show
from zerowait.engine import Engine

WARM_STEPS = 50
ASKED = 48
CACHED = 64


class Held(NamedTuple):
    """What the process holds."""

    memory_mb: float
    descriptors: int
    tasks: int
    threads: int


MAY_VARY = Held(2.0, 64, 0, 0)
"""An allocator's megabytes, and connections that idle at one moment and not at another."""


def held() -> Held:
    """What this process holds now."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Held(
        pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
        len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - one name per descriptor is all
        len(asyncio.all_tasks()),
        threading.active_count(),
    )


async def steps(url: str, file: str, count: int) -> list[Held]:
    """What was held after the warm steps, and after each further hundred and the last."""
    same = [zerowait.Sample("Say something.", f"the same {n} {TEXT}") for n in range(CACHED)]
    seen = []
    async with (
        Engine(reward_config(url, traffic={}, cache="off")) as fresh,
        Engine(reward_config(url, traffic={}, cache=file)) as cached,
    ):
        for step in range(1, count + 1):
            new = [zerowait.Sample("Say.", f"{step} {n} {TEXT}") for n in range(ASKED)]
            rewards = [*await fresh.score_all(new), *await cached.score_all(same)]
            if any(reward.abstained for reward in rewards):
                raise SystemExit(f"a judgement of step {step} was not reached")
            if step in (WARM_STEPS, count) or (step > WARM_STEPS and step % 100 == 0):
                seen.append(held())
    return seen


def main() -> int:
    """Print what was held; 1 if it grew."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=1000)
    given = options.parse_args()
    with quick_judge() as url, tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "judgements.db")
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            seen = runner.run(steps(url, file, given.steps))
    first, last = seen[0], seen[-1]
    rows: list[list[str]] = [["", f"after step {WARM_STEPS}", f"after step {given.steps}", "most"]]
    most = map(max, zip(*seen, strict=True))
    for name, *values in zip(Held._fields, first, last, most, strict=True):
        rows.append([name, *(f"{value:.4g}" for value in values)])
    show(rows)
    show_load()
    grew = any(
        after > before + more for before, after, more in zip(first, last, MAY_VARY, strict=True)
    )
    print("it grew" if grew else "nothing grew")
    return int(grew)


if __name__ == "__main__":
    sys.exit(main())
