"""Comparing answers while rows make a rule hang, beside the same alone.

    python benchmarks/hanging_math.py [--others 1000] [--timeout-s 3] [--repeats 5] [--sleeping 20]

Two worker processes compare `--others` fractions, alone, and beside 1, 12 and 40 rows whose
pattern hangs until `--timeout-s` and were handed in before them. A program that only keeps a
core busy shows what the loss of that core alone costs. Each way has its turn `--repeats` times, and
the row is its median. The processes of the workers are started before the clock is.

A second table has the same number of answers that are judged by `math`, `regex` and a user's fast
function, alone and while `--sleeping` rows wait for a user's function that sleeps for a second.
"""

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from statistics import median
from typing import NamedTuple

from serving import show_load

from zerowait import Sample
from zerowait.cli.tables import show
from zerowait.engine import Engine
from zerowait.engine.pool.scorer_pool import ScorerPool

_HANGING = Sample("", "a" * 60)
_SLOW = {"pattern": "(a+)+b"}
_WORKERS = 2
_AT_ONCE = 256


class _Way(NamedTuple):
    hanging: int = 0
    is_beside_a_program: bool = False


_WAYS = {
    "alone": _Way(),
    "beside a program that keeps a core busy": _Way(is_beside_a_program=True),
    "beside one that hangs": _Way(1),
    "beside 12 that hang": _Way(12),
    "beside 40 that hang": _Way(40),
}


class _Turn(NamedTuple):
    took_s: float
    wrong: int
    hung: str
    hung_s: float


def main() -> int:
    """Print one row for each way; the exit code says whether every answer was right."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--others", type=int, default=1000)
    options.add_argument("--timeout-s", type=float, default=3.0)
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--sleeping", type=int, default=20)
    given = options.parse_args()
    turns: dict[str, list[_Turn]] = {name: [] for name in _WAYS}
    for _ in range(given.repeats):
        for name, way in _WAYS.items():
            turns[name].append(asyncio.run(_turn(way, given.others, given.timeout_s)))
    rows = [[f"{given.others:,} answers", "seconds", "/ alone", "wrong", "those that hang"]]
    alone_s = median(turn.took_s for turn in turns["alone"])
    for name, done in turns.items():
        took_s = median(turn.took_s for turn in done)
        hung = " ".join(sorted({turn.hung for turn in done}))
        late = f"{hung}, at most {max(turn.hung_s for turn in done):.2f} s" if hung else ""
        wrong = sum(turn.wrong for turn in done)
        rows.append([name, f"{took_s:.2f}", f"{took_s / alone_s:.2f}", str(wrong), late])
    show(rows)
    beside_sleepers(given.others, given.sleeping, given.repeats)
    show_load()
    return int(any(turn.wrong for done in turns.values() for turn in done))


def sleeps(sample: Sample) -> float:  # noqa: ARG001 - as the engine calls it
    """A user's function that waits for something."""
    time.sleep(1.0)
    return 1.0


def counts(sample: Sample) -> float:
    """A user's function that answers at once."""
    return float(len(sample.response) > 0)


_COMPONENTS = {
    "sleeps": {"scorer": "hanging_math:sleeps", "sources": ["asleep"]},
    "math": {"scorer": "math", "sources": ["awake"]},
    "regex": {"scorer": "regex", "pattern": "boxed", "sources": ["awake"]},
    "counts": {"scorer": "hanging_math:counts", "sources": ["awake"]},
}


def beside_sleepers(others: int, sleeping: int, repeats: int) -> None:
    """Print how long answers take alone and beside rows whose user function sleeps."""
    turns: dict[str, list[float]] = {"alone": [], f"beside {sleeping} that sleep": []}
    for _ in range(repeats):
        for name, count in zip(turns, (0, sleeping), strict=True):
            turns[name].append(asyncio.run(_awake_s(others, count)))
    rows = [[f"{others:,} answers by math, regex and a fast function", "seconds", "/ alone"]]
    alone_s = median(turns["alone"])
    for name, took_s in turns.items():
        rows.append([name, f"{median(took_s):.2f}", f"{median(took_s) / alone_s:.2f}"])
    show(rows)


async def _awake_s(others: int, sleeping: int) -> float:
    """How long rows take that no sleeping function judges."""

    def awake(count: int) -> list[Sample]:
        numbers = range(1, count + 1)
        return [
            Sample("", rf"\boxed{{\frac{{{n}}}{{7}}}}", f"{n}/7", data_source="awake")
            for n in numbers
        ]

    asleep = [Sample("", f"{n}", data_source="asleep") for n in range(sleeping)]
    async with Engine({"components": _COMPONENTS}) as engine, asyncio.TaskGroup() as group:
        await engine.score_all([*awake(4), Sample("", "first", data_source="asleep")])
        waiting = group.create_task(engine.score_all(asleep))
        await asyncio.sleep(0.1)
        began_s = time.perf_counter()
        rewards = await engine.score_all(awake(others))
        took_s = time.perf_counter() - began_s
        waiting.cancel()
    if any(reward.value != len(_COMPONENTS) - 1 for reward in rewards):
        raise SystemExit("an answer was not found right")
    return took_s


async def _turn(way: _Way, others: int, timeout_s: float) -> _Turn:
    """How long the others took, how many were not right, and what became of the one, and when."""
    pool = ScorerPool(max_workers=_WORKERS)
    try:
        await _right(pool, 2 * _WORKERS)
        async with asyncio.TaskGroup() as group:
            hanging = [group.create_task(_hung(pool, timeout_s)) for _ in range(way.hanging)]
            await asyncio.sleep(0)
            with _busy_program() if way.is_beside_a_program else nullcontext():
                began_s = time.perf_counter()
                right = await _right(pool, others)
                took_s = time.perf_counter() - began_s
        ends = [each.result() for each in hanging] or [("", 0.0)]
        hung = " ".join(sorted({kind for kind, _ in ends}))
        return _Turn(took_s, others - right, hung, max(hung_s for _, hung_s in ends))
    finally:
        await pool.aclose()


async def _hung(pool: ScorerPool, timeout_s: float) -> tuple[str, float]:
    began_s = time.perf_counter()
    outcome = await pool.run("regex", _HANGING, options=_SLOW, timeout_s=timeout_s)
    return str(getattr(outcome, "kind", "scored")), time.perf_counter() - began_s


@contextmanager
def _busy_program() -> Iterator[None]:
    """A program that does nothing but take the time of a core."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as program:
        time.sleep(0.2)
        try:
            yield
        finally:
            program.kill()


async def _right(pool: ScorerPool, count: int) -> int:
    """How many of `count` right answers are found right."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(number: int) -> bool:
        sample = Sample("", rf"\boxed{{\frac{{{number}}}{{7}}}}", f"{number}/7")
        async with slots:
            return getattr(await pool.run("math", sample), "value", 0) == 1

    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(one(number)) for number in range(1, count + 1)]
    return sum(each.result() for each in asked)


if __name__ == "__main__":
    sys.exit(main())
