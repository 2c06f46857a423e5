"""Comparing answers while rows make a rule hang, beside the same alone.

    python benchmarks/hanging_math.py [--others 1000] [--timeout-s 3] [--repeats 5]

Two worker processes compare `--others` fractions, alone, and beside 1, 12 and 40 rows whose
pattern hangs until `--timeout-s` and were handed in before them. A program that only keeps a
core busy shows what the loss of that core alone costs. Each way has its turn `--repeats` times, and
the row is its median. The processes of the workers are started before the clock is.
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
    show_load()
    return int(any(turn.wrong for done in turns.values() for turn in done))


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
